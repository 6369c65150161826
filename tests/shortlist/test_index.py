"""The index of weighted edges, against all clusters and all edges in plain numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shortlist.reference import assert_close, assert_same, best, random_graph
from tests.stand_in_device import DEVICE, StandInDevice
from xcbench.errors import InputError
from xcbench.kernels.csr import arrays_of
from xcbench.shortlist import ExactShortlister, IndexShortlister, load_shortlister
from xcbench.shortlist.index import best_paths
from xcbench.shortlist.packing import pack, unpack


def world(seed, n, C, L, D=5, share=0.3):
    rng = np.random.default_rng(seed)
    H, b, X = (rng.standard_normal(shape, dtype=np.float32) for shape in ((C, D), (C,), (n, D)))
    weights = rng.random((C, L)).astype(np.float32) + np.float32(0.01)
    edges = np.where(rng.random((C, L)) < share, np.minimum(weights, 1), 0).astype(np.float32)
    return H, b, X, edges


def cluster_scores(X, H, b, alpha):
    z = np.exp((X @ H.T + b).astype(np.float64))
    shares = z / z.sum(1, keepdims=True)
    return shares, np.minimum(1, alpha * shares)


def plain(X, H, b, edges, beam, alpha, k):
    """Every path of every explored cluster."""
    shares, scores = cluster_scores(X, H, b, alpha)
    explored = np.zeros(shares.shape, bool)
    for i, row in enumerate(shares):
        explored[i, np.argsort(-row, kind="stable")[:beam]] = True
    paths = np.where(explored[:, :, None] & (edges > 0)[None], scores[:, :, None] * edges[None], -np.inf)
    return best(paths.max(1, initial=-np.inf).astype(np.float32), k)


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(0, 6),
    C=st.integers(1, 12),
    L=st.integers(1, 40),
    beam=st.integers(1, 15),
    k=st.integers(1, 50),
    alpha=st.sampled_from([0.5, 2.0, 10.0]),
    seed=st.integers(0, 2**31),
)
def test_the_best_path_to_each_label_counts(n, C, L, beam, k, alpha, seed):
    H, b, X, edges = world(seed, n, C, L)
    index = IndexShortlister.of(H, sp.csr_array(edges), beam, b, alpha)
    assert_close(index.shortlist(X, k), plain(X, H, b, edges, beam, alpha, k))


def test_one_label_per_cluster_and_a_full_beam_rank_labels_as_one_vs_all_does():
    H, b, X, _ = world(0, 20, 30, 30)
    index = IndexShortlister.of(H, sp.eye_array(30, format="csr", dtype=np.float32), 30, b, alpha=1.0)
    found = index.shortlist(X, 30)
    exact = ExactShortlister.of(H, b).shortlist(X, 30)
    np.testing.assert_array_equal(found.indices, exact.indices)
    np.testing.assert_allclose(found.scores.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(index.clusters(X).indices, exact.indices)


def test_scores_of_clusters_are_cut_at_1_but_their_order_is_not_lost():
    H = np.array([[3.0], [3.5], [0.0]], np.float32)
    index = IndexShortlister.of(H, sp.csr_array(np.eye(3, dtype=np.float32)), 1, alpha=10)
    found = index.clusters(np.ones((1, 1), np.float32))
    assert found.indices.tolist() == [[1]]
    assert found.scores.tolist() == [[1.0]]


def test_saved_and_loaded_and_packed(tmp_path):
    H, b, X, edges = world(1, 9, 8, 50)
    index = IndexShortlister.of(H, sp.csr_array(edges), 3, b, alpha=4.0)
    index.save(tmp_path / "saved")
    for again in (load_shortlister(tmp_path / "saved"), unpack(pack(index))):
        assert isinstance(again, IndexShortlister)
        assert_same(again.shortlist(X, 12), index.shortlist(X, 12))
        assert again.label_count == 50


@pytest.mark.parametrize("with_bias", [False, True])
def test_on_a_device(with_bias):
    H, b, X, edges = world(2, 33, 20, 120)
    index = IndexShortlister.of(H, sp.csr_array(edges), 6, b if with_bias else None, alpha=3.0)
    with StandInDevice():
        found = index.to(DEVICE).shortlist(X, 200)
    assert_close(found, index.shortlist(X, 200))


def test_wrong_shapes_are_said_in_one_line():
    H, b, X, edges = world(0, 2, 3, 5)
    with pytest.raises(InputError, match="4 clusters need a classifier each, got 3"):
        IndexShortlister.of(H, sp.csr_array((4, 5), dtype=np.float32), 1)
    with pytest.raises(InputError, match="at least 1 cluster"):
        IndexShortlister.of(H, sp.csr_array(edges), 0)
    with pytest.raises(InputError, match="vectors"):
        IndexShortlister.of(H, sp.csr_array(edges), 1, b).shortlist(X[:, :2], 3)


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 5),
    C=st.integers(1, 9),
    L=st.integers(1, 30),
    length=st.integers(1, 20),
    seed=st.integers(0, 2**31),
)
def test_paths_for_training_are_the_best_ones_and_those_of_true_labels(n, C, L, length, seed):
    H, b, X, edges = world(seed, n, C, L)
    rng = np.random.default_rng(seed)
    scores = cluster_scores(X, H, b, 2.0)[1].astype(np.float32)
    clusters = rng.integers(-1, C, (n, 4)).astype(np.int32)
    Y = random_graph(rng, max(n, L), 0.1)[:n, :L].tocsr()
    Y.data[::3] = np.nan
    matrix = sp.csr_array(edges)
    paths = best_paths(scores, clusters, arrays_of(matrix), arrays_of(Y), L, length)
    for i in range(n):
        here = slice(paths.indptr[i], paths.indptr[i + 1])
        truth = dict(zip(Y.indices[Y.indptr[i] : Y.indptr[i + 1]], Y.data[Y.indptr[i] : Y.indptr[i + 1]], strict=True))
        explored = [c for c in set(clusters[i].tolist()) if c >= 0]
        reached = {}
        for label in range(L):
            values = [scores[i, c] * edges[c, label] for c in explored if edges[c, label] > 0]
            if values and not np.isnan(truth.get(label, 0)):
                reached[label] = max(values)
        expected = set(sorted(reached, key=lambda label: (-reached[label], label))[:length])
        expected |= {label for label in reached if truth.get(label, 0) > 0}
        assert set(paths.labels[here].tolist()) == expected
        for e in range(here.start, here.stop):
            label = paths.labels[e]
            assert matrix.indices[paths.edges[e]] == label
            assert scores[i, paths.clusters[e]] * matrix.data[paths.edges[e]] == reached[label]
            assert paths.targets[e] == truth.get(label, 0)
