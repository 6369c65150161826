"""Balanced clusterings: the invariants, a planted truth, and the plain algorithm on one split."""

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.labels.problems import planted_rows
from xcbench.errors import DataError, InputError
from xcbench.labels import Clustering, balanced_clusters, cluster_count, random_clusters


def rows(seed, L, D, kind):
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((L, D)) * (rng.random((L, D)) < 0.4)
    if kind == "zero":
        dense[:] = 0
    elif kind == "duplicate":
        dense[:] = dense[0]
    dense = dense.astype(np.float32)
    return dense, sp.csr_array(dense)


@given(
    st.integers(0, 2**40),
    st.integers(1, 150),
    st.integers(1, 20),
    st.integers(1, 160),
    st.sampled_from(["random", "zero", "duplicate"]),
)
@settings(deadline=None, max_examples=40)
def test_every_label_is_in_one_cluster_and_sizes_differ_by_one(seed, L, D, K, kind):
    for features in rows(seed, L, D, kind):
        clustering = balanced_clusters(features, K, seed=seed)
        assert min(K, L) == clustering.K
        assert clustering.sizes.max() - clustering.sizes.min() <= 1
        assert np.array_equal(np.sort(clustering.indices), np.arange(L))
        again = balanced_clusters(features, K, seed=seed)
        assert np.array_equal(clustering.cluster_of, again.cluster_of)


@given(st.integers(0, 1000), st.integers(2, 120), st.integers(1, 40), st.data())
@settings(deadline=None, max_examples=40)
def test_heads_are_clustered_apart_and_never_lost(seed, L, K, data):
    heads = np.zeros(L, bool)
    heads[data.draw(st.lists(st.integers(0, L - 1), max_size=L, unique=True))] = True
    clustering = balanced_clusters(rows(seed, L, 6, "random")[0], K, heads, seed)
    assert clustering.sizes.sum() == L
    assert clustering.sizes.min() >= 1
    of_heads, of_others = set(clustering.cluster_of[heads]), set(clustering.cluster_of[~heads])
    assert not of_heads & of_others
    if heads.all():
        assert min(K, L) >= clustering.K
    else:
        assert of_others == set(range(min(K, int((~heads).sum()))))
        assert all(clustering.sizes[m] <= clustering.sizes[list(of_others)].max() for m in of_heads)
    for group in (of_heads, of_others):
        sizes = clustering.sizes[list(group)]
        assert len(sizes) == 0 or sizes.max() - sizes.min() <= 1


def test_the_heads_of_the_official_bug_are_covered():
    heads = np.arange(5000) < 40
    clustering = balanced_clusters(rows(0, 5000, 4, "random")[0], 64, heads)
    assert clustering.K == 65
    assert clustering.sizes.sum() == 5000


@pytest.mark.parametrize("sparse", [False, True])
def test_a_planted_clustering_is_recovered(sparse):
    features, group = planted_rows(np.random.default_rng(0), groups=16, size=40, width=64)
    clustering = balanced_clusters(sp.csr_array(features) if sparse else features, 16, seed=3)
    # A split that falls between groups of even number keeps each whole; the worst case parts one pair.
    pure = sum(len(set(group[clustering.cluster_of == m])) == 1 for m in range(16))
    assert pure >= 12


def test_two_planted_groups_are_recovered_exactly():
    for seed in range(10):
        features, group = planted_rows(np.random.default_rng(seed), groups=2, size=30, width=10)
        found = balanced_clusters(features, 2, seed=seed).cluster_of
        assert np.array_equal(found == found[0], group == group[0])


def test_sparse_and_dense_rows_give_the_same_tree():
    dense, sparse = rows(5, 300, 20, "random")
    assert np.array_equal(balanced_clusters(dense, 2).cluster_of, balanced_clusters(sparse, 2).cluster_of)


def one_split_by_hand(F, first, second, tolerance=1e-4, iterations=50):
    F = F / np.linalg.norm(F, axis=1, keepdims=True)
    c, best = F[[first, second]], -np.inf
    for _ in range(iterations):
        s = F @ c.T
        order = np.argsort(s[:, 1] - s[:, 0], kind="stable")
        left, right = order[: -(-len(F) // 2)], order[-(-len(F) // 2) :]
        objective = (s[left, 0].sum() + s[right, 1].sum()) / len(F)
        c = np.stack([F[left].sum(0), F[right].sum(0)])
        c /= np.linalg.norm(c, axis=1, keepdims=True)
        if objective - best < tolerance:
            break
        best = objective
    return frozenset(left.tolist())


@pytest.mark.parametrize("n", [3, 4, 5, 9])
def test_a_split_is_one_that_the_plain_algorithm_finds(n):
    F = np.random.default_rng(n).standard_normal((n, 6))
    possible = {one_split_by_hand(F, a, b) for a in range(n) for b in range(n) if a != b}
    found = [balanced_clusters(F.astype(np.float32), 2, seed=seed) for seed in range(200)]
    reached = {frozenset(np.flatnonzero(c.cluster_of == 0).tolist()) for c in found}
    assert reached == possible


@pytest.mark.parametrize("sparse", [False, True])
def test_threads_do_not_change_a_clustering(sparse, monkeypatch):
    monkeypatch.setattr("xcbench.labels.clustering.ENOUGH_TASKS", 4)
    features = rows(1, 500, 30, "random")[sparse]
    found = []
    for threads in (1, 2):
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        found.append(balanced_clusters(features, 100, np.arange(500) < 37, seed=2).cluster_of)
    assert np.array_equal(*found)


def test_nor_does_the_way_the_tree_is_grown(monkeypatch):
    features = rows(2, 500, 30, "random")[0]
    found = []
    for tasks in (1, 8, 1000):
        monkeypatch.setattr("xcbench.labels.clustering.ENOUGH_TASKS", tasks)
        found.append(balanced_clusters(features, 90, seed=2).cluster_of)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_seeds_differ():
    features = rows(3, 200, 30, "random")[0]
    assert np.any(balanced_clusters(features, 20).cluster_of != balanced_clusters(features, 20, seed=1).cluster_of)


def test_rows_without_columns_still_split():
    for features in (np.zeros((5, 0), np.float32), sp.csr_array((5, 0), dtype=np.float32)):
        assert balanced_clusters(features, 3).sizes.tolist() == [2, 2, 1]


def test_wrong_input_is_refused():
    with pytest.raises(InputError, match="at least one label"):
        balanced_clusters(np.zeros((0, 3), np.float32), 2)
    with pytest.raises(InputError, match="one cluster"):
        balanced_clusters(np.zeros((3, 3), np.float32), 0)
    with pytest.raises(InputError, match="3 labels need a mark"):
        balanced_clusters(np.zeros((3, 3), np.float32), 1, np.zeros(2, bool))
    with pytest.raises(InputError, match="label 1 are not finite"):
        balanced_clusters(np.array([[1, 2], [np.nan, 0]], np.float32), 2)


@pytest.mark.parametrize(
    ("L", "K"),
    [(1, 1), (2, 1), (12_000, 2**12), (27_000, 2**13), (131_073, 2**15), (312_330, 2**17), (1_305_265, 2**17)],
)
def test_the_default_count_is_the_papers(L, K):
    assert cluster_count(L) == K


def test_a_count_may_be_given_and_multiplied_within_the_number_of_labels():
    assert [cluster_count(100, 20, factor) for factor in (1, 0.25, 0.01, 4, 9)] == [20, 5, 1, 80, 100]
    assert cluster_count(12_000, factor=0.25) == 2**10


@pytest.mark.parametrize(("L", "K"), [(1, 1), (7, 3), (100, 100), (5, 9)])
def test_random_clusters_are_balanced_and_seeded(L, K):
    clustering = random_clusters(L, K, seed=1)
    assert min(L, K) == clustering.K
    assert clustering.sizes.max() - clustering.sizes.min() <= 1
    assert np.array_equal(clustering.cluster_of, random_clusters(L, K, seed=1).cluster_of)


def test_a_clustering_is_a_matrix_of_single_ones():
    clustering = Clustering.of(np.array([2, 0, 2, 1]), 4)
    assert clustering.to_csr().toarray().tolist() == [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]]
    assert clustering.indptr.tolist() == [0, 1, 2, 4, 4]
    assert clustering.indices.tolist() == [1, 3, 0, 2]


def test_a_clustering_survives_the_disk(tmp_path):
    clustering = random_clusters(50, 7)
    clustering.save(tmp_path / "clusters.npz")
    loaded = Clustering.load(tmp_path / "clusters.npz")
    assert np.array_equal(loaded.cluster_of, clustering.cluster_of)
    assert loaded.K == 7


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04broken"])
def test_a_broken_file_is_named(tmp_path, content):
    path = tmp_path / "clusters.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"clusters\.npz"):
        Clustering.load(path)


def test_a_clustering_with_wrong_ids_is_refused():
    with pytest.raises(ValueError, match=r"\[0, 2\)"):
        Clustering.of(np.array([0, 2]), 2)
