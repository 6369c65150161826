"""Centroids of labels, the sums of their points: what a clustering of labels takes as features."""

import numpy as np
import scipy.sparse as sp

from xcbench.data.matrices import unit_vectors
from xcbench.kernels.arrays import Floats
from xcbench.kernels.sparse_product import product
from xcbench.progress import counted, titled

ROWS_AT_ONCE = 1 << 15
"""How many rows of a product are computed before it says how far it is."""


def sparse_centroids(
    Y: sp.csr_array,
    X: sp.csr_array,
    keep: int | None = 1000,
    graph: sp.csr_array | None = None,
) -> sp.csr_array:
    """Return c_l = sum_i y_il x_i (L x V). Rows are not normalised.

    Parameters
    ----------
    Y : targets (N x L). Soft targets weigh their points.
    X : sparse features of the points (N x V).
    keep : how many entries a centroid keeps, the largest ones; None keeps all.
    graph : a label graph G. With it, the result is G c, cut to `keep` entries once more.
    """
    with titled("centroids of labels"):
        centroids = product(Y.T.tocsr(), X, keep)
        if graph is None:
            return centroids
        return product(graph, centroids, keep)


def dense_centroids(
    Y: sp.csr_array,
    vectors: Floats,
    graph: sp.csr_array | None = None,
) -> Floats:
    """Return c_l = sum_i y_il v_i (L x D), scaled to unit length.

    Parameters
    ----------
    Y : targets (N x L). Soft targets weigh their points.
    vectors : one vector per point (N x D).
    graph : a label graph G. With it, the result is G c, scaled to unit length once more.
    """
    with titled("centroids of labels"):
        centroids = unit_vectors(_sums(Y.T.tocsr(), vectors))
        if graph is None:
            return centroids
        return unit_vectors(_sums(graph, centroids))


def _sums(weights: sp.csr_array, vectors: Floats) -> Floats:
    """Return the product of a sparse matrix and vectors, some rows at a time, so that it can say how far it is."""
    rows = weights.shape[0]
    if rows <= ROWS_AT_ONCE:
        return np.asarray(weights @ vectors, np.float32)
    sums = np.empty((rows, vectors.shape[1]), np.float32)
    for start in counted(range(0, rows, ROWS_AT_ONCE)):
        part = slice(start, start + ROWS_AT_ONCE)
        sums[part] = weights[part] @ vectors
    return sums
