"""The figures behind a table: which runs exist, what their predictions are worth, and how sure that is.

Everything is computed from stored predictions, all rows under the same resamples of the test points, so that every
difference is paired. Several seeds of a row are averaged point by point first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from xcbench.data import Dataset
from xcbench.data.catalog import dataset_names, load_dataset
from xcbench.errors import InputError
from xcbench.evaluation import (
    Bootstrap,
    Comparison,
    Evaluation,
    Interval,
    PointScores,
    Spread,
    Truth,
    evaluate,
    parse_metric,
    spread,
)
from xcbench.report.columns import Column
from xcbench.report.experiments import Row
from xcbench.runner.resolve import resolve
from xcbench.runner.store import Record, Store

RESAMPLES = 10_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DatasetRuns:
    """One dataset and the records that a store has for it."""

    data: Dataset
    store: Store
    source: str
    """What the dataset is asked for by: its name, or where it lies."""

    @classmethod
    def of(cls, dataset: str, store: Store) -> DatasetRuns:
        data = _loaded(dataset)
        is_path = dataset not in dataset_names()
        return cls(data, store, str(Path(dataset).expanduser().absolute()) if is_path else dataset)

    def run_id(self, row: Row, seed: int) -> str:
        """The identity of a row's run here; whatever is wrong with it is an `InputError` that names the row."""
        try:
            return resolve(row.spec(self.source, seed), self.data).id
        except InputError as error:
            raise InputError(f"row {row.label!r}: {error}") from error

    def get(self, run_id: str) -> Record | None:
        """A record whose predictions can be read; one that is damaged costs a warning and counts as missing."""
        record = self.store.get(run_id)
        try:
            if record is not None:
                record.predictions()
        except InputError as error:
            _log.warning("skipping a damaged record: %s", error)
            return None
        return record

    def records(self, row: Row, seeds: Iterable[int]) -> dict[int, Record]:
        """The finished runs of a row, by seed."""
        found = {seed: self.get(self.run_id(row, seed)) for seed in seeds}
        return {seed: record for seed, record in found.items() if record is not None}


@lru_cache(maxsize=4)
def _loaded(name: str) -> Dataset:
    return load_dataset(name)


class ScoreTable:
    """Every figure of an experiment on one dataset, with intervals, spreads and paired tests."""

    def __init__(
        self,
        data: Dataset,
        records: Mapping[str, Sequence[Record]],
        columns: Sequence[Column],
        resamples: int = RESAMPLES,
    ) -> None:
        self.records = records
        truth = Truth.of(data)
        metrics = [column.name for column in columns if column.read is None]
        self._seeds: dict[tuple[str, str], list[float]] = {}
        self._scores: dict[tuple[str, str], PointScores] = {}
        for label, of_row in records.items():
            predictions = [record.predictions() for record in of_row]
            # Predictions that were cut to fewer places than a metric looks at would only seem to answer it.
            depth = min((topk.k for topk in predictions), default=0)
            answered = [name for name in metrics if min(parse_metric(name).k or 1, data.label_count) <= depth]
            if answered:
                self._take(label, [evaluate(topk, truth, answered) for topk in predictions], answered)
        self._bootstraps = [
            _Paired({key: s for key, s in self._scores.items() if s.metric.is_coverage is over_labels}, resamples)
            for over_labels in (False, True)
        ]

    def _take(self, label: str, evaluations: Sequence[Evaluation], metrics: Sequence[str]) -> None:
        for metric in metrics:
            of_seeds = [evaluation.per_point(metric) for evaluation in evaluations]
            self._seeds[label, metric] = [scores.value for scores in of_seeds]
            self._scores[label, metric] = PointScores.average(of_seeds)

    def has(self, label: str, metric: str) -> bool:
        """Whether the row has predictions behind this metric, so that it can be tested."""
        return (label, metric) in self._scores

    def spread(self, label: str, column: Column) -> Spread | None:
        """Mean and deviation over seeds; None where there is nothing."""
        if column.read is None:
            values = self._seeds.get((label, column.name), [])
        else:
            read = [column.read(record) for record in self.records.get(label, ())]
            values = [value for value in read if value is not None]
        return spread(values) if values else None

    def interval(self, label: str, metric: str) -> Interval:
        """The 95% bootstrap interval over test points."""
        return self._of(metric, label).interval((label, metric))

    def contrast(self, metric: str, weights: Mapping[str, float], margin: float = 0.0) -> Comparison:
        """A weighted sum of rows, less a margin, against 0, all on the same resamples."""
        return self._of(metric, *weights).contrast({(label, metric): w for label, w in weights.items()}, margin)

    def _of(self, metric: str, *labels: str) -> _Paired:
        return next(pair for pair in self._bootstraps if all((label, metric) in pair.places for label in labels))


class _Paired:
    """A bootstrap over named scores. A column of ones comes along, against which margins are held."""

    def __init__(self, scores: Mapping[tuple[str, str], PointScores], resamples: int) -> None:
        self.places = {key: place for place, key in enumerate(scores)}
        if scores:
            some = next(iter(scores.values()))
            one_percent = PointScores(some.metric, np.full(len(some), 0.01))
            self._bootstrap = Bootstrap([*scores.values(), one_percent], resamples)

    def interval(self, key: tuple[str, str]) -> Interval:
        return self._bootstrap.interval(self.places[key])

    def contrast(self, weights: Mapping[tuple[str, str], float], margin: float) -> Comparison:
        vector = np.zeros(len(self.places) + 1)
        for key, weight in weights.items():
            vector[self.places[key]] += weight
        vector[-1] = -margin
        return self._bootstrap.contrast(vector.tolist())
