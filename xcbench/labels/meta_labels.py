"""Clusters as labels of their own ("meta-labels"): their targets and their text."""

import numpy as np
import scipy.sparse as sp

from xcbench.labels.partition import Clustering


def meta_targets(Y: sp.csr_array, clustering: Clustering) -> sp.csr_array:
    """Return the targets of clusters (N x K): the largest target among a cluster's labels.

    Parameters
    ----------
    Y : targets of labels (N x L). A target of nan says that the pair is ignored in training; a cluster's target is
        nan only if all of its labels' are.
    clustering : which label is in which cluster.
    """
    N = Y.shape[0]
    K = clustering.K
    points = np.arange(N + 1, dtype=np.int64)
    rows = np.repeat(points[:N], np.diff(Y.indptr))
    keys = rows * K + clustering.cluster_of[Y.indices]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    values = Y.data[order]

    # All entries of one point and one cluster are now a run with the same key.
    run_starts = np.flatnonzero(np.diff(keys, prepend=-1))
    run_keys = keys[run_starts]
    maxima = values[:0]
    if len(run_starts):
        maxima = np.fmax.reduceat(values, run_starts)
    indptr = np.searchsorted(run_keys, points * K)
    columns = (run_keys % K).astype(np.int32)
    return sp.csr_array((maxima, columns, indptr), shape=(N, K))


def meta_text(Z: sp.csr_array, clustering: Clustering) -> sp.csr_array:
    """Return the text of clusters (K x V): u_m, the sum of the texts of a cluster's labels, scaled to unit length.

    Parameters
    ----------
    Z : text of labels (L x V).
    clustering : which label is in which cluster.
    """
    M = clustering.to_csr()
    M_T = M.T.tocsr()
    U: sp.csr_array = (M_T @ Z).tocsr()
    U.sort_indices()
    squares = U.multiply(U).sum(axis=1)
    lengths = np.sqrt(squares)
    lengths = np.where(lengths > 0, lengths, 1)
    entry_lengths = np.repeat(lengths, np.diff(U.indptr))
    U.data /= entry_lengths.astype(np.float32)
    return U
