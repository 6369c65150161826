"""The random-walk graph against exact visit probabilities, and what is promised of its rows."""

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.labels.problems import label_matrix
from xcbench.data.matrices import unit_vectors
from xcbench.errors import InputError
from xcbench.labels import random_walk_graph


def expected_visits(Y, walk_length, restart):
    """E[visits] of every label from every label, by powers of the one-step transition matrix."""
    Y = Y.toarray()
    step = (Y / np.maximum(Y.sum(0), 1)).T @ (Y / np.maximum(Y.sum(1, keepdims=True), 1))
    at = step.copy()  # the first step starts at home in any case
    total = at.copy()
    for _ in range(walk_length - 1):
        at = restart * step + (1 - restart) * at @ step
        total += at
    return total


@pytest.mark.parametrize(("walk_length", "restart"), [(400, 0.8), (400, 0.2), (50, 0.0), (3, 1.0)])
def test_visits_follow_the_exact_probabilities(walk_length, restart):
    Y = label_matrix(np.random.default_rng(0), 40, 12)
    runs = 200
    graphs = [random_walk_graph(Y, walk_length, restart, top=None, seed=seed).toarray() for seed in range(runs)]
    mean, expected = np.mean(graphs, axis=0), expected_visits(Y, walk_length, restart)
    # The diagonal is at least 1 by decree, which shows where a walk seldom comes home.
    seen = ~np.eye(12, dtype=bool) | (expected > 20)
    error = np.std(graphs, axis=0) / np.sqrt(runs)
    assert np.all(np.abs(mean - expected)[seen] <= 5 * error[seen] + 1e-6)
    assert np.all((mean > 0) <= (expected > 0) | np.eye(12, dtype=bool))


def test_a_walk_has_its_length():
    Y = sp.csr_array(np.ones((5, 6), np.float32))
    graph = random_walk_graph(Y, walk_length=123, top=None)
    assert np.array_equal(graph.sum(axis=1), np.full(6, 123))


def test_rows_keep_the_largest_counts_and_the_diagonal():
    Y = label_matrix(np.random.default_rng(1), 60, 30, mean=8)
    whole, cut = (random_walk_graph(Y, 100, 0.1, top=top, seed=7).toarray() for top in (None, 4))
    for label in range(30):
        order = np.lexsort((np.arange(30), -whole[label]))[:4]
        kept = np.union1d(order[whole[label][order] > 0], label)
        assert np.array_equal(np.flatnonzero(cut[label]), kept)
        assert np.array_equal(cut[label][kept], whole[label][kept])


def test_heads_and_labels_without_points_keep_a_self_loop():
    rng = np.random.default_rng(2)
    Y = label_matrix(rng, 50, 20).toarray()
    Y[:, 3] = 1
    Y[:, 5] = 0
    graph = random_walk_graph(sp.csr_array(Y), head_threshold=40, top=None).toarray()
    for alone in (3, 5):
        assert np.array_equal(graph[alone], np.eye(20)[alone])
        assert np.array_equal(graph[:, alone], np.eye(20)[alone])
    without = np.delete(np.delete(graph, [3, 5], 0), [3, 5], 1)
    expected = expected_visits(sp.csr_array(np.delete(Y, [3, 5], 1)), 400, 0.8)
    assert np.all((without > 0) <= (expected > 0) | np.eye(18, dtype=bool))


def test_no_threshold_means_no_heads_and_zero_means_all():
    Y = sp.csr_array(np.ones((600, 2), np.float32))
    assert random_walk_graph(Y, head_threshold=None).nnz == 4
    assert np.array_equal(random_walk_graph(Y).toarray(), np.eye(2))
    assert np.array_equal(random_walk_graph(Y[:3], head_threshold=0).toarray(), np.eye(2))


def test_distant_labels_are_forgotten_before_the_cut():
    rng = np.random.default_rng(3)
    Y, vectors = label_matrix(rng, 60, 25, mean=8), rng.standard_normal((25, 6)).astype(np.float32)
    vectors[4] = 0  # no text: at distance 1 from all, which the default limit still allows
    whole = random_walk_graph(Y, top=None, seed=5).toarray()
    near = unit_vectors(vectors) @ unit_vectors(vectors).T >= 0
    pruned = random_walk_graph(Y, top=None, seed=5, label_vectors=vectors).toarray()
    assert np.array_equal(pruned, np.where(near | np.eye(25, dtype=bool), whole, 0))
    assert pruned[4].sum() == 400


@pytest.mark.parametrize("points", [1, 5, 30])
@pytest.mark.parametrize("labels", [1, 2, 50])
def test_any_size_works(points, labels):
    graph = random_walk_graph(label_matrix(np.random.default_rng(points), points, labels, 1))
    assert graph.shape == (labels, labels)
    assert graph.dtype == np.float32
    assert np.all(graph.diagonal() >= 1)
    graph.check_format()


def test_targets_count_from_one_half_on_and_others_not_at_all():
    rng = np.random.default_rng(4)
    Y = label_matrix(rng, 40, 15)
    soft = Y.copy()
    soft.data = rng.random(soft.nnz).astype(np.float32) + np.float32(0.5)
    weak = (soft + label_matrix(rng, 40, 15)).tocsr()
    weak.data[~np.isin(_flat(weak), _flat(soft))] = 0.4
    expected = random_walk_graph(Y, seed=9).toarray()
    assert np.array_equal(random_walk_graph(soft, seed=9).toarray(), expected)
    assert np.array_equal(random_walk_graph(weak, seed=9).toarray(), expected)


def _flat(matrix):
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows * matrix.shape[1] + matrix.indices


@given(st.integers(0, 2**63), st.integers(1, 60))
@settings(deadline=None, max_examples=20)
def test_neither_threads_nor_blocks_change_the_graph(seed, labels):
    Y = label_matrix(np.random.default_rng(labels), 80, labels)
    graphs = []
    with pytest.MonkeyPatch.context() as patch:
        for threads, block in ((1, 1 << 20), (2, 1 << 20), (2, 7)):
            patch.setattr("xcbench.labels.walk.LABELS_IN_A_BLOCK", block)
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
            graphs.append(random_walk_graph(Y, 50, seed=seed).toarray())
    assert np.array_equal(graphs[0], graphs[1])
    assert np.array_equal(graphs[0], graphs[2])


def test_seeds_differ():
    Y = label_matrix(np.random.default_rng(5), 80, 40)
    assert np.any(random_walk_graph(Y, seed=0).toarray() != random_walk_graph(Y, seed=1).toarray())


@pytest.mark.parametrize("wrong", [{"walk_length": 0}, {"restart": 1.5}, {"restart": -0.1}])
def test_impossible_walks_are_refused(wrong):
    with pytest.raises(InputError, match="walk"):
        random_walk_graph(sp.csr_array(np.ones((2, 2), np.float32)), **wrong)


def test_vectors_of_other_labels_are_refused():
    with pytest.raises(InputError, match="2 labels needs as many vectors"):
        random_walk_graph(sp.csr_array(np.ones((2, 2), np.float32)), label_vectors=np.ones((3, 4), np.float32))
