"""Centroids against dense products, information against its definition."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.labels.problems import label_matrix
from xcbench.labels import (
    Clustering,
    dense_centroids,
    loss_of_mutual_information,
    mutual_information,
    random_walk_graph,
    sparse_centroids,
    two_sided,
)
from xcbench.labels.information import information_lost


@pytest.fixture
def Y():
    Y = label_matrix(np.random.default_rng(0), 50, 20)
    Y.data = np.random.default_rng(1).random(Y.nnz).astype(np.float32)  # soft targets weigh
    return Y


@pytest.fixture
def X():
    return sp.random_array((50, 40), density=0.3, rng=np.random.default_rng(2), dtype=np.float32, format="csr")


def cut(dense, keep):
    limit = np.sort(dense, axis=1)[:, -keep][:, None]
    return np.where(dense >= limit, dense, 0)


def test_sparse_centroids_sum_the_points_of_a_label(Y, X):
    expected = Y.toarray().T @ X.toarray()
    assert np.allclose(sparse_centroids(Y, X).toarray(), expected, atol=1e-5)
    assert np.allclose(sparse_centroids(Y, X, keep=5).toarray(), cut(expected, 5), atol=1e-5)


def test_a_graph_smooths_what_was_kept(Y, X):
    G = two_sided(random_walk_graph(Y))
    smooth = G.toarray() @ cut(Y.toarray().T @ X.toarray(), 5)
    assert np.allclose(sparse_centroids(Y, X, 5, G).toarray(), cut(smooth, 5), atol=1e-5)


def test_dense_centroids_are_unit_sums(Y):
    Y = sp.csr_array(np.hstack([Y.toarray(), np.zeros((50, 1), np.float32)]))
    V = np.random.default_rng(3).standard_normal((50, 8)).astype(np.float32)
    sums = Y.toarray().T @ V
    expected = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    found = dense_centroids(Y, V)
    assert found.dtype == np.float32
    assert np.allclose(found, expected, atol=1e-5)
    assert not found[20].any()
    G = two_sided(random_walk_graph(Y))
    smooth = G.toarray() @ expected
    expected = smooth / np.maximum(np.linalg.norm(smooth, axis=1, keepdims=True), 1e-12)
    assert np.allclose(dense_centroids(Y, V, G), expected, atol=1e-5)


def information(joint):
    p = joint / joint.sum()
    independent = p.sum(1, keepdims=True) * p.sum(0, keepdims=True)
    return (p[p > 0] * np.log2(p[p > 0] / independent[p > 0])).sum()


def test_mutual_information_is_its_definition(Y):
    assert np.isclose(mutual_information(Y), information(Y.toarray().astype(float)))
    assert mutual_information(sp.csr_array((3, 4), dtype=np.float32)) == 0
    assert np.isclose(mutual_information(sp.csr_array(np.eye(8, dtype=np.float32))), 3)


def test_singletons_lose_nothing_and_one_cluster_loses_all(Y):
    assert np.isclose(loss_of_mutual_information(Y, Clustering.of(np.arange(20), 20)), 0)
    one = Clustering.of(np.zeros(20, np.int32), 1)
    assert np.isclose(loss_of_mutual_information(Y, one), mutual_information(Y))
    assert np.isclose(information_lost(Y, one), 100)


def test_the_loss_is_the_divergence_of_labels_from_their_clusters(Y):
    clustering = Clustering.of(np.random.default_rng(4).integers(0, 5, 20), 5)
    p = Y.toarray().astype(float).T / Y.sum(dtype=np.float64)  # [L, N]
    loss = 0.0
    for members in (np.flatnonzero(clustering.cluster_of == m) for m in range(5)):
        of_cluster = p[members].sum(0) / p[members].sum()
        for label in members:
            of_label = p[label] / p[label].sum()
            there = of_label > 0
            loss += p[label].sum() * (of_label[there] * np.log2(of_label[there] / of_cluster[there])).sum()
    assert np.isclose(loss_of_mutual_information(Y, clustering), loss)
