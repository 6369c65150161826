"""`evaluate`: from predictions to metrics, with everything kept that intervals, tests and bins need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcbench.data import Dataset, TopK
from xcbench.errors import InputError
from xcbench.evaluation.gains import RankedGains, achieved_gains, ideal_gains
from xcbench.evaluation.hits import NEVER, Hits, find_hits
from xcbench.evaluation.metric import (
    COVERAGE,
    DEFAULT_METRICS,
    GAIN_FAMILIES,
    RECIPROCAL_RANK,
    Metric,
    parse_metric,
    parse_metrics,
)
from xcbench.evaluation.points import PointScores
from xcbench.evaluation.statistics import Bootstrap, Interval
from xcbench.evaluation.truth import Truth

POINTS_AT_ONCE = 8192


def evaluate(predictions: TopK, target: Dataset | Truth, metrics: Sequence[str] = DEFAULT_METRICS) -> Evaluation:
    """ScoreTable predictions for the test points of a dataset (or for any `Truth`).

    Filtered pairs count neither as truth nor as predictions: what stands behind them moves up. Points left without a
    true label count as zeros. Fewer than k predictions are fine, the missing ones are misses.
    """
    wanted = parse_metrics(metrics)
    truth = target if isinstance(target, Truth) else Truth.of(target)
    if any(metric.needs_propensity for metric in wanted):
        _ = truth.label_weights  # refuses now rather than after the work
    return Evaluation(wanted, truth, find_hits(predictions, truth))


@dataclass(frozen=True)
class Evaluation:
    """Where the hits are, and every metric that follows from it. All values are in percent."""

    metrics: tuple[Metric, ...]
    truth: Truth
    hits: Hits

    def values(self) -> dict[str, float]:
        """The metrics asked for, by name."""
        found: dict[Metric, float] = {}
        for family in dict.fromkeys(metric.family for metric in self.metrics):
            of_family = [metric for metric in self.metrics if metric.family == family]
            if family in GAIN_FAMILIES:
                found |= zip(of_family, self._family_values(family, [m.k or 0 for m in of_family]), strict=True)
            else:
                found |= {metric: self.per_point(metric).value for metric in of_family}
        return {str(metric): found[metric] for metric in self.metrics}

    def per_point(self, metric: str | Metric, counted: npt.NDArray[np.bool_] | None = None) -> PointScores:
        """What each point adds to a metric (any metric, also one not asked for before).

        With `counted` [L], only hits of those labels are worth anything, while the denominators stay whole: the
        contributions of a partition of the labels add up to the metric.
        """
        metric = parse_metric(metric) if isinstance(metric, str) else metric
        if metric.gains is None:
            if counted is not None:
                raise InputError(f"{metric} is not a sum over hits, so labels do not contribute to it one by one")
            return self._reciprocal_rank(metric) if metric.family == RECIPROCAL_RANK else self._coverage(metric)
        assert metric.k is not None
        ideal = ideal_gains(self.truth, metric.gains)
        numerator = achieved_gains(self.hits, self.truth, metric.gains, counted).within([metric.k])[:, 0]
        return PointScores(metric, numerator, None if ideal is None else ideal.within([metric.k])[:, 0])

    def interval(self, metric: str | Metric, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
        """The bootstrap interval of one metric over test points (over labels, for coverage)."""
        return Bootstrap([self.per_point(metric)], resamples, seed).interval(0, level)

    def intervals(self, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> dict[str, Interval]:
        """The bootstrap intervals of all metrics asked for, from shared resamples."""
        found: dict[Metric, Interval] = {}
        for over_labels in (False, True):
            group = [metric for metric in self.metrics if metric.is_coverage is over_labels]
            if group:
                bootstrap = Bootstrap([self.per_point(metric) for metric in group], resamples, seed)
                found |= {metric: bootstrap.interval(column, level) for column, metric in enumerate(group)}
        return {str(metric): found[metric] for metric in self.metrics}

    def _family_values(self, family: str, ks: Sequence[int]) -> list[float]:
        """Means over points for many k at once; blocks of points keep the [points, ks] table out of memory."""
        ascending = sorted(set(ks))
        gains = GAIN_FAMILIES[family]
        total = self._total(achieved_gains(self.hits, self.truth, gains), ascending)
        ideal = ideal_gains(self.truth, gains)
        whole = np.full(len(ascending), float(len(self.truth))) if ideal is None else self._total(ideal, ascending)
        percent = dict(zip(ascending, 100 * total / np.where(whole > 0, whole, 1), strict=True))
        return [float(percent[k]) for k in ks]

    def _total(self, gains: RankedGains, ks: Sequence[int]) -> npt.NDArray[np.float64]:
        starts = range(0, len(self.truth), POINTS_AT_ONCE)
        blocks = (gains.within(ks, start, min(start + POINTS_AT_ONCE, len(self.truth))) for start in starts)
        return np.asarray(np.sum([block.sum(axis=0) for block in blocks], axis=0))

    def _reciprocal_rank(self, metric: Metric) -> PointScores:
        reciprocal = np.zeros(len(self.truth))
        some = np.diff(self.hits.indptr) > 0
        best = self.hits.place[self.hits.indptr[:-1][some]] + 1.0
        reciprocal[some] = np.where(best <= (metric.k or np.inf), 1 / best, 0)
        return PointScores(metric, reciprocal)

    def _coverage(self, metric: Metric) -> PointScores:
        assert metric.k is not None
        first = self.hits.first_prediction
        if metric.family == COVERAGE:
            first = np.full(self.truth.label_count, NEVER, np.int32)
            np.minimum.at(first, self.hits.label, self.hits.place)
        with_positives = np.bincount(self.truth.positives.indices, minlength=self.truth.label_count) > 0
        return PointScores(metric, (first[with_positives] < metric.k).astype(np.float64))
