"""Where a label lies among the points: the sum of the points that carry it, as the input of a clustering."""

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.matrices import unit_vectors
from xcbench.kernels.sparse_product import product


def sparse_centroids(
    Y: sp.csr_array, X: sp.csr_array, keep: int | None = 1000, graph: sp.csr_array | None = None
) -> sp.csr_array:
    """c_l = sum_i y_il x_i (L x V), each row cut to its `keep` largest entries (None: all).

    With a graph the rows become sums over neighbours, G c, cut once more. Rows are not normalised.
    """
    centroids = product(Y.T.tocsr(), X, keep)
    return centroids if graph is None else product(graph, centroids, keep)


def dense_centroids(
    Y: sp.csr_array, vectors: npt.NDArray[np.float32], graph: sp.csr_array | None = None
) -> npt.NDArray[np.float32]:
    """c_l = sum_i y_il v_i (L x D) with rows of unit length; with a graph G c, normalised once more."""
    centroids = unit_vectors(np.asarray(Y.T @ vectors, np.float32))
    return centroids if graph is None else unit_vectors(np.asarray(graph @ centroids, np.float32))
