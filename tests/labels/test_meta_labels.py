"""Clusters as labels against sums and maxima taken label by label."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xcbench.labels import Clustering
from xcbench.labels.meta_labels import meta_targets, meta_text


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 5), st.integers(0, 10**6))
def test_a_cluster_is_as_true_as_its_truest_label(N, L, K, seed):
    random = np.random.default_rng(seed)
    Y = sp.random_array((N, L), density=0.4, format="csr", dtype=np.float32, random_state=random)
    clustering = Clustering.of(random.integers(0, K, L), K)
    slow = np.zeros((N, K), np.float32)
    for i in range(N):
        for label in range(L):
            m = clustering.cluster_of[label]
            slow[i, m] = max(slow[i, m], Y.toarray()[i, label])
    fast = meta_targets(Y, clustering)
    assert fast.has_canonical_format
    np.testing.assert_array_equal(fast.toarray(), slow)


def test_a_cluster_is_open_where_nothing_but_open_labels_speaks_for_it():
    Y = sp.csr_array(np.array([[np.nan, 1, 0, 0], [np.nan, 0, 0, 0.5], [0, 0, np.nan, np.nan]], np.float32))
    found = meta_targets(Y, Clustering.of(np.array([0, 0, 1, 1]), 2))
    np.testing.assert_array_equal(found.toarray(), [[1, 0], [np.nan, 0.5], [0, np.nan]])


def test_text_of_a_cluster_is_the_unit_sum_of_its_labels_texts():
    Z = sp.csr_array(np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0]], np.float32))
    U = meta_text(Z, Clustering.of(np.array([0, 0, 0, 1]), 3))
    np.testing.assert_allclose(U.toarray(), [[2 / 5**0.5, 1 / 5**0.5, 0], [0, 0, 0], [0, 0, 0]], rtol=1e-6)
    assert U.dtype == np.float32


def test_no_targets_at_all():
    targets = meta_targets(sp.csr_array((3, 2), dtype=np.float32), Clustering.of(np.array([0, 1]), 2))
    assert targets.shape == (3, 2)
    assert targets.nnz == 0
