"""Metrics from predictions, never from a model: values, scores per point, frequency bins, intervals, paired tests.

Start at `evaluate(predictions, dataset, metrics)`; docs/reference/metrics.md has every definition. Each metric is one
object, listed in `registry`. This room may import `data` and `kernels`; `runner`, `report`, `cli` and methods
import it.
"""

from xcbench.evaluation.bins import contributions, frequency_bins
from xcbench.evaluation.decisions import evaluate_decisions
from xcbench.evaluation.evaluator import Evaluation, evaluate
from xcbench.evaluation.metric import Metric, MetricFamily, Unit
from xcbench.evaluation.points import PointScores
from xcbench.evaluation.registry import DEFAULT_METRICS, parse_metric, parse_metrics, places_needed
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
from xcbench.evaluation.thresholds import Goal, Thresholds, choose_thresholds
from xcbench.evaluation.truth import Truth, inverse_propensity

__all__ = [
    "DEFAULT_METRICS",
    "Bootstrap",
    "Comparison",
    "Evaluation",
    "Goal",
    "Interval",
    "Metric",
    "MetricFamily",
    "PointScores",
    "Spread",
    "Thresholds",
    "TieGroup",
    "Truth",
    "Unit",
    "choose_thresholds",
    "compare",
    "contributions",
    "evaluate",
    "evaluate_decisions",
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
