"""Centroids of labels, the sums of their points: what a clustering of labels takes as features."""

import numpy as np
import scipy.sparse as sp

from xcbench.data.matrices import unit_vectors
from xcbench.kernels.arrays import Floats
from xcbench.kernels.sparse_product import product


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
    sums = np.asarray(Y.T @ vectors, np.float32)
    centroids = unit_vectors(sums)
    if graph is None:
        return centroids
    smoothed = np.asarray(graph @ centroids, np.float32)
    return unit_vectors(smoothed)
