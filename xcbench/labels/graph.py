"""Label graphs that follow from the label matrix alone, and how graphs are pruned or summed over clusters."""

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.data.matrices import binary_targets, unit_vectors
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats
from xcbench.kernels.csr import CsrArrays, arrays_of, dot
from xcbench.kernels.parallel import map_threads, split_range
from xcbench.kernels.sparse_product import ENTRIES_IN_A_BLOCK, product
from xcbench.labels.partition import Clustering
from xcbench.progress import titled

LABELS_IN_A_BLOCK = 1 << 14


def cooccurrence(
    Y: sp.csr_array,
    head_threshold: int | None = 500,
    top: int | None = 10,
) -> sp.csr_array:
    """Return C = Y^T Y (L x L): how many points two labels share. The diagonal is a label's own number of points.

    Parameters
    ----------
    Y : targets (N x L). An entry of at least one half counts as one, others as none.
    head_threshold : labels with more points have a self loop of 1 and no other edge, as labels without points have.
        None: no threshold.
    top : how many entries a row keeps, the largest ones, besides its diagonal; None keeps all.
    """
    Y = binary_targets(Y)
    frequency = np.bincount(Y.indices, minlength=Y.shape[1])
    isolated = frequency == 0
    if head_threshold is not None:
        isolated |= frequency > head_threshold
        connected = (~isolated).astype(np.float32)
        Y = Y @ sp.diags_array(connected, format="csr")
        Y.eliminate_zeros()
    with titled("co-occurrences of labels"):
        C = product(Y.T.tocsr(), Y, top, diagonal=True)
    return _with_self_loops(C, isolated)


def conditional_probabilities(
    Y: sp.csr_array,
    delta: float = 0.1,
    block: int = ENTRIES_IN_A_BLOCK,
    point_weights: Floats | None = None,
) -> sp.csr_array:
    """Return P(i | j) = C_ij / C_jj with C = Y^T Y, in row j and column i (Gandalf's t_j).

    The diagonal is always there and always 1, also for labels without points and for delta >= 1. C never exists as a
    whole: it is computed in blocks of rows, of which only the entries above the threshold are kept.

    Parameters
    ----------
    Y : targets (N x L). An entry of at least one half counts as one, others as none.
    delta : only probabilities greater than this are kept.
    block : about how many entries of C each thread holds at a time.
    point_weights : [N] how much each point counts: C = Y^T diag(w) Y. None: all alike.
    """
    Y = binary_targets(Y)
    weighted = Y
    if point_weights is not None:
        counted = np.flatnonzero(point_weights > 0)
        Y = Y[counted]
        weighted = sp.diags_array(point_weights[counted], format="csr") @ Y
    frequency = np.bincount(weighted.indices, weighted.data, minlength=Y.shape[1]).astype(np.float32)
    with titled("conditional probabilities"):
        C = product(
            weighted.T.tocsr(),
            Y,
            above=np.float32(delta) * frequency,
            diagonal=True,
            block=block,
        )
    entries_per_row = np.diff(C.indptr)
    C.data /= np.repeat(frequency, entries_per_row)
    # With weights, rounding would make some of them a little more or less.
    C.data[C.indices == np.repeat(np.arange(len(frequency)), entries_per_row)] = 1
    np.minimum(C.data, 1, out=C.data)
    return _with_self_loops(C, frequency == 0)


def prune_by_cosine(
    graph: sp.csr_array,
    label_vectors: Floats,
    limit: float = 1.0,
) -> sp.csr_array:
    """Drop edges between labels that are far from each other. Self loops stay.

    Parameters
    ----------
    graph : a label graph (L x L). It is not changed.
    label_vectors : one vector per label. A zero vector is at distance 1 from all others.
    limit : the greatest cosine distance, 1 - cos, of an edge that stays. The default drops negative cosines.
    """
    if len(label_vectors) != graph.shape[0]:
        raise InputError(f"a graph of {graph.shape[0]} labels needs as many vectors, got {len(label_vectors)}")
    pruned: sp.csr_array = graph.astype(np.float32)  # a copy, in which distant edges become zeros
    edges = arrays_of(pruned)
    vectors = unit_vectors(label_vectors)
    min_cosine = np.float32(1 - limit)

    def prune(rows: tuple[int, int]) -> None:
        _zero_distant_edges(edges, *rows, vectors, min_cosine)

    map_threads(prune, split_range(pruned.shape[0], LABELS_IN_A_BLOCK))
    pruned.eliminate_zeros()
    return pruned


def cluster_graph(
    graph: sp.csr_array,
    clustering: Clustering,
    top: int | None = 10,
) -> sp.csr_array:
    """Return M^T G M (K x K): the sums of edges between clusters.

    Parameters
    ----------
    graph : raw counts between labels (L x L). Normalise the result, not the input.
    clustering : which label is in which cluster.
    top : how many entries a row keeps, the largest ones; None keeps all.
    """
    M = clustering.to_csr()
    label_to_cluster = (graph @ M).tocsr()
    return product(M.T.tocsr(), label_to_cluster, top)


def _with_self_loops(graph: sp.csr_array, isolated: npt.NDArray[np.bool_]) -> sp.csr_array:
    """Give isolated labels, whose rows are empty, a self loop of 1."""
    loops = sp.diags_array(isolated.astype(np.float32), format="csr")
    complete: sp.csr_array = (graph + loops).tocsr()
    return complete


@njit(cache=True, nogil=True)
def _zero_distant_edges(
    graph: CsrArrays,
    start: int,
    stop: int,
    vectors: Floats,
    min_cosine: np.float32,
) -> None:
    for row in range(start, stop):
        for i in range(graph.indptr[row], graph.indptr[row + 1]):
            column = graph.indices[i]
            if column == row:
                continue
            if dot(vectors[row], vectors[column]) < min_cosine:
                graph.data[i] = 0
