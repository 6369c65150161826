"""Graphs read off Y, their cuts and foldings, against dense arithmetic."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.labels.problems import label_matrix
from xcbench.errors import InputError
from xcbench.kernels.sparse_product import keep_top, product
from xcbench.labels import Clustering, cluster_graph, conditional_probabilities, cooccurrence, prune_by_cosine


def top_of(row, top):
    """The ids of the largest nonzero entries; the smaller id first among equals."""
    order = np.lexsort((np.arange(len(row)), -row))
    return [int(i) for i in order if row[i] != 0][:top]


@given(st.integers(0, 1000), st.integers(1, 12), st.sampled_from([1, 20, 1 << 20]))
@settings(deadline=None, max_examples=30)
def test_product_cuts_rows_as_it_makes_them(seed, top, block):
    rng = np.random.default_rng(seed)
    A, B = (sp.csr_array(rng.integers(-2, 3, (9, 9)).astype(np.float32)) for _ in range(2))
    whole = (A @ B).toarray()
    floor = rng.integers(-2, 3, 9).astype(np.float32)
    cut = product(A, B, top, floor, diagonal=True, block=block)
    cut.check_format()
    for r in range(9):
        high = top_of(np.where(whole[r] > floor[r], whole[r], 0), top)
        kept = sorted({*high, r} if whole[r, r] else {*high})
        assert kept == np.flatnonzero(cut.toarray()[r]).tolist()
        assert np.array_equal(cut.toarray()[r, kept], whole[r, kept])
    assert np.array_equal(product(A, B).toarray(), whole)


def test_product_of_empty_matrices():
    assert product(sp.csr_array((0, 4)), sp.csr_array((4, 3))).shape == (0, 3)
    assert product(sp.csr_array((2, 4)), sp.csr_array((4, 3))).nnz == 0


def test_product_of_matrices_that_do_not_fit():
    with pytest.raises(InputError, match="no product"):
        product(sp.csr_array((2, 4)), sp.csr_array((5, 3)))


def test_keep_top_protects_the_diagonal_when_asked():
    graph = sp.csr_array(np.array([[1, 5, 4], [3, 3, 3], [0, 2, 0]], np.float32))
    assert keep_top(graph, 1).toarray().tolist() == [[1, 5, 0], [3, 3, 0], [0, 2, 0]]
    assert keep_top(graph, 1, diagonal=False).toarray().tolist() == [[0, 5, 0], [3, 0, 0], [0, 2, 0]]


def test_cooccurrence_counts_shared_points():
    Y = label_matrix(np.random.default_rng(0), 60, 20, mean=5)
    Y.data *= 0.5  # from one half on, soft targets count as ones
    C = (Y.toarray() > 0).astype(float).T @ (Y.toarray() > 0)
    assert np.array_equal(cooccurrence(Y, None, None).toarray(), C)
    cut = cooccurrence(Y, None, top=3).toarray()
    for label in range(20):
        assert sorted({*top_of(C[label], 3), label}) == np.flatnonzero(cut[label]).tolist()


def test_cooccurrence_leaves_heads_and_empty_labels_alone():
    Y = label_matrix(np.random.default_rng(1), 60, 10).toarray()
    Y[:, 2], Y[:, 7] = 1, 0
    graph = cooccurrence(sp.csr_array(Y), head_threshold=50, top=None).toarray()
    for alone in (2, 7):
        assert np.array_equal(graph[alone], np.eye(10)[alone])
        assert np.array_equal(graph[:, alone], np.eye(10)[alone])
    others = np.delete(Y, [2, 7], 1)
    assert np.array_equal(np.delete(np.delete(graph, [2, 7], 0), [2, 7], 1), others.T @ others)


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0, 2.0]), st.sampled_from([1, 30, 1 << 20]))
@settings(deadline=None, max_examples=40)
def test_conditional_probabilities_are_those_of_the_dense_product(seed, delta, block):
    Y = label_matrix(np.random.default_rng(seed), 30, 12, mean=2)
    C = Y.toarray().T @ Y.toarray()
    expected = C / np.maximum(C.diagonal(), 1)[:, None]  # row j, column i: C_ij / C_jj
    expected[expected <= np.float32(delta)] = 0
    np.fill_diagonal(expected, 1)
    found = conditional_probabilities(Y, delta, block)
    assert np.allclose(found.toarray(), expected, atol=1e-6)
    assert found.dtype == np.float32
    assert found.max() == 1


def test_a_label_with_one_point_implies_all_labels_of_it():
    Y = sp.csr_array(np.array([[1, 1, 1], [0, 1, 1], [0, 0, 1]], np.float32))
    assert np.allclose(conditional_probabilities(Y, 0).toarray(), [[1, 1, 1], [1 / 2, 1, 1], [1 / 3, 2 / 3, 1]])


@pytest.mark.parametrize("limit", [0.3, 1.0, 1.7])
def test_pruning_drops_distant_edges(limit):
    rng = np.random.default_rng(2)
    graph = sp.csr_array(rng.integers(0, 3, (30, 30)).astype(np.float32))
    vectors = rng.standard_normal((30, 5)).astype(np.float32)
    vectors[3] = 0
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    near = (1 - unit @ unit.T <= limit) | np.eye(30, dtype=bool)
    before = graph.toarray()
    assert np.array_equal(prune_by_cosine(graph, vectors, limit).toarray(), np.where(near, before, 0))
    assert np.array_equal(graph.toarray(), before)


def test_pruning_needs_a_vector_for_each_label():
    with pytest.raises(InputError, match="4 labels"):
        prune_by_cosine(sp.csr_array((4, 4), dtype=np.float32), np.zeros((3, 2), np.float32))


def test_the_cluster_graph_sums_counts_between_clusters():
    rng = np.random.default_rng(3)
    graph = sp.csr_array(rng.integers(0, 4, (20, 20)).astype(np.float32))
    clustering = Clustering.of(rng.integers(0, 6, 20), 6)
    M = clustering.to_csr().toarray()
    expected = M.T @ graph.toarray() @ M
    assert np.array_equal(cluster_graph(graph, clustering, None).toarray(), expected)
    cut = cluster_graph(graph, clustering, 2).toarray()
    assert [np.flatnonzero(row).tolist() for row in cut] == [sorted(top_of(row, 2)) for row in expected]
