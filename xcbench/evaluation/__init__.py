"""Metrics from predictions, never from a model: values, per-point scores, frequency bins, intervals, paired tests.

`evaluate(predictions, dataset, metrics)` is the door; docs/metrics.md has every definition. Imports only `data`.
"""

from xcbench.evaluation.bins import contributions, frequency_bins
from xcbench.evaluation.evaluator import Evaluation, evaluate
from xcbench.evaluation.metric import DEFAULT_METRICS, Metric, parse_metric, parse_metrics, places_needed
from xcbench.evaluation.points import PointScores
from xcbench.evaluation.statistics import (
    Bootstrap,
    Comparison,
    Interval,
    Spread,
    TieGroup,
    compare,
    holm,
    sign_flip_test,
    spread,
    tie_group,
)
from xcbench.evaluation.truth import Truth, inverse_propensity

__all__ = [
    "DEFAULT_METRICS",
    "Bootstrap",
    "Comparison",
    "Evaluation",
    "Interval",
    "Metric",
    "PointScores",
    "Spread",
    "TieGroup",
    "Truth",
    "compare",
    "contributions",
    "evaluate",
    "frequency_bins",
    "holm",
    "inverse_propensity",
    "parse_metric",
    "parse_metrics",
    "places_needed",
    "sign_flip_test",
    "spread",
    "tie_group",
]
