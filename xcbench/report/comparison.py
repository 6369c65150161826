"""Comparing stored runs on the points they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xcbench.data import Dataset
from xcbench.errors import InputError
from xcbench.evaluation import Truth, evaluate, parse_metric
from xcbench.evaluation import compare as compare_points
from xcbench.evaluation.statistics import holm
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


def compare_runs(records: Sequence[Record], metrics: Sequence[str], data: Dataset | None = None) -> list[ComparedRun]:
    """Every run against the first by every metric, paired over test points; p-values are corrected together.

    `data` is the dataset of the runs, loaded by its name if it is not given.
    """
    if len(records) < 2:
        raise InputError(f"a comparison needs at least two runs, got {len(records)}")
    first = records[0]
    for record in records[1:]:
        if record.fingerprint != first.fingerprint:
            raise InputError(
                f"runs {first.id} and {record.id} are on different data ({first.dataset}, {record.dataset})"
            )
    truth = Truth.of(dataset_of(first) if data is None else data)
    predictions = [record.predictions() for record in records]
    for record, topk in zip(records, predictions, strict=True):
        # Computed all the same, these would be too low, and nobody would see it.
        if too_deep := [m for m in metrics if min(parse_metric(m).k or 1, truth.label_count) > topk.k]:
            raise InputError(f"run {record.id} keeps {topk.k} labels a point, too few for {', '.join(too_deep)}")
    evaluations = [evaluate(topk, truth, metrics) for topk in predictions]
    rows: list[ComparedRun] = []
    for metric in metrics:
        scores = [evaluation.per_point(metric) for evaluation in evaluations]
        rows.append(ComparedRun(first.id, metric, scores[0].value))
        for record, score in zip(records[1:], scores[1:], strict=True):
            gap = compare_points(score, scores[0])
            rows.append(ComparedRun(record.id, metric, score.value, gap.difference, gap.low, gap.high, gap.p_value))
    return _corrected(rows)


def dataset_of(record: Record) -> Dataset:
    """The dataset of a run, refused if it is no longer what the run saw."""
    from xcbench.data.catalog import load_dataset

    data = load_dataset(record.dataset_source)
    if data.fingerprint != record.fingerprint:
        raise InputError(f"dataset {record.dataset!r} is not what run {record.id} was made on: its content differs")
    return data


def _corrected(rows: list[ComparedRun]) -> list[ComparedRun]:
    tested = [(place, row.p_value) for place, row in enumerate(rows) if row.p_value is not None]
    for (place, _), p_value in zip(tested, holm([p for _, p in tested]), strict=True):
        rows[place] = replace(rows[place], p_value=p_value, tied=p_value > ALPHA)
    return rows
