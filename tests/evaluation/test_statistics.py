"""Intervals and tests against what statistics says they must be."""

import itertools

import numpy as np
import pytest

from tests.evaluation.reference import random_case
from xcbench.errors import InputError
from xcbench.evaluation import (
    Bootstrap,
    PointScores,
    compare,
    evaluate,
    holm,
    parse_metric,
    sign_flip_test,
    spread,
    tie_group,
)

MEAN, RATIO, LABELS = parse_metric("P@1"), parse_metric("PSP@1"), parse_metric("C@1")


def bernoulli(rng, share, n=2000):
    return PointScores(MEAN, (rng.random(n) < share).astype(float))


def ratio_pair(rng, n=2000, better=0.0):
    """Two runs under one ideal, as PSP has them; the second collects `better` more of it."""
    ideal = rng.gamma(2, 2, n)
    share = rng.random(n)
    return PointScores(RATIO, ideal * share, ideal), PointScores(RATIO, ideal * (share + better), ideal)


def test_the_interval_of_a_mean_is_what_the_central_limit_says():
    scores = bernoulli(np.random.default_rng(0), 0.3, n=4000)
    interval = Bootstrap([scores], 4000).interval(0)
    half = 1.96 * 100 * scores.numerator.std() / np.sqrt(4000)
    assert interval.value == pytest.approx(100 * scores.numerator.mean())
    assert interval.low == pytest.approx(interval.value - half, abs=0.1)
    assert interval.high == pytest.approx(interval.value + half, abs=0.1)


def test_the_interval_of_a_ratio_resamples_both_parts_together():
    """The delta method knows the answer; resampling the numerator alone would be far too wide."""
    scores, _ = ratio_pair(np.random.default_rng(1), n=4000)
    interval = Bootstrap([scores], 4000).interval(0)
    value = scores.numerator.sum() / scores.denominator.sum()
    residual = (scores.numerator - value * scores.denominator) / scores.denominator.mean()
    half = 1.96 * 100 * residual.std() / np.sqrt(4000)
    assert interval.high - interval.low == pytest.approx(2 * half, rel=0.08)
    assert 100 * scores.numerator.std() / scores.denominator.mean() > 1.3 * 100 * residual.std()


def test_small_cases_equal_full_enumeration():
    """Three points have 27 resamples; the bootstrap must show each with its probability."""
    scores = PointScores(RATIO, np.array([1.0, 0.0, 2.0]), np.array([1.0, 2.0, 4.0]))
    draws = Bootstrap([scores], 20_000).draws[:, 0].round(6)
    exact = [
        round(100 * scores.numerator[list(p)].sum() / scores.denominator[list(p)].sum(), 6)
        for p in itertools.product(range(3), repeat=3)
    ]
    for value in set(exact):
        assert (draws == value).mean() == pytest.approx(exact.count(value) / 27, abs=0.015)


def test_many_points_in_groups_give_the_interval_of_the_points(monkeypatch):
    rng = np.random.default_rng(2)
    scores = [bernoulli(rng, 0.3, n=6001), ratio_pair(rng, n=6001)[0]]
    exact = Bootstrap(scores, 4000)
    monkeypatch.setattr("xcbench.evaluation.statistics.MAX_UNITS", 1000)
    grouped = Bootstrap(scores, 4000)
    assert grouped.columns.shape == (2, 1000, 2)
    np.testing.assert_allclose(grouped.draws.std(axis=0), exact.draws.std(axis=0), rtol=0.08)
    np.testing.assert_allclose(grouped.draws.mean(axis=0), exact.values, atol=0.1)


def test_the_seed_decides_everything_and_the_company_nothing():
    rng = np.random.default_rng(3)
    a, b = bernoulli(rng, 0.3), bernoulli(rng, 0.4)
    np.testing.assert_allclose(Bootstrap([a], 50, seed=1).draws, Bootstrap([a, b], 50, seed=1).draws[:, :1])
    assert (Bootstrap([a], 50, seed=1).draws != Bootstrap([a], 50, seed=2).draws).any()


@pytest.mark.parametrize("ratio", [False, True])
def test_a_real_difference_is_found(ratio):
    rng = np.random.default_rng(4)
    run, other = reversed(ratio_pair(rng, better=0.03)) if ratio else (bernoulli(rng, 0.4), bernoulli(rng, 0.3))
    found = compare(run, other, resamples=2000)
    assert found.difference == pytest.approx(run.value - other.value)
    assert 0 < found.low < found.difference < found.high
    assert found.p_value == pytest.approx(2 / 2001)
    assert sign_flip_test(run, other, resamples=2000) == pytest.approx(1 / 2001)
    turned = compare(other, run, resamples=2000)
    assert turned.difference == -found.difference
    assert turned.p_value == found.p_value


def test_pairing_finds_what_two_separate_intervals_would_not():
    rng = np.random.default_rng(5)
    base = (rng.random(1000) < 0.5).astype(float)
    better = base.copy()
    better[np.flatnonzero(base == 0)[:12]] = 1
    run, other = PointScores(MEAN, better), PointScores(MEAN, base)
    assert compare(run, other, resamples=2000).p_value < 0.01
    assert Bootstrap([run], 2000).interval(0).low < other.value


def test_without_a_difference_both_tests_err_as_often_as_they_say():
    rng = np.random.default_rng(6)
    bootstrapped, flipped = [], []
    for _ in range(150):
        run, other = bernoulli(rng, 0.4, n=150), bernoulli(rng, 0.4, n=150)
        bootstrapped.append(compare(run, other, resamples=300).p_value)
        flipped.append(sign_flip_test(run, other, resamples=300))
    for p_values in (np.array(bootstrapped), np.array(flipped)):
        assert 0.005 < (p_values < 0.1).mean() < 0.2
        assert 0.35 < p_values.mean() < 0.65
    assert np.corrcoef(bootstrapped, flipped)[0, 1] > 0.95


def test_sign_flips_equal_full_enumeration():
    rng = np.random.default_rng(7)
    ideal = rng.random(8) + 0.5
    run, other = (PointScores(RATIO, ideal * rng.random(8), ideal) for _ in range(2))
    gap = (run.numerator - other.numerator) / ideal.sum()
    exact = [abs(np.dot(signs, gap)) for signs in itertools.product((1, -1), repeat=8)]
    expected = np.mean(np.array(exact) >= abs(gap.sum()) - 1e-12)
    assert sign_flip_test(run, other, resamples=20_000) == pytest.approx(expected, abs=0.015)


def test_equal_runs_do_not_differ():
    run = bernoulli(np.random.default_rng(8), 0.4)
    same = compare(run, PointScores(MEAN, run.numerator.copy()), resamples=200)
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    assert sign_flip_test(run, run, resamples=200) == 1


@pytest.mark.parametrize(("telling", "least"), [(1, 1.0), (2, 0.5), (5, 0.0625), (8, 0.0078125)])
def test_a_handful_of_points_proves_nothing(telling, least):
    """All of them speak for the run, so no resample turns around; yet a coin would do the same every so often."""
    run, other = np.ones(telling + 3), np.ones(telling + 3)
    other[:telling] = 0
    found = compare(PointScores(MEAN, run), PointScores(MEAN, other), resamples=3000)
    assert found.p_value >= least
    assert compare(PointScores(MEAN, run[:telling]), PointScores(MEAN, other[:telling])).p_value == least


def test_a_contrast_of_two_gains():
    """Does the second pair gain more than the first? (d - c) - (b - a)."""
    rng = np.random.default_rng(9)
    a, b, c, d = (bernoulli(rng, share, n=4000) for share in (0.2, 0.25, 0.3, 0.45))
    found = Bootstrap([a, b, c, d], 2000).contrast((1, -1, -1, 1))
    assert found.difference == pytest.approx(d.value - c.value - b.value + a.value)
    assert found.low > 0
    assert found.p_value < 0.01
    none = Bootstrap([a, b, a, b], 500).contrast((1, -1, -1, 1))
    assert (none.difference, none.p_value) == (pytest.approx(0), 1)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == pytest.approx([1, 1])
    assert holm([]) == []


def test_ties_with_the_best_are_named():
    rng = np.random.default_rng(10)
    best = bernoulli(rng, 0.4, n=3000)
    near = PointScores(MEAN, best.numerator.copy())
    near.numerator[np.flatnonzero(best.numerator)[:2]] = 0
    group = tie_group({"far": bernoulli(rng, 0.2, n=3000), "near": near, "best": best}, resamples=2000)
    assert group.best == "best"
    assert group.tied == ("near", "best")
    assert group.p_values["best"] == 1
    assert group.p_values["far"] == pytest.approx(2 * 2 / 2001)  # the smallest of two, corrected for two
    assert tie_group({"alone": best}, resamples=10).tied == ("alone",)


def test_spread_over_seeds():
    assert spread([1.0, 2.0, 4.0]).mean == pytest.approx(7 / 3)
    assert spread([1.0, 2.0, 4.0]).deviation == pytest.approx(np.sqrt(7 / 3))
    assert (spread([5.0]).mean, spread([5.0]).deviation, spread([5.0]).count) == (5.0, None, 1)


def test_runs_over_seeds_average_point_by_point():
    case, other = (random_case(np.random.default_rng(11), 30, 20, k=6) for _ in range(2))
    rng = np.random.default_rng(12)
    other.scores = [{label: rng.random() for label in row} for row in case.scores]
    for name in ("P@3", "PSP@3"):
        runs = [evaluate(c.top_k(), c.judge(), [name]).per_point(name) for c in (case, other)]
        assert runs[0].value != runs[1].value
        assert PointScores.average(runs).value == pytest.approx((runs[0].value + runs[1].value) / 2)


def test_intervals_of_an_evaluation_contain_its_values():
    case = random_case(np.random.default_rng(13), 200, 40, k=10)
    evaluation = evaluate(case.top_k(), case.judge(), ["P@1", "C@3", "PSP@3", "Cpred@1", "MRR"])
    intervals = evaluation.intervals(resamples=500)
    assert list(intervals) == list(evaluation.values())
    for name, interval in intervals.items():
        assert interval.value == pytest.approx(evaluation.values()[name])
        assert interval.low < interval.value < interval.high
    assert evaluation.interval("PSP@3", resamples=500).low == pytest.approx(intervals["PSP@3"].low)
    narrow = evaluation.interval("P@1", level=0.5, resamples=500)
    assert intervals["P@1"].low < narrow.low < narrow.high < intervals["P@1"].high


def test_what_cannot_be_compared_is_refused():
    short, long = PointScores(MEAN, np.ones(3)), PointScores(MEAN, np.ones(4))
    labels = PointScores(LABELS, np.ones(3))
    for pair in ([short, long], [short, labels]):
        with pytest.raises(InputError, match="same points"):
            Bootstrap(pair)
    with pytest.raises(InputError, match="same points"):
        PointScores.average([short, long])
    with pytest.raises(InputError, match="same points"):
        sign_flip_test(short, long)
    with pytest.raises(InputError, match="between 0 and 1"):
        Bootstrap([short], 10).interval(0, level=95)
    with pytest.raises(InputError, match="at least one resample"):
        Bootstrap([short], 0)
