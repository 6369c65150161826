"""A new metric is one class, or one line in the registry; everything else follows from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.evaluation.reference import csr, random_case
from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.evaluation import MetricFamily, Truth, contributions, evaluate, frequency_bins, parse_metric, registry
from xcbench.evaluation.gains import GainMetric, Norm


@dataclass(frozen=True)
class HitRate(MetricFamily):
    """The share of points with a hit in the first k places."""

    def unit_scores(self, hits, truth, k):
        points = np.repeat(np.arange(len(truth)), np.diff(hits.indptr))
        hit_points = points[hits.place < k]
        return np.isin(np.arange(len(truth)), hit_points).astype(np.float64), None


@pytest.fixture
def registered(monkeypatch):
    """The metrics of this file, beside those there are."""
    toys = (HitRate("HitRate"), GainMetric("DCG", Norm.PLACES, discounted=True))
    monkeypatch.setattr(registry, "METRICS", (*registry.METRICS, *toys))


def four_points() -> tuple[TopK, Truth]:
    """Places of the hits: 1 and 3; 2; none; 3."""
    ranked = csr(
        [
            [(0, 0.9), (3, 0.8), (1, 0.7)],
            [(3, 0.9), (0, 0.8), (1, 0.7)],
            [(3, 0.9), (2, 0.8), (1, 0.7)],
            [(3, 0.9), (2, 0.8), (1, 0.7)],
        ],
        4,
    )
    truth = csr([[(0, 1), (1, 1)], [(0, 1)], [(0, 1)], [(1, 1)]], 4)
    return TopK.from_csr(ranked), Truth.of_matrix(truth)


@pytest.mark.usefixtures("registered")
def test_one_class_is_a_metric():
    predictions, truth = four_points()
    evaluation = evaluate(predictions, truth, ["P@1", "hitrate@1", "HitRate@2", "HitRate@3"])
    assert evaluation.values() == {"P@1": 25.0, "HitRate@1": 25.0, "HitRate@2": 50.0, "HitRate@3": 75.0}
    assert evaluation.per_point("HitRate@2").numerator.tolist() == [1, 1, 0, 0]

    interval = evaluation.intervals(resamples=500)["HitRate@2"]
    assert interval.value == 50
    assert (interval.low, interval.high) == (0, 100)


@pytest.mark.usefixtures("registered")
def test_one_line_is_a_metric():
    """A hit at place j is worth 1 / log2(j + 1), divided by k: (1 + 1/2, 1/log2(3), 0, 1/2) / 3."""
    predictions, truth = four_points()
    evaluation = evaluate(predictions, truth, ["DCG@1", "DCG@3"])
    expected = (1.5 + 1 / np.log2(3) + 0.5) / 3
    assert evaluation.values() == {"DCG@1": 25.0, "DCG@3": pytest.approx(100 * expected / 4)}


@pytest.mark.usefixtures("registered")
def test_what_a_metric_declares_is_heeded():
    assert parse_metric("hitrate@5") == HitRate("HitRate").at(5)
    with pytest.raises(InputError, match="needs a k, such as HitRate@5"):
        parse_metric("hitrate")
    with pytest.raises(InputError, match="did you mean HitRate@1"):
        parse_metric("hitrtae@1")

    case = random_case(np.random.default_rng(0), 40, 20, k=8)
    evaluation = evaluate(case.top_k(), case.judge(), ["DCG@3"])
    bins = frequency_bins(np.arange(20), 4)
    parts = contributions(evaluation, "DCG@3", bins, 4)
    assert sum(part.value for part in parts) == pytest.approx(evaluation.values()["DCG@3"])
    with pytest.raises(InputError, match="not a sum over hits"):
        contributions(evaluation, "HitRate@3", bins, 4)


def test_an_unregistered_metric_can_be_evaluated_too():
    predictions, truth = four_points()
    assert evaluate(predictions, truth, [HitRate("HitRate").at(2)]).values() == {"HitRate@2": 50.0}
