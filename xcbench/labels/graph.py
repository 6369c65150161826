"""Label graphs read off the label matrix, and what is cut from them or folded out of them."""

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.data.matrices import pattern, unit_vectors
from xcbench.errors import InputError
from xcbench.kernels.csr import Rows, dot, rows_of
from xcbench.kernels.sparse_product import ENTRIES_IN_A_BLOCK, product
from xcbench.kernels.threads import map_threads, split_range
from xcbench.labels.partition import Clustering

LABELS_IN_A_BLOCK = 1 << 14


def cooccurrence(Y: sp.csr_array, head_threshold: int | None = 500, top: int | None = 10) -> sp.csr_array:
    """C = Y^T Y (L x L): how many points two labels share; the diagonal is a label's own count of points.

    Head labels, with more points than the threshold, and labels without points keep a self loop of 1 and nothing
    else. A row keeps its `top` largest entries (None: all), and its diagonal in any case. Any nonzero entry of Y
    counts as one.
    """
    Y = pattern(Y)
    L = Y.shape[1]
    frequency = np.bincount(Y.indices, minlength=L)
    alone = frequency == 0
    if head_threshold is not None:
        alone |= frequency > head_threshold
        Y = Y @ sp.diags_array((~alone).astype(np.float32), format="csr")
        Y.eliminate_zeros()
    C = product(Y.T.tocsr(), Y, top, diagonal=True)
    return _with_self_loops(C, alone)


def conditional_probabilities(Y: sp.csr_array, delta: float = 0.1, block: int = ENTRIES_IN_A_BLOCK) -> sp.csr_array:
    """P(i | j) = C_ij / C_jj with C = Y^T Y, in row j and column i, where it is greater than delta (Gandalf's t_j).

    The diagonal is always there and always 1, also for labels without points and for delta >= 1. At most about
    `block` entries of C exist at a time. Any nonzero entry of Y counts as one.
    """
    Y = pattern(Y)
    frequency = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.float32)
    C = product(Y.T.tocsr(), Y, above=np.float32(delta) * frequency, diagonal=True, block=block)
    C.data /= np.repeat(frequency, np.diff(C.indptr))
    return _with_self_loops(C, frequency == 0)


def prune_by_cosine(graph: sp.csr_array, label_vectors: npt.NDArray[np.float32], limit: float = 1.0) -> sp.csr_array:
    """Drop edges between labels whose cosine distance is greater than `limit`; self loops stay.

    The default of 1 drops negative cosines. A label with a zero vector is at distance 1 from all others.
    """
    if len(label_vectors) != graph.shape[0]:
        raise InputError(f"a graph of {graph.shape[0]} labels needs as many vectors, got {len(label_vectors)}")
    pruned: sp.csr_array = graph.astype(np.float32)  # a copy, whose distant edges become zeros
    edges, vectors, least = rows_of(pruned), unit_vectors(label_vectors), np.float32(1 - limit)
    map_threads(
        lambda rows: _zero_distant(edges, *rows, vectors, least), split_range(pruned.shape[0], LABELS_IN_A_BLOCK)
    )
    pruned.eliminate_zeros()
    return pruned


def cluster_graph(graph: sp.csr_array, clustering: Clustering, top: int | None = 10) -> sp.csr_array:
    """M^T G M (K x K) on raw counts, each row cut to its `top` largest entries; normalise it afterwards."""
    M = clustering.to_csr()
    return product(M.T.tocsr(), (graph @ M).tocsr(), top)


def _with_self_loops(graph: sp.csr_array, alone: npt.NDArray[np.bool_]) -> sp.csr_array:
    """Rows that are empty so far get a self loop of 1."""
    complete: sp.csr_array = (graph + sp.diags_array(alone.astype(np.float32), format="csr")).tocsr()
    return complete


@njit(cache=True, nogil=True)
def _zero_distant(
    graph: Rows, start: int, stop: int, vectors: npt.NDArray[np.float32], least_cosine: np.float32
) -> None:
    for row in range(start, stop):
        for i in range(graph.indptr[row], graph.indptr[row + 1]):
            column = graph.indices[i]
            if column != row and dot(vectors[row], vectors[column]) < least_cosine:
                graph.data[i] = 0
