"""Tables: run what is missing, then fill every cell with our figure, how sure it is, and what the paper has there.

A row that cannot run, or whose run failed, stays in the table and says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from xcbench.evaluation import holm
from xcbench.report import paper
from xcbench.report.availability import check, unavailable
from xcbench.report.columns import Column, column
from xcbench.report.experiments import Experiment, Row
from xcbench.report.scores import DatasetRuns, ScoreTable
from xcbench.runner.launchers import Job, Launcher, LocalLauncher
from xcbench.runner.spec import OverwriteStrategy
from xcbench.runner.store import Record, Store

ALPHA = 0.05
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
    """It cannot be told from the best of its column."""
    difference: float | None = None
    """To the reference row."""
    p_value: float | None = None
    """Of that difference: paired bootstrap, Holm-corrected over the rows of the column."""


@dataclass(frozen=True)
class TableRow:
    """A row as it came out. `problem` says why cells are missing, if any are."""

    row: Row
    cells: Mapping[str, Cell]
    records: tuple[Record, ...] = ()
    problem: str | None = None
    state: str = "done"
    """`done`, `not available`, `failed` or `not run`."""


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


def run_missing(
    experiment: Experiment,
    shelves: Sequence[DatasetRuns],
    seeds: Sequence[int],
    launcher: Launcher | None = None,
    timeout: float | None = None,
    overwrite: OverwriteStrategy = OverwriteStrategy.KEEP,
    say: Callable[[str], None] = lambda line: None,
) -> Failures:
    """Run every row on every dataset with every seed that the store has not; the failures, if there are any.

    Interrupting it ends what is running; what has finished is in the store and stays there.
    """
    check(experiment)
    wanted = _wanted(experiment, shelves, seeds, overwrite)
    if not wanted:
        return {}
    say(f"{len(wanted)} runs to do")
    stores = {run_id: shelf.store for run_id, (shelf, _) in wanted.items()}
    ids = {job: run_id for run_id, (_, job) in wanted.items()}
    failures: dict[str, str] = {}
    outcomes = (launcher or LocalLauncher()).launch(list(ids), timeout)
    with contextlib.closing(outcomes):  # type: ignore[type-var]
        for number, outcome in enumerate(outcomes, 1):
            run_id = ids[outcome.job]
            failure = outcome.failure
            if failure is None and run_id not in stores[run_id]:
                failure = f"it ended well, but {stores[run_id].folder} does not hold its record: is the store shared?"
            if failure is not None:
                failures[run_id] = failure
            how = f"failed: {failure}" if failure else "done"
            say(f"[{number}/{len(ids)}] {outcome.job.title}: {how} ({outcome.seconds:.0f} s)")
    return failures


def _wanted(
    experiment: Experiment, shelves: Sequence[DatasetRuns], seeds: Sequence[int], overwrite: OverwriteStrategy
) -> dict[str, tuple[DatasetRuns, Job]]:
    """The runs to start, by id; rows that mean the same run share one."""
    wanted: dict[str, tuple[DatasetRuns, Job]] = {}
    for shelf in shelves:
        for row in runnable(experiment):
            for seed in seeds:
                run_id = shelf.run_id(row, seed)
                if overwrite is OverwriteStrategy.REDO or shelf.get(run_id) is None:
                    arguments = (*row.spec(shelf.source, seed).arguments(), "--store", str(shelf.store.folder))
                    # What is there all the same must be damaged.
                    anew = overwrite is OverwriteStrategy.REDO or run_id in shelf.store
                    arguments += ("--force",) if anew else ()
                    job = Job(f"{row.label} on {shelf.data.name}, seed {seed}", arguments)
                    wanted.setdefault(run_id, (shelf, job))
    return wanted


def runnable(experiment: Experiment) -> list[Row]:
    """The rows whose method, ablations, augmentations and reranker all exist."""
    return [row for row in experiment.rows if unavailable(row) is None]


def fill(experiment: Experiment, shelf: DatasetRuns, seeds: Sequence[int], failures: Failures | None = None) -> Table:
    """The table of what the store holds."""
    check(experiment)
    columns = tuple(column(name) for name in experiment.metrics)
    records = {row.label: shelf.records(row, seeds) for row in runnable(experiment)}
    judge = ScoreTable(shelf.data, {label: list(found.values()) for label, found in records.items()}, columns)
    cells = {c.name: _cells(c, judge, experiment) for c in columns}
    rows = []
    for row in experiment.rows:
        found = records.get(row.label, {})
        problem, state = _problem(row, shelf, seeds, found, failures or {})
        of_row = {name: of_column[row.label] for name, of_column in cells.items() if row.label in of_column}
        rows.append(TableRow(row, of_row, tuple(found.values()), problem, state))
    figures = {
        (row.label, c.name): figure
        for row in experiment.rows
        for c in columns
        if (figure := paper.figure(experiment, shelf.data.name, row.label, c.name))
    }
    return Table(experiment, shelf.data.name, len(shelf.data.test), tuple(seeds), columns, tuple(rows), figures)


def _problem(
    row: Row, shelf: DatasetRuns, seeds: Sequence[int], found: Mapping[int, Record], failures: Failures
) -> tuple[str | None, str]:
    """Why a row is empty or incomplete, and in which state that leaves it."""
    if reason := unavailable(row):
        return reason, "not available"
    failed = {seed: failures.get(shelf.run_id(row, seed)) for seed in seeds}
    state = "done" if found else "failed" if any(failed.values()) else "not run"
    whys = {seed: failure or "not run yet" for seed, failure in failed.items() if seed not in found}
    # `--run all`: what is shown is no longer what was asked for.
    whys |= {seed: f"an earlier run, since the new one failed: {failed[seed]}" for seed in found if failed[seed]}
    if len(seeds) == 1:
        return whys.get(seeds[0]), state
    return "; ".join(f"seed {seed}: {why}" for seed, why in sorted(whys.items())) or None, state


def _cells(column: Column, judge: ScoreTable, experiment: Experiment) -> dict[str, Cell]:
    """One column: figures, who is best or tied with it, and differences to the reference row."""
    spreads = {row.label: judge.spread(row.label, column) for row in experiment.rows}
    values = {label: spread.mean for label, spread in spreads.items() if spread is not None}
    if not values:
        return {}
    tested = column.read is None
    best = (min if column.lower_is_better else max)(values, key=lambda label: values[label])
    from_best = _p_values(judge, column.name, best, values) if tested else {}
    reference = experiment.reference if experiment.reference in values else None
    from_reference = _p_values(judge, column.name, reference, values) if tested and reference else {}
    cells = {}
    for label, value in values.items():
        interval = judge.interval(label, column.name) if tested else None
        spread = spreads[label]
        cells[label] = Cell(
            value,
            interval.low if interval else None,
            interval.high if interval else None,
            spread.deviation if spread else None,
            best=label == best and len(values) > 1,
            tied=from_best.get(label, 0.0) > ALPHA,
            difference=value - values[reference] if reference and label != reference else None,
            p_value=from_reference.get(label),
        )
    return cells


def _p_values(judge: ScoreTable, metric: str, against: str, labels: Mapping[str, float]) -> dict[str, float]:
    """Each row against one of them, Holm-corrected together."""
    others = [label for label in labels if label != against]
    raw = [judge.contrast(metric, {label: 1.0, against: -1.0}).p_value for label in others]
    return dict(zip(others, holm(raw), strict=True)) if raw else {}


def shelves(datasets: Sequence[str], store: Store) -> list[DatasetRuns]:
    """The datasets of a table, loaded; an unknown name is an `InputError`."""
    return [DatasetRuns.of(name, store) for name in datasets]
