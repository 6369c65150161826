"""The figures behind a table: which runs exist, what their predictions are worth, and how sure that is.

Everything is computed from stored runs. All rows have the same test points, so every difference is paired. Rows of
several seeds are tested over points and seeds together; where one of them has a single seed, over points alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from xcbench.data import Dataset
from xcbench.data.catalog import dataset_names, load_dataset
from xcbench.errors import InputError
from xcbench.evaluation import Bootstrap, Comparison, Evaluation, Interval, PointScores, Spread, Truth, Unit, spread
from xcbench.evaluation.arrays import BoolArray
from xcbench.evaluation.seeds import contrast_over_seeds, interval_over_seeds
from xcbench.report.columns import Column
from xcbench.report.experiments import Row
from xcbench.runner.external import external_id
from xcbench.runner.resolve import ResolvedRun, resolve
from xcbench.runner.store import Record, Store

RESAMPLES = 10_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DatasetRuns:
    """One dataset and the records that a store has for it."""

    data: Dataset
    store: Store
    source: str
    """What loads the dataset: its name, or its path."""
    _resolved: dict[str, ResolvedRun] = field(default_factory=dict, compare=False, repr=False)
    """What rows mean, whatever their seed: to look that up anew for each seed costs more than all figures."""

    @classmethod
    def of(cls, dataset: str, store: Store) -> DatasetRuns:
        """Load a dataset.

        Parameters
        ----------
        dataset
            The name of a dataset, or the path of one.
        store
            Where its runs are, or will be.
        """
        data = _load_once(dataset)
        if dataset in dataset_names():
            return cls(data, store, dataset)
        return cls(data, store, str(Path(dataset).expanduser().absolute()))

    def run_id(self, row: Row, seed: int) -> str:
        """Return the id of a row's run on this dataset; an invalid row is an `InputError` that names it."""
        if row.added:
            return external_id(row.method, self.data.fingerprint, seed)
        spec = row.spec(self.source, seed)
        key = repr(replace(spec, seed=0))
        if key not in self._resolved:
            try:
                self._resolved[key] = resolve(spec, self.data)
            except InputError as error:
                raise InputError(f"row {row.label!r}: {error}") from error
        return replace(self._resolved[key], spec=spec).id

    def get(self, run_id: str) -> Record | None:
        """Return a record whose files can be read; one that is damaged costs a warning and counts as missing."""
        record = self.store.get(run_id)
        if record is None:
            return None
        try:
            _ = record.depth  # reads the files
        except InputError as error:
            _log.warning("skipping a damaged record: %s", error)
            return None
        return record

    def records(self, row: Row, seeds: Iterable[int]) -> dict[int, Record]:
        """Return the finished runs of a row, by seed."""
        result = {}
        for seed in seeds:
            record = self.get(self.run_id(row, seed))
            if record is not None:
                result[seed] = record
        return result


@lru_cache(maxsize=4)
def _load_once(name: str) -> Dataset:
    return load_dataset(name)


class ScoreTable:
    """Every figure of an experiment on one dataset, with intervals, spreads and paired tests.

    Parameters
    ----------
    data
        The dataset of the runs.
    records
        The runs of each row, by the row's label: one per seed.
    columns
        What to compute or to read from the records.
    resamples
        How many bootstrap resamples intervals and tests are taken from.
    """

    def __init__(
        self,
        data: Dataset,
        records: Mapping[str, Sequence[Record]],
        columns: Sequence[Column],
        resamples: int = RESAMPLES,
    ) -> None:
        self.records = records
        self._resamples = resamples
        self._by_seed: dict[tuple[str, str], list[PointScores]] = {}
        self._scores: dict[tuple[str, str], PointScores] = {}

        truth = Truth.of(data)
        metrics = [column.name for column in columns if column.is_metric]
        for label, records_of_row in records.items():
            answered = answered_metrics(records_of_row, metrics, data.label_count)
            if answered:
                evaluations = [record.evaluate(truth, answered) for record in records_of_row]
                self._add_row(label, evaluations, answered)

        # Scores over labels cannot share their resamples with scores over points.
        over_points = {key: scores for key, scores in self._scores.items() if scores.metric.family.unit is Unit.POINTS}
        over_labels = {key: scores for key, scores in self._scores.items() if scores.metric.family.unit is Unit.LABELS}
        self._bootstraps = [
            _PairedBootstrap(over_points, resamples),
            _PairedBootstrap(over_labels, resamples),
        ]

    def _add_row(
        self,
        label: str,
        evaluations: Sequence[Evaluation],
        metrics: Sequence[str],
    ) -> None:
        for metric in metrics:
            scores_by_seed = [evaluation.per_point(metric) for evaluation in evaluations]
            self._by_seed[label, metric] = scores_by_seed
            self._scores[label, metric] = PointScores.average(scores_by_seed)

    def has(self, label: str, metric: str) -> bool:
        """Return whether the row's runs answer this metric, so that it can be tested."""
        return (label, metric) in self._scores

    def spread(self, label: str, column: Column) -> Spread | None:
        """Return mean and deviation over seeds; None where there is no figure."""
        if column.value_of is None:
            values = [scores.value for scores in self._by_seed.get((label, column.name), [])]
        else:
            # Nobody here measured what the predictions of another program cost.
            measured = [record for record in self.records.get(label, ()) if not record.is_external]
            read = [column.value_of(record) for record in measured]
            values = [value for value in read if value is not None]
        if not values:
            return None
        return spread(values)

    def interval(self, label: str, metric: str) -> Interval:
        """Return the 95% interval: over points and seeds, or with one seed the bootstrap's over points."""
        if self.has_seeds([label], metric):
            return interval_over_seeds(self._by_seed[label, metric])
        return self._bootstrap([label], metric).interval((label, metric))

    def has_seeds(self, labels: Iterable[str], metric: str) -> bool:
        """Return whether each of these rows has several seeds, so that training noise is in intervals and tests."""
        return all(len(self._by_seed[label, metric]) > 1 for label in labels)

    def contrast(
        self,
        metric: str,
        weights: Mapping[str, float],
        margin: float = 0.0,
    ) -> Comparison:
        """Test a weighted sum of rows against a margin, paired over points.

        Parameters
        ----------
        metric
            The name of a metric that all these rows have.
        weights
            The weight of each row, by label: 1 and -1 for a difference of two rows.
        margin
            What is subtracted from the sum, in percentage points.
        """
        if self.has_seeds(weights, metric):
            rows = [self._by_seed[label, metric] for label in weights]
            return contrast_over_seeds(rows, list(weights.values()), margin)
        keyed = {(label, metric): weight for label, weight in weights.items()}
        return self._bootstrap(weights, metric).contrast(keyed, margin)

    def contrast_among(self, counted: BoolArray, metric: str, weights: Mapping[str, float]) -> Comparison:
        """Return a weighted sum of rows over some of the test points only.

        Parameters
        ----------
        counted
            [test points] Which ones.
        metric
            The name of a metric over points that all these rows have.
        weights
            The weight of each row, by label.
        """
        if self.has_seeds(weights, metric):
            rows = [[run.of_units(counted) for run in self._by_seed[label, metric]] for label in weights]
            return contrast_over_seeds(rows, list(weights.values()))
        scores = [self._scores[label, metric].of_units(counted) for label in weights]
        return Bootstrap(scores, self._resamples).contrast(list(weights.values()))

    def _bootstrap(self, labels: Iterable[str], metric: str) -> _PairedBootstrap:
        """Return the bootstrap that has this metric of all these rows."""
        keys = {(label, metric) for label in labels}
        return next(bootstrap for bootstrap in self._bootstraps if keys <= bootstrap.columns.keys())


def answered_metrics(
    records: Sequence[Record],
    metrics: Sequence[str],
    label_count: int,
) -> list[str]:
    """Return the metrics that all these runs keep enough places for; none if there are no runs.

    Predictions that were cut to fewer places than a metric looks at would only seem to answer it.

    Parameters
    ----------
    records
        The runs of one row.
    metrics
        Names of metrics.
    label_count
        How many labels the dataset has.
    """
    if not records:
        return []
    too_deep: set[str] = set()
    for record in records:
        too_deep.update(record.too_deep(metrics, label_count))
    return [name for name in metrics if name not in too_deep]


class _PairedBootstrap:
    """A bootstrap over named scores, with a column of ones from which margins are subtracted."""

    def __init__(self, scores: Mapping[tuple[str, str], PointScores], resamples: int) -> None:
        self.columns = {key: column for column, key in enumerate(scores)}
        if scores:
            example = next(iter(scores.values()))
            one_percent = PointScores(example.metric, np.full(len(example), 0.01))
            self._bootstrap = Bootstrap([*scores.values(), one_percent], resamples)

    def interval(self, key: tuple[str, str]) -> Interval:
        return self._bootstrap.interval(self.columns[key])

    def contrast(self, weights: Mapping[tuple[str, str], float], margin: float) -> Comparison:
        vector = np.zeros(len(self.columns) + 1)
        for key, weight in weights.items():
            vector[self.columns[key]] += weight
        vector[-1] = -margin
        return self._bootstrap.contrast(vector.tolist())
