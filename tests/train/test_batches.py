"""Batches compared with Python's sets and dictionaries."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.train.toys import random_matrix
from xcbench.data import Split
from xcbench.kernels.csr import SparseRows
from xcbench.train import Candidates, Points, learnable, targets_of


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 5), st.booleans(), st.integers(0, 999))
def test_shortlists_are_the_members_of_the_groups(points, labels, group_count, with_positives, seed):
    rng = np.random.default_rng(seed)
    Y = random_matrix(points, labels, 0.4, seed)
    members = random_matrix(group_count, labels, 0.5, seed + 1)
    groups = rng.integers(-1, group_count, (points, 3)).astype(np.int32)
    rows = rng.integers(0, points, 4)  # with repetitions, and more than there may be points
    data = Points(random_matrix(points, 5, 0.5, 0), Y, Candidates(groups, SparseRows.of(members), with_positives))
    batch = data.cut(rows)
    entries = batch.shortlists.entries
    union = batch.shortlists.labels
    everything = set()
    for i, row in enumerate(rows):
        expected = {int(label) for group in groups[row] if group >= 0 for label in members[[group]].indices}
        expected |= {int(label) for label in Y[[row]].indices} if with_positives else set()
        here = slice(entries.indptr[i], entries.indptr[i + 1])
        listed = union[entries.indices[here]].tolist()
        assert sorted(listed) == sorted(expected)
        assert entries.data[here].tolist() == [Y[row, label] for label in listed]
        everything |= expected
    assert union.tolist() == sorted(everything)


def test_ignored_pairs_are_no_candidates_even_among_positives():
    """Point 0 ignores label 2, which no other point has as a candidate; point 1 ignores label 1."""
    nan = np.nan
    Y = sp.csr_array(np.array([[1, 0, nan, 0], [0, nan, 0, 1]], np.float32))
    groups = np.array([[0, 1], [0, -1]], np.int32)
    members = sp.csr_array(np.array([[1, 1, 0, 0], [0, 0, 1, 1]]))
    X = sp.csr_array(np.ones((2, 1), np.float32))
    shortlists = Points(X, Y, Candidates(groups, SparseRows.of(members), True)).cut(np.array([0, 1])).shortlists
    assert shortlists.labels.tolist() == [0, 1, 3]
    listed = [shortlists.labels[shortlists.entries.indices[a:b]].tolist() for a, b in ((0, 3), (3, 5))]
    assert shortlists.entries.indptr.tolist() == [0, 3, 5]
    assert listed == [[0, 1, 3], [3, 0]]
    assert shortlists.entries.data.tolist() == [1, 0, 0, 1, 0]


def test_points_without_features_or_labels_are_left_out_and_ignored_pairs_follow_their_points():
    X = sp.csr_array(np.array([[1, 0], [0, 0], [0, 1], [1, 1]], np.float32))
    Y = sp.csr_array(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32))
    part = learnable(Split(X, Y, ignored=np.array([[0, 1], [2, 0], [3, 1]])))
    assert part.ignored.tolist() == [[0, 0], [1, 1]]
    np.testing.assert_array_equal(targets_of(part).toarray(), [[np.nan, 1, 0], [0, np.nan, 1]])
    assert targets_of(Split(X, Y)) is Y


def test_random_labels_join_and_follow_the_key():
    nothing = np.full((50, 1), -1, np.int32)
    data = Points(
        sp.csr_array((50, 3), dtype=np.float32),
        sp.csr_array((50, 40), dtype=np.float32),
        Candidates.of_labels(nothing, 40, random=8),
    )
    drawn = [data.cut(np.arange(50), key).shortlists for key in (1, 1, 2)]
    assert np.array_equal(drawn[0].entries.indices, drawn[1].entries.indices)
    assert not np.array_equal(drawn[0].entries.indices, drawn[2].entries.indices)
    sizes = np.diff(drawn[0].entries.indptr)
    assert sizes.max() <= 8
    assert sizes.mean() > 6  # 40 (1 - (1 - 1/40)^8) = 7.3 different ones are expected
    assert len(drawn[0].labels) == 40


def test_sparse_and_dense_features_are_cut():
    X = random_matrix(9, 4, 0.5, 0)
    Y = random_matrix(9, 3, 0.5, 1)
    rows = np.array([7, 0, 7])
    sparse = Points(X, Y).cut(rows)
    taken = sp.csr_array((sparse.X.data, sparse.X.indices, sparse.X.indptr), shape=(3, 4))
    np.testing.assert_array_equal(taken.toarray(), X.toarray()[rows])
    assert torch.equal(Points(X.toarray(), Y).cut(rows).X, torch.from_numpy(X.toarray()[rows]))
    assert sparse.shortlists is None


def test_mismatched_parts_are_refused():
    with pytest.raises(ValueError, match="one row per point"):
        Points(random_matrix(9, 4, 0.5, 0), random_matrix(8, 3, 0.5, 1))
    with pytest.raises(ValueError, match="group numbers are -1"):
        Candidates.of_labels(np.array([[5]], np.int32), label_count=5)
    with pytest.raises(ValueError, match="int32"):
        Candidates.of_labels(np.array([[1]]), label_count=5)
