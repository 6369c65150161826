"""Normalisations against dense formulas, and PageRank against a linear solve."""

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from tests.labels.problems import label_matrix
from xcbench.errors import InputError
from xcbench.labels import by_row, perron, personalised_pagerank, random_walk_graph, stationary_vector, two_sided


@pytest.fixture
def graph():
    """Asymmetric counts with an isolated label, an empty row and an empty column."""
    dense = np.random.default_rng(0).integers(0, 4, (15, 15)).astype(np.float32)
    dense[4], dense[:, 4], dense[4, 4] = 0, 0, 1
    dense[7] = 0
    dense[:, 9] = 0
    return sp.csr_array(dense)


def test_two_sided(graph):
    G = graph.toarray().astype(float)
    with np.errstate(divide="ignore"):
        rows, columns = 1 / np.sqrt(G.sum(1)), 1 / np.sqrt(G.sum(0))
    rows[~np.isfinite(rows)] = 0
    columns[~np.isfinite(columns)] = 0
    assert np.allclose(two_sided(graph).toarray(), rows[:, None] * G * columns, atol=1e-6)
    assert two_sided(graph).dtype == np.float32
    assert two_sided(graph)[4, 4] == 1


def test_by_row(graph):
    sums = by_row(graph).sum(axis=1)
    assert np.allclose(sums[7], 0)
    assert np.allclose(np.delete(sums, 7), 1)


def test_a_walk_graph_keeps_its_diagonal_in_every_form():
    counts = random_walk_graph(label_matrix(np.random.default_rng(1), 50, 20))
    for normalise in (two_sided, by_row, perron):
        weights = normalise(counts)
        assert np.all(weights.diagonal() > 0)
        assert np.isfinite(weights.data).all()


def strongly_connected():
    dense = np.random.default_rng(2).integers(1, 5, (8, 8)).astype(np.float32)
    return sp.csr_array(dense)


def left_eigenvector(P):
    values, vectors = np.linalg.eig(P.T)
    leading = np.real(vectors[:, np.argmax(np.real(values))])
    return leading / leading.sum()


def test_the_stationary_vector_is_perrons():
    P = by_row(strongly_connected())
    assert np.allclose(stationary_vector(P, teleport=0), left_eigenvector(P.toarray()), atol=1e-6)
    mixed = 0.9 * P.toarray() + 0.1 / 8
    assert np.allclose(stationary_vector(P, teleport=0.1), left_eigenvector(mixed), atol=1e-6)


def test_the_stationary_vector_of_a_cycle():
    cycle = sp.csr_array(np.roll(np.eye(6, dtype=np.float32), 1, axis=1))
    assert np.allclose(stationary_vector(cycle, teleport=0), 1 / 6)


def test_perron_is_chungs_symmetric_form():
    P = by_row(strongly_connected()).toarray()
    root = np.sqrt(left_eigenvector(P))
    half = root[:, None] * P / root
    found = perron(strongly_connected(), teleport=0).toarray()
    assert np.allclose(found, (half + half.T) / 2, atol=1e-5)
    assert np.isclose(np.abs(np.linalg.eigvalsh(found)).max(), 1, atol=1e-5)


def test_perron_of_unconnected_labels_is_the_identity():
    assert np.allclose(perron(sp.csr_array(3 * np.eye(4, dtype=np.float32))).toarray(), np.eye(4))


def exact_pagerank(graph, starts, restart):
    P = by_row(graph).toarray().astype(float)
    dangling = P.sum(1) == 0
    P[dangling, dangling] = 1
    return restart * starts @ np.linalg.inv(np.eye(len(P)) - (1 - restart) * P)


@pytest.mark.parametrize("restart", [0.1, 0.5, 1.0])
def test_pagerank_solves_its_equation(graph, restart):
    found = personalised_pagerank(graph, restart=restart, top=15, tolerance=1e-9).toarray()
    assert np.allclose(found, exact_pagerank(graph, np.eye(15), restart), atol=1e-6)


def test_pagerank_from_several_starts_with_weights(graph):
    starts = sp.csr_array(np.array([[0, 2, 0, 1] + 11 * [0], 15 * [0], 15 * [1]], np.float32))
    found = personalised_pagerank(graph, starts, top=15, tolerance=1e-9).toarray()
    scaled = starts.toarray() / np.maximum(starts.toarray().sum(1, keepdims=True), 1)
    assert np.allclose(found, exact_pagerank(graph, scaled, 0.2), atol=1e-6)


@pytest.mark.parametrize(("weight", "restart"), [(1, 1.0), (0, 0.5)])
def test_labels_that_get_nothing_are_in_no_row(weight, restart):
    """Two starts with an edge to one label along which nothing goes, since all of it restarts or the edge weighs 0."""
    edges = np.full(2, weight, np.float32), np.array([2, 2]), np.array([0, 1, 2, 2, 2])
    starts = np.array([1, 1, 0], np.float32), np.array([0, 1, 3]), np.array([0, 3])
    found = personalised_pagerank(sp.csr_array(edges, (4, 4)), sp.csr_array(starts, (1, 4)), restart)
    assert found.indices.tolist() == [0, 1]
    assert found.data.tolist() == [0.5, 0.5]  # without a way on, it all stays


def test_a_coarse_pagerank_is_a_lower_bound_with_known_error():
    counts = random_walk_graph(label_matrix(np.random.default_rng(3), 200, 80))
    exact = exact_pagerank(counts, np.eye(80), 0.2)
    found = personalised_pagerank(counts, top=80, tolerance=1e-3).toarray()
    assert np.all(found <= exact + 1e-6)
    assert np.abs(exact - found).sum(axis=1).max() <= 80 * 1e-3


def test_pagerank_keeps_the_top(graph):
    exact = exact_pagerank(graph, np.eye(15), 0.2)
    cut = personalised_pagerank(graph, top=3, tolerance=1e-9)
    assert np.all(np.diff(cut.indptr) <= 3)
    for label in range(15):
        assert np.allclose(np.sort(cut.toarray()[label])[-3:], np.sort(exact[label])[-3:], atol=1e-6)


def test_threads_do_not_change_pagerank(monkeypatch):
    monkeypatch.setattr("xcbench.labels.pagerank.ROWS_IN_A_BLOCK", 7)
    counts = random_walk_graph(label_matrix(np.random.default_rng(4), 200, 80))
    found = []
    for threads in (1, 2):
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        found.append(personalised_pagerank(counts, top=10).toarray())
    assert np.array_equal(*found)


def test_pagerank_refuses_what_never_ends_or_does_not_fit(graph):
    with pytest.raises(InputError, match="restart"):
        personalised_pagerank(graph, restart=0)
    with pytest.raises(InputError, match="graph of 15"):
        personalised_pagerank(graph, sp.csr_array((1, 4)))
