"""Comparing stored runs on the points they share, and over seeds where there are several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xcbench.data import Dataset
from xcbench.errors import InputError
from xcbench.evaluation import Comparison, Evaluation, PointScores, Spread, Truth, parse_metrics, spread
from xcbench.evaluation import compare as compare_points
from xcbench.evaluation.seeds import contrast_over_seeds
from xcbench.evaluation.statistics import holm
from xcbench.runner.naming import differences
from xcbench.runner.seeds import runs_by_seed, runs_with_seeds
from xcbench.runner.store import Record

ALPHA = 0.05
SEEDS_FOR_NOISE = 3
"""Fewer seeds say next to nothing about the noise of training."""


@dataclass(frozen=True)
class ComparedRun:
    """One run by one metric, against the first run; the first itself has no difference."""

    run: str
    metric: str
    value: float
    """The mean over seeds, where there are several."""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    """Corrected for the number of comparisons."""
    tied: bool = False
    """Whether the run is not significantly different from the first."""
    differs: str = ""
    """What tells the run from the others: settings, ablations, augmentations, seed."""


def compare_runs(
    records: Sequence[Record],
    metrics: Sequence[str],
    data: Dataset | None = None,
    seeds: Sequence[int] = (),
) -> list[ComparedRun]:
    """Compare every run with the first by every metric, paired over test points.

    The p-values are corrected together.

    Parameters
    ----------
    records
        At least two runs on the same data.
    metrics
        Names of metrics; one that looks at more places than a run keeps is an `InputError`.
    data
        The dataset of the runs; loaded by its name if it is not given.
    seeds
        If there are several, each run stands for its runs with these seeds in its store, and intervals and tests are
        over points and seeds together.
    """
    if len(records) < 2:
        raise InputError(f"a comparison needs at least two runs, got {len(records)}")
    ids = [record.id for record in records]
    repeated = [run_id for run_id in ids if ids.count(run_id) > 1]
    if repeated:
        raise InputError(f"run {repeated[0]} is named twice; a run is compared with others")

    metrics = [str(metric) for metric in parse_metrics(metrics)]
    first = records[0]
    _check_same_data(first, records[1:])

    if data is None:
        data = dataset_of(first)
    truth = Truth.of(data)
    evaluations = [[run.evaluate(truth, metrics) for run in runs] for runs in _runs_of(records, seeds)]

    rows: list[ComparedRun] = []
    for metric in metrics:
        rows.extend(_compared_by(metric, records, evaluations))
    texts = dict(zip(ids, differences(records), strict=True))
    return [replace(row, differs=texts[row.run]) for row in _corrected(rows)]


def training_noise(record: Record, metric: str, data: Dataset) -> Spread | None:
    """Return a metric over the seeds that a run's store happens to have; None below three of them.

    Parameters
    ----------
    record
        One of the runs.
    metric
        The name of a metric.
    data
        The dataset of the runs.
    """
    runs = runs_by_seed(record)
    if len(runs) < SEEDS_FOR_NOISE:
        return None
    truth = Truth.of(data)
    return spread([run.evaluate(truth, [metric]).values()[metric] for run in runs.values()])


def _runs_of(records: Sequence[Record], seeds: Sequence[int]) -> list[list[Record]]:
    """Return the runs that each record stands for."""
    if len(seeds) < 2:
        return [[record] for record in records]

    result: list[list[Record]] = []
    for record in records:
        runs = runs_with_seeds(record, seeds)
        if runs in result:
            raise InputError(
                f"run {record.id} differs from another one in its seed alone; over seeds {', '.join(map(str, seeds))} "
                "they are the same"
            )
        result.append(runs)
    return result


def _check_same_data(first: Record, others: Sequence[Record]) -> None:
    for record in others:
        if record.fingerprint != first.fingerprint:
            raise InputError(
                f"runs {first.id} and {record.id} are on different data ({first.dataset}, {record.dataset})"
            )


def _compared_by(
    metric: str,
    records: Sequence[Record],
    evaluations: Sequence[Sequence[Evaluation]],
) -> list[ComparedRun]:
    scores = [[evaluation.per_point(metric) for evaluation in of_run] for of_run in evaluations]
    first = scores[0]
    rows = [ComparedRun(records[0].id, metric, PointScores.average(first).value)]
    for record, of_run in zip(records[1:], scores[1:], strict=True):
        result = _difference(of_run, first)
        row = ComparedRun(
            run=record.id,
            metric=metric,
            value=PointScores.average(of_run).value,
            difference=result.difference,
            low=result.low,
            high=result.high,
            p_value=result.p_value,
        )
        rows.append(row)
    return rows


def _difference(run: Sequence[PointScores], first: Sequence[PointScores]) -> Comparison:
    """Test a run against the first; each has its scores by seed."""
    if len(first) > 1:
        return contrast_over_seeds([run, first], [1.0, -1.0])
    return compare_points(run[0], first[0])


def dataset_of(record: Record) -> Dataset:
    """Load the dataset of a run; an `InputError` if its content is no longer what the run saw."""
    from xcbench.data.catalog import load_dataset

    data = load_dataset(record.dataset_source)
    if data.fingerprint != record.fingerprint:
        raise InputError(f"dataset {record.dataset!r} is not what run {record.id} was made on: its content differs")
    return data


def _corrected(rows: list[ComparedRun]) -> list[ComparedRun]:
    p_values = [row.p_value for row in rows if row.p_value is not None]
    corrected = iter(holm(p_values))
    result = []
    for row in rows:
        if row.p_value is not None:
            p_value = next(corrected)
            row = replace(row, p_value=p_value, tied=p_value > ALPHA)
        result.append(row)
    return result
