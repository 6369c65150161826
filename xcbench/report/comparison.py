"""Comparing stored runs on the points they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xcbench.data import Dataset
from xcbench.errors import InputError
from xcbench.evaluation import Evaluation, Truth, parse_metrics
from xcbench.evaluation import compare as compare_points
from xcbench.evaluation.statistics import holm
from xcbench.runner.naming import differences
from xcbench.runner.store import Record

ALPHA = 0.05


@dataclass(frozen=True)
class ComparedRun:
    """One run by one metric, against the first run; the first itself has no difference."""

    run: str
    metric: str
    value: float
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
    evaluations = [record.evaluate(truth, metrics) for record in records]

    rows: list[ComparedRun] = []
    for metric in metrics:
        rows.extend(_compared_by(metric, records, evaluations))
    texts = dict(zip(ids, differences(records), strict=True))
    return [replace(row, differs=texts[row.run]) for row in _corrected(rows)]


def _check_same_data(first: Record, others: Sequence[Record]) -> None:
    for record in others:
        if record.fingerprint != first.fingerprint:
            raise InputError(
                f"runs {first.id} and {record.id} are on different data ({first.dataset}, {record.dataset})"
            )


def _compared_by(
    metric: str,
    records: Sequence[Record],
    evaluations: Sequence[Evaluation],
) -> list[ComparedRun]:
    scores = [evaluation.per_point(metric) for evaluation in evaluations]
    rows = [ComparedRun(records[0].id, metric, scores[0].value)]
    for record, score in zip(records[1:], scores[1:], strict=True):
        result = compare_points(score, scores[0])
        row = ComparedRun(
            run=record.id,
            metric=metric,
            value=score.value,
            difference=result.difference,
            low=result.low,
            high=result.high,
            p_value=result.p_value,
        )
        rows.append(row)
    return rows


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
