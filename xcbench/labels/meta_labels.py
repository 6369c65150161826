"""Clusters seen as labels of their own ("meta-labels"): what their targets and their text are."""

import numpy as np
import scipy.sparse as sp

from xcbench.labels.partition import Clustering


def meta_targets(Y: sp.csr_array, clustering: Clustering) -> sp.csr_array:
    """[N, K]: a cluster is as true as the truest of its labels; for 0/1 targets, true where any of them is.

    A target that is not a number leaves it open whether the pair is true; a cluster stays open if it has no other.
    """
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    keys = rows * clustering.K + clustering.cluster_of[Y.indices]
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], Y.data[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    best = np.fmax.reduceat(values, first) if len(first) else values[:0]
    indptr = np.searchsorted(keys[first], np.arange(Y.shape[0] + 1, dtype=np.int64) * clustering.K)
    columns = (keys[first] % clustering.K).astype(np.int32)
    return sp.csr_array((best, columns, indptr), shape=(Y.shape[0], clustering.K))


def meta_text(Z: sp.csr_array, clustering: Clustering) -> sp.csr_array:
    """[K, V]: u_m, the sum of the texts of a cluster's labels, with rows of unit length."""
    U: sp.csr_array = (clustering.to_csr().T.tocsr() @ Z).tocsr()
    U.sort_indices()
    lengths = np.sqrt(U.multiply(U).sum(axis=1))
    U.data /= np.repeat(np.where(lengths > 0, lengths, 1), np.diff(U.indptr)).astype(np.float32)
    return U
