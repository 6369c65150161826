"""Blends, recall by length, and the memory that a prediction asks for."""

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shortlist.reference import best, dense
from xcbench.data import TopK
from xcbench.errors import InputError, XCBenchError
from xcbench.shortlist import blend, divide_by_best, prediction_memory, recall_curve, search_memory


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(0, 6),
    L=st.integers(1, 30),
    widths=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    k=st.integers(1, 40),
    seed=st.integers(0, 2**31),
)
def test_a_blend_is_the_dense_sum(n, L, widths, k, seed):
    rng = np.random.default_rng(seed)
    members = [best(rng.random((n, L)).astype(np.float32), min(width, L)).padded(width) for width in widths]
    weights = rng.random(len(members))
    listed = sum(dense(m, L, missing=-1) >= 0 for m in members) > 0
    for chosen, total in (
        (None, sum(dense(m, L) for m in members) / len(members)),
        (weights, sum(w * dense(m, L) for w, m in zip(weights, members, strict=True))),
    ):
        found = blend(members, k, chosen)
        expected = best(np.where(listed, total, -np.inf).astype(np.float32), k)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
        np.testing.assert_allclose(dense(found, L), dense(expected, L), rtol=1e-5, atol=1e-7)


def test_a_label_that_a_member_misses_counts_zero_there():
    first = TopK(
        np.array([[1, 2, -1], [0, -1, -1]], np.int32),
        np.array([[0.8, 0.4, -np.inf], [0.5] + [-np.inf] * 2], np.float32),
    )
    second = TopK(
        np.array([[2, 3, 4], [0, -1, -1]], np.int32), np.array([[0.6, 0.2, 0], [0.1] + [-np.inf] * 2], np.float32)
    )
    mean = blend([first, second], 5)
    assert mean.indices.tolist() == [[2, 1, 3, 4, -1], [0, -1, -1, -1, -1]]
    np.testing.assert_allclose(mean.scores[0, :4], [0.5, 0.4, 0.1, 0], rtol=1e-6)
    np.testing.assert_allclose(mean.scores[1, 0], 0.3, rtol=1e-6)
    assert blend([first, second], 1).indices.tolist() == [[2], [0]]


@settings(deadline=None, max_examples=30)
@given(count=st.integers(1, 60), seed=st.integers(0, 2**31))
def test_the_mean_of_equal_members_is_each_of_them(count, seed):
    member = best(np.random.default_rng(seed).random((3, 8)).astype(np.float32), 5)
    mean = blend([member] * count, 5)
    np.testing.assert_array_equal(mean.indices, member.indices)
    np.testing.assert_array_equal(mean.scores, member.scores)


def test_members_must_predict_the_same_points():
    one, two = (TopK(np.zeros((n, 1), np.int32), np.ones((n, 1), np.float32)) for n in (1, 2))
    with pytest.raises(InputError, match="members of the same points"):
        blend([one, two], 1)
    with pytest.raises(InputError, match="a weight each"):
        blend([one, one], 1, weights=[1])


def test_scaled_by_the_best_where_that_is_above_nothing():
    found = divide_by_best(
        TopK(np.array([[1, 0], [2, -1], [0, 1]], np.int32), np.array([[4, 1], [0.5, -np.inf], [-1, -2]], np.float32))
    )
    np.testing.assert_array_equal(found.scores, np.array([[1, 0.25], [1, -np.inf], [-1, -2]], np.float32))


def test_recall_by_hand():
    """Three points: one found at once, one half and late, one without any truth."""
    shortlist = TopK(np.array([[2, 0, 1], [3, 1, -1], [0, 1, 2]], np.int32), np.zeros((3, 3), np.float32))
    truth = sp.csr_array(np.array([[0, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]], np.float32))
    np.testing.assert_allclose(recall_curve(shortlist, truth, [1, 2, 3]), [1 / 3, 1.5 / 3, 1.5 / 3])


def test_truth_may_be_soft_and_hold_zeros():
    shortlist = TopK(np.array([[0, 1]], np.int32), np.zeros((1, 2), np.float32))
    truth = sp.csr_array((np.array([0.5, 0.0], np.float32), np.array([1, 0]), np.array([0, 2])), shape=(1, 2))
    np.testing.assert_allclose(recall_curve(shortlist, truth, [1, 2]), [0, 1])
    assert truth.indices.tolist() == [1, 0]  # left as it was


def test_lengths_beyond_the_shortlist_are_refused():
    shortlist = TopK(np.zeros((1, 2), np.int32), np.zeros((1, 2), np.float32))
    with pytest.raises(InputError, match="from 1 to 2"):
        recall_curve(shortlist, sp.csr_array((1, 3)), [1, 3])
    with pytest.raises(InputError, match="1 points cannot be compared with the truth of 2 points"):
        recall_curve(shortlist, sp.csr_array((2, 3)), [1])


def test_a_prediction_that_cannot_fit_says_so_at_once():
    need = prediction_memory(10**9, 100, labels=10**9, clusters=2**17, dimension=512, beam=100)
    assert need["results"] == 8 * 10**9 * 100
    assert need["parameters"] > 4 * 10**9 * 512
    with pytest.raises(
        XCBenchError, match=r"^predicting needs .* GB \(.* parameters, .* results, .* blocks under way\)"
    ):
        need.require("predicting")
    search_memory(10, 5, 100).require("a small search")


def test_work_does_not_grow_with_points_or_labels():
    small, large = search_memory(10**5, 100, 10**5), search_memory(10**8, 100, 10**7)
    assert small["blocks under way"] == large["blocks under way"] < psutil.virtual_memory().total
    assert large["results"] == 1000 * small["results"]
