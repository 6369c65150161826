import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.reference import random_case
from xcbench.errors import InputError
from xcbench.evaluation import contributions, evaluate, frequency_bins


def test_equal_volume_by_hand():
    """12 training pairs in 3 bins of 4: six tail labels, then two, then the head label alone."""
    frequency = np.array([4, 1, 0, 1, 2, 1, 2, 1, 0])
    assert frequency_bins(frequency, 3).tolist() == [2, 0, 0, 0, 1, 0, 1, 0, 0]


def test_labels_of_one_frequency_share_a_bin():
    """16 pairs in 4 bins of 4, were it not for ties: two pairs of ones, six of twos, then a three and a five."""
    assert frequency_bins(np.array([2, 1, 2, 5, 1, 2, 3]), 4).tolist() == [1, 0, 1, 3, 0, 1, 2]


def test_deciles_hold_equally_many_labels():
    bins = frequency_bins(np.arange(100)[::-1], 10, equal="labels")
    assert np.bincount(bins).tolist() == [10] * 10
    assert bins[0] == 9  # the most frequent label is in the last decile
    assert bins[99] == 0


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=60),
    st.integers(1, 12),
    st.sampled_from(["volume", "labels"]),
)
@settings(deadline=None)
def test_bins_rise_with_frequency_and_stay_in_range(frequency, count, equal):
    frequency = np.array(frequency)
    bins = frequency_bins(frequency, count, equal)
    assert bins.min() >= 0
    assert bins.max() < count
    rising = bins[np.argsort(frequency, kind="stable")]
    assert (np.diff(rising) >= 0).all()


@given(st.integers(2, 8), st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_no_bin_is_off_by_more_than_the_largest_group_of_equal_labels(count, seed):
    frequency = np.random.default_rng(seed).zipf(1.8, 300).clip(max=200)
    bins = frequency_bins(frequency, count)
    volume = np.bincount(bins, frequency, count)
    values, labels = np.unique(frequency, return_counts=True)
    assert np.abs(volume - frequency.sum() / count).max() <= (values * labels).max()
    for value in values:
        assert len(np.unique(bins[frequency == value])) == 1


@pytest.mark.parametrize("metric", ["P@5", "nDCG@3", "R@10", "PSP@3", "PSnDCG@5", "PSR@2"])
def test_contributions_add_up_to_the_metric(metric):
    rng = np.random.default_rng(0)
    case = random_case(rng, 80, 40, k=10)
    evaluation = evaluate(case.top_k(), case.judge(), [metric])
    bins = frequency_bins(rng.integers(0, 9, 40), 5)
    parts = contributions(evaluation, metric, bins, 5)
    assert sum(part.value for part in parts) == pytest.approx(evaluation.values()[metric])
    assert sum(part.value > 0 for part in parts) > 1


def test_one_bin_counts_only_its_own_labels():
    case = random_case(np.random.default_rng(1), 80, 40, k=10)
    evaluation = evaluate(case.top_k(), case.judge(), ["P@5"])
    only = evaluation.per_point("P@5", np.arange(40) == 7)
    hits = [7 in row[:5] and 7 in truth for row, truth in zip(case.ranked, case.relevant, strict=True)]
    assert only.numerator == pytest.approx(np.array(hits) / 5)


def test_coverage_has_no_contributions():
    case = random_case(np.random.default_rng(1), 5, 4, k=3)
    with pytest.raises(InputError, match="not a sum over hits"):
        evaluate(case.top_k(), case.judge(), []).per_point("C@3", np.ones(4, bool))


def test_no_bins_are_refused():
    with pytest.raises(InputError, match="at least one bin"):
        frequency_bins(np.ones(3), 0)
