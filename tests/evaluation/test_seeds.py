"""Intervals over seeds and points: known answers where one part of the variance is all, and coverage where both are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from xcbench.errors import InputError
from xcbench.evaluation import PointScores, parse_metric
from xcbench.evaluation.seeds import contrast_over_seeds, interval_over_seeds

P1 = parse_metric("P@1")
PSP1 = parse_metric("PSP@1")


def runs(rows: np.ndarray) -> list[PointScores]:
    return [PointScores(P1, row) for row in rows]


def test_without_training_noise_it_is_the_t_interval_over_points():
    scores = np.random.default_rng(0).random(50)
    interval = interval_over_seeds(runs(np.stack([scores, scores, scores])))
    expected = stats.ttest_1samp(100 * scores, 0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), rel=1e-6)


def test_without_differences_of_points_it_is_the_t_interval_over_seeds():
    values = np.array([0.30, 0.34, 0.35])
    interval = interval_over_seeds(runs(np.repeat(values[:, None], 40, axis=1)))
    expected = stats.ttest_1samp(100 * values, 0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_points_are_paired_and_seeds_are_not():
    rng = np.random.default_rng(1)
    hardness = rng.random(200)
    ours = runs(np.stack([hardness + 0.01, hardness + 0.03]))
    theirs = runs(np.stack([hardness, hardness - 0.02]))
    result = contrast_over_seeds([ours, theirs], [1, -1])
    # The same points cancel; what is left is Welch's test of two seeds each.
    expected = stats.ttest_ind([1, 3], [0, -2], equal_var=False)
    assert result.difference == pytest.approx(3)
    assert result.p_value == pytest.approx(expected.pvalue)
    margin = contrast_over_seeds([ours, theirs], [1, -1], margin=1.0)
    assert (margin.difference, margin.low) == pytest.approx((2, result.low - 1))


def test_ratio_metrics_are_linearised():
    """Against the jackknife, which needs no formula."""
    rng = np.random.default_rng(2)
    denominator = 1 + rng.random(300)
    numerator = denominator * (rng.random(300) < 0.4)
    scores = PointScores(PSP1, numerator, denominator)
    interval = interval_over_seeds([scores, scores])
    left_out = (numerator.sum() - numerator) / (denominator.sum() - denominator)
    variance = 299 / 300 * ((left_out - left_out.mean()) ** 2).sum()
    half_width = 100 * np.sqrt(variance) * stats.t.ppf(0.975, 299)
    assert (interval.high - interval.low) / 2 == pytest.approx(half_width, rel=0.01)


def test_few_points_prove_nothing_and_nothing_is_no_difference():
    same = runs(np.zeros((3, 20)))
    other = np.zeros((3, 20))
    other[:, :2] = 1
    assert contrast_over_seeds([runs(other), same], [1, -1]).p_value >= 2.0**-19
    assert contrast_over_seeds([same, same], [1, -1]).p_value == 1
    with pytest.raises(InputError, match="two seeds"):
        interval_over_seeds(same[:1])


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_coverage(noise):
    """95% intervals of three seeds hold the truth at least 93 times in 100 (benchmarks/coverage.py: 2,000 trials)."""
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        chance = rng.beta(0.3, 0.7, 300) * (1 + noise * rng.normal(0, 0.09, (3, 1)))
        interval = interval_over_seeds(runs((rng.random((3, 300)) < chance).astype(float)))
        held += interval.low <= 30 <= interval.high
    assert held >= 0.93 * 400
