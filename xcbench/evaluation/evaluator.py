"""`evaluate`: from predictions to metrics, with everything kept that intervals, tests and bins need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xcbench.data import Dataset, TopK
from xcbench.errors import InputError
from xcbench.evaluation.arrays import BoolArray
from xcbench.evaluation.hits import Hits, find_hits
from xcbench.evaluation.metric import Metric, Unit
from xcbench.evaluation.points import PointScores
from xcbench.evaluation.registry import DEFAULT_METRICS, parse_metric, parse_metrics
from xcbench.evaluation.statistics import Bootstrap, Interval
from xcbench.evaluation.truth import Truth


def evaluate(
    predictions: TopK,
    target: Dataset | Truth,
    metrics: Sequence[str | Metric] = DEFAULT_METRICS,
) -> Evaluation:
    """Score predictions for the test points of a dataset, or for any `Truth`.

    Filtered pairs count neither as truth nor as predictions: later predictions move up to their places. Points left
    without a true label count as zeros. Fewer than k predictions are fine; the missing ones are misses.

    Parameters
    ----------
    predictions
        The ranked labels of each test point.
    target
        The dataset, or the truth of its test points. A `Truth` made once can serve many evaluations.
    metrics
        Names such as `P@1` or `PSP@5`, or `Metric` objects.

    Returns
    -------
    Evaluation
        The metrics, their scores per point, and their intervals.
    """
    parsed = parse_metrics(metrics)
    truth = target if isinstance(target, Truth) else Truth.of(target)

    if any(metric.family.needs_propensities for metric in parsed):
        _ = truth.label_weights  # raises now, not after the work

    return Evaluation(parsed, truth, find_hits(predictions, truth))


@dataclass(frozen=True)
class Evaluation:
    """Where the hits are, and every metric that follows from it. All values are in percent.

    Parameters
    ----------
    metrics
        The metrics that `values` and `intervals` return.
    truth
        The true labels.
    hits
        The correct predictions.
    """

    metrics: tuple[Metric, ...]
    truth: Truth
    hits: Hits

    def values(self) -> dict[str, float]:
        """The requested metrics, by name."""
        values: dict[Metric, float] = {}
        families = dict.fromkeys(metric.family for metric in self.metrics)
        for family in families:
            same_family = [metric for metric in self.metrics if metric.family == family]
            places = [metric.places for metric in same_family]
            values |= zip(same_family, family.values(self.hits, self.truth, places), strict=True)

        return {str(metric): values[metric] for metric in self.metrics}

    def per_point(self, metric: str | Metric, counted: BoolArray | None = None) -> PointScores:
        """What each point adds to a metric.

        Parameters
        ----------
        metric
            Any metric, requested before or not.
        counted
            [L] If given, only hits of these labels count, while denominators stay whole: the contributions of a
            partition of the labels add up to the metric.
        """
        metric = parse_metric(metric)
        hits = self.hits
        if counted is not None:
            if not metric.family.is_sum_over_hits:
                raise InputError(f"{metric} is not a sum over hits, so labels do not contribute to it one by one")
            hits = hits.of_labels(counted)

        numerator, denominator = metric.family.unit_scores(hits, self.truth, metric.places)
        return PointScores(metric, numerator, denominator)

    def interval(
        self,
        metric: str | Metric,
        level: float = 0.95,
        resamples: int = 2000,
        seed: int = 0,
    ) -> Interval:
        """The bootstrap interval of one metric over test points (over labels, for a metric over labels).

        Parameters
        ----------
        metric
            Any metric, requested before or not.
        level
            The share of resamples that the interval holds.
        resamples
            How often the points are drawn anew.
        seed
            Where the random draws start.
        """
        bootstrap = Bootstrap([self.per_point(metric)], resamples, seed)
        return bootstrap.interval(0, level)

    def intervals(self, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> dict[str, Interval]:
        """The bootstrap intervals of all requested metrics, from shared resamples; parameters as in `interval`."""
        intervals: dict[Metric, Interval] = {}
        for unit in Unit:
            same_unit = [metric for metric in self.metrics if metric.family.unit is unit]
            if not same_unit:
                continue

            bootstrap = Bootstrap([self.per_point(metric) for metric in same_unit], resamples, seed)
            for column, metric in enumerate(same_unit):
                intervals[metric] = bootstrap.interval(column, level)

        return {str(metric): intervals[metric] for metric in self.metrics}
