"""Tables: run what is missing, then fill every cell with our figure, how sure it is, and what the paper has there.

A row that cannot run, or whose run failed, stays in the table and says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xcbench.evaluation import Spread, Truth, holm, spread
from xcbench.progress import Counter
from xcbench.report import paper
from xcbench.report.availability import check, unavailable
from xcbench.report.columns import Column, column
from xcbench.report.comparison import SEEDS_FOR_NOISE
from xcbench.report.costs import incomparable
from xcbench.report.experiments import Experiment, Row
from xcbench.report.scores import DatasetRuns, ScoreTable
from xcbench.runner.launchers import Job, Launcher, LocalLauncher, Outcome
from xcbench.runner.source_code import is_by_other_code
from xcbench.runner.spec import OverwriteStrategy
from xcbench.runner.store import Record, Store

ALPHA = 0.05
"""The level of all tests."""
NOISE_SEEDS = 5
"""Seeds from 0 up to this are looked for where a table has one seed."""
Failures = Mapping[str, str]
"""Why runs failed, by run id."""


@dataclass(frozen=True)
class Cell:
    """One figure of ours, and what is known about it. Percentages for metrics, else the column's own unit."""

    value: float
    low: float | None = None
    high: float | None = None
    deviation: float | None = None
    """Over seeds, where there are several."""
    best: bool = False
    tied: bool = False
    """Whether it is not significantly different from the best of its column."""
    difference: float | None = None
    """To the reference row."""
    p_value: float | None = None
    """Of that difference: paired bootstrap, Holm-corrected over the rows of the column."""
    remark: str = ""
    """Of a time: why it cannot be compared with the others of its column."""


@dataclass(frozen=True)
class TableRow:
    """A row of a filled table. `problem` says why cells are missing, if any are."""

    row: Row
    cells: Mapping[str, Cell]
    records: tuple[Record, ...] = ()
    problem: str | None = None
    noise: Spread | None = None
    """Of a row with one seed: the first metric over all its seeds in the store, where there are at least three."""
    state: str = "done"
    """`done`, `not available`, `failed` or `not run`."""

    @property
    def is_by_other_code(self) -> bool:
        """Whether other code than today's made one of its runs."""
        return any(is_by_other_code(record) for record in self.records)


@dataclass(frozen=True)
class Table:
    """One experiment on one dataset, filled."""

    experiment: Experiment
    dataset: str
    test_points: int
    seeds: tuple[int, ...]
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    published: Mapping[tuple[str, str], paper.PaperFigure] = field(default_factory=dict)
    """The paper's figures by row label and column name: empty where the dataset is not one of the paper's."""


def load_dataset_runs(datasets: Sequence[str], store: Store) -> list[DatasetRuns]:
    """Load the datasets of a table.

    Parameters
    ----------
    datasets
        Names or paths of datasets; an unknown name is an `InputError`.
    store
        Where their runs are, or will be.
    """
    return [DatasetRuns.of(name, store) for name in datasets]


def _no_progress(line: str) -> None:
    """Print nothing."""


def run_missing(
    experiment: Experiment,
    dataset_runs: Sequence[DatasetRuns],
    seeds: Sequence[int],
    launcher: Launcher | None = None,
    timeout: float | None = None,
    overwrite: OverwriteStrategy = OverwriteStrategy.KEEP,
    progress: Callable[[str], None] = _no_progress,
    device: str = "auto",
) -> Failures:
    """Run every row on every dataset with every seed that the store does not have; return the failures.

    Interrupting it ends what is running; what has finished is in the store and stays there.

    Parameters
    ----------
    experiment
        The table or figure.
    dataset_runs
        The datasets, each with its store.
    seeds
        The seeds to run each row with.
    launcher
        What starts the runs; by default processes on this machine, one after the other.
    timeout
        How many seconds each run may take.
    overwrite
        Whether to run what the store has already.
    progress
        Called with a line of text before the first run and after each.
    device
        What each run is given as its `--device`.
    """
    check(experiment)
    planned = _planned_runs(experiment, dataset_runs, seeds, overwrite, device)
    if not planned:
        return {}

    progress(f"{len(planned)} runs to do")
    planned_by_job = {run.job: run for run in planned}
    failures: dict[str, str] = {}
    outcomes = (launcher or LocalLauncher()).launch(list(planned_by_job), timeout)
    with contextlib.closing(outcomes), Counter("runs", len(planned), _no_progress) as counter:  # type: ignore[type-var]
        for number, outcome in enumerate(outcomes, 1):
            run = planned_by_job[outcome.job]
            failure = _failure(outcome, run)
            ending = "done"
            if failure is not None:
                failures[run.run_id] = failure
                ending = f"failed: {failure}"
            progress(f"[{number}/{len(planned)}] {outcome.job.title}: {ending} ({outcome.seconds:.0f} s)")
            counter.advance()
    return failures


@dataclass(frozen=True)
class _PlannedRun:
    run_id: str
    job: Job
    store: Store


def _planned_runs(
    experiment: Experiment,
    dataset_runs: Sequence[DatasetRuns],
    seeds: Sequence[int],
    overwrite: OverwriteStrategy,
    device: str,
) -> list[_PlannedRun]:
    """Return the runs to start; rows that mean the same run share one."""
    planned: dict[str, _PlannedRun] = {}
    for runs in dataset_runs:
        for row in runnable(experiment):
            if row.added:
                continue
            for seed in seeds:
                run_id = runs.run_id(row, seed)
                record = runs.get(run_id)
                if run_id in planned or not _is_due(record, row, overwrite):
                    continue
                how = overwrite
                if record is None and run_id in runs.store:
                    # It is damaged, and has to be overwritten.
                    how = OverwriteStrategy.REDO
                planned[run_id] = _PlannedRun(run_id, _job(runs, row, seed, how, device), runs.store)
    return list(planned.values())


def _is_due(record: Record | None, row: Row, overwrite: OverwriteStrategy) -> bool:
    """Return whether a run has to be made, although there may be a record of it."""
    if record is None or overwrite is OverwriteStrategy.REDO or not record.has_curve(row.curve):
        return True
    return overwrite is OverwriteStrategy.STALE and is_by_other_code(record)


def _job(runs: DatasetRuns, row: Row, seed: int, overwrite: OverwriteStrategy, device: str) -> Job:
    arguments = [*row.spec(runs.source, seed).arguments(), "--store", str(runs.store.folder)]
    if overwrite is OverwriteStrategy.REDO:
        arguments.append("--force")
    elif overwrite is OverwriteStrategy.STALE:
        arguments.append("--stale")
    return Job(f"{row.label} on {runs.data.name}, seed {seed}", tuple(arguments), device)


def _failure(outcome: Outcome, run: _PlannedRun) -> str | None:
    """Return why a run that has ended left no record, None if it did leave one."""
    if outcome.failure is not None:
        return outcome.failure
    if run.run_id not in run.store:
        return f"it ended well, but {run.store.folder} does not hold its record: is the store shared?"
    return None


def runnable(experiment: Experiment) -> list[Row]:
    """Return the rows whose method, ablations, augmentations and reranker all exist."""
    return [row for row in experiment.rows if unavailable(row) is None]


def fill(
    experiment: Experiment,
    dataset_runs: DatasetRuns,
    seeds: Sequence[int],
    failures: Failures | None = None,
) -> Table:
    """Return the table of what the store holds.

    Parameters
    ----------
    experiment
        The table or figure.
    dataset_runs
        The dataset and the store of its runs.
    seeds
        The seeds to average over.
    failures
        What `run_missing` returned, if it was called: empty rows then say why they failed.
    """
    check(experiment)
    columns = tuple(column(name) for name in experiment.metrics)
    records = {row.label: dataset_runs.records(row, seeds) for row in runnable(experiment)}
    records_by_label = {label: list(by_seed.values()) for label, by_seed in records.items()}
    scores = ScoreTable(dataset_runs.data, records_by_label, columns)
    labels = [row.label for row in experiment.rows]
    cells_by_column = {c.name: column_cells(c, scores, labels, experiment.reference) for c in columns}

    rows = []
    for row in experiment.rows:
        by_seed = records.get(row.label, {})
        problem, state = _problem(row, dataset_runs, seeds, by_seed, failures or {})
        cells = {name: cells[row.label] for name, cells in cells_by_column.items() if row.label in cells}
        noise = None
        if len(seeds) == 1 and by_seed:
            noise = _training_noise(row, dataset_runs, columns)
        rows.append(TableRow(row, cells, tuple(by_seed.values()), problem, noise, state))

    return Table(
        experiment=experiment,
        dataset=dataset_runs.data.name,
        test_points=len(dataset_runs.data.test),
        seeds=tuple(seeds),
        columns=columns,
        rows=tuple(rows),
        published=_published(experiment, dataset_runs.data.name, columns),
    )


def _training_noise(row: Row, dataset_runs: DatasetRuns, columns: Sequence[Column]) -> Spread | None:
    """Return the first metric over the seeds that the store happens to have; None below three of them."""
    metrics = [column.name for column in columns if column.is_metric]
    records = dataset_runs.records(row, range(NOISE_SEEDS))
    if not metrics or len(records) < SEEDS_FOR_NOISE:
        return None
    values = [record.evaluate(Truth.of(dataset_runs.data), metrics[:1]).values() for record in records.values()]
    return spread([value[metrics[0]] for value in values])


def _published(
    experiment: Experiment,
    dataset: str,
    columns: Sequence[Column],
) -> dict[tuple[str, str], paper.PaperFigure]:
    result = {}
    for row in experiment.rows:
        for c in columns:
            figure = paper.figure(experiment, dataset, row.label, c.name)
            if figure is not None:
                result[row.label, c.name] = figure
    return result


def _problem(
    row: Row,
    dataset_runs: DatasetRuns,
    seeds: Sequence[int],
    records: Mapping[int, Record],
    failures: Failures,
) -> tuple[str | None, str]:
    """Return why a row is empty or incomplete, and which state the row is in."""
    reason = unavailable(row)
    if reason is not None:
        return reason, "not available"

    problems = {}
    any_failed = False
    for seed in seeds:
        failure = failures.get(dataset_runs.run_id(row, seed))
        any_failed = any_failed or failure is not None
        if seed not in records:
            problems[seed] = failure or _not_there_yet(row)
        elif failure is not None:
            # After `--run all`, the figure is not of the run that was asked for.
            problems[seed] = f"an earlier run, since the new one failed: {failure}"

    state = "not run"
    if records:
        state = "done"
    elif any_failed:
        state = "failed"

    if not problems:
        return None, state
    if len(seeds) == 1:
        return problems[seeds[0]], state
    return "; ".join(f"seed {seed}: {problem}" for seed, problem in sorted(problems.items())), state


def _not_there_yet(row: Row) -> str:
    if row.added:
        return f"not added yet: xcbench add --name {row.method!r}"
    return "not run yet"


def column_cells(
    column: Column,
    scores: ScoreTable,
    labels: Iterable[str],
    reference: str | None = None,
) -> dict[str, Cell]:
    """Return one column: figures, which is best or tied with it, and differences to the reference row.

    Parameters
    ----------
    column
        What to show.
    scores
        The figures of all rows.
    labels
        The rows; those without a figure have no cell.
    reference
        The row that differences are taken to, if any.
    """
    spreads = {}
    for label in labels:
        spread = scores.spread(label, column)
        if spread is not None:
            spreads[label] = spread
    if not spreads:
        return {}

    remarks: Mapping[str, str] = {}
    if column.is_time:
        remarks = incomparable({label: scores.records[label] for label in spreads})
    values = {label: spread.mean for label, spread in spreads.items()}
    best = _best({label: value for label, value in values.items() if label not in remarks}, column.lower_is_better)
    cells = {}
    for label, spread in spreads.items():
        is_best = label == best and len(values) > 1
        cells[label] = Cell(spread.mean, deviation=spread.deviation, best=is_best, remark=remarks.get(label, ""))

    if reference in values:
        _add_differences(cells, reference)
    if column.is_metric and best is not None:
        _add_tests(cells, scores, column.name, best, reference)
    return cells


def _add_differences(cells: dict[str, Cell], reference: str) -> None:
    """Set the differences of all other rows to the reference row."""
    for label, cell in cells.items():
        if label != reference:
            cells[label] = replace(cell, difference=cell.value - cells[reference].value)


def _add_tests(
    cells: dict[str, Cell],
    scores: ScoreTable,
    metric: str,
    best: str,
    reference: str | None,
) -> None:
    """Set the intervals, which rows are tied with the best, and the p-values of differences to the reference row."""
    p_from_best = _p_values(scores, metric, best, cells)
    p_from_reference: dict[str, float] = {}
    if reference in cells:
        p_from_reference = _p_values(scores, metric, reference, cells)

    for label, cell in cells.items():
        interval = scores.interval(label, metric)
        cells[label] = replace(
            cell,
            low=interval.low,
            high=interval.high,
            tied=p_from_best.get(label, 0.0) > ALPHA,
            p_value=p_from_reference.get(label),
        )


def _best(values: Mapping[str, float], lower_is_better: bool) -> str | None:
    """Return the row with the best figure; the first of equals, and None of none."""
    if not values:
        return None
    if lower_is_better:
        return min(values, key=lambda label: values[label])
    return max(values, key=lambda label: values[label])


def _p_values(
    scores: ScoreTable,
    metric: str,
    against: str,
    labels: Iterable[str],
) -> dict[str, float]:
    """Test each row against one of them, Holm-corrected together."""
    others = [label for label in labels if label != against]
    if not others:
        return {}
    raw = [scores.contrast(metric, {label: 1.0, against: -1.0}).p_value for label in others]
    return dict(zip(others, holm(raw), strict=True))
