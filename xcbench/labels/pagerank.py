"""Personalised PageRank: which labels a restarting walk over a label graph visits most, by local pushes.

The algorithm is that of Andersen, Chung and Lang: each label has an estimate and a residual, probability that still has
to be spread. A push settles a share of a label's residual and passes the rest on to its neighbours.
"""

import numpy as np
import scipy.sparse as sp
from numba import njit

from xcbench.errors import InputError
from xcbench.kernels.arrays import Doubles, Ints
from xcbench.kernels.csr import CsrArrays, RowBlock, arrays_of, pack_rows, stack_rows
from xcbench.kernels.parallel import map_threads, split_range
from xcbench.kernels.selection import keep_largest
from xcbench.labels.normalise import by_row

ROWS_IN_A_BLOCK = 1 << 12


def personalised_pagerank(
    graph: sp.csr_array,
    starts: sp.csr_array | None = None,
    restart: float = 0.2,
    top: int = 100,
    tolerance: float = 1e-4,
) -> sp.csr_array:
    """Return rows p = restart * s + (1 - restart) * p P (n x L), where P is the row-stochastic graph.

    A row costs as much as the part of the graph that it reaches, whatever L is.

    Parameters
    ----------
    graph : a label graph (L x L). A label without edges keeps what reaches it.
    starts : one start distribution s per row (n x L), scaled to sum 1. None: each label by itself.
    restart : the probability of a return to the start.
    top : how many entries a row keeps, the largest ones.
    tolerance : residuals below this are not passed on. Entries are too small by at most what is left.
    """
    if not 0 < restart <= 1 or tolerance <= 0:
        raise InputError(f"PageRank needs 0 < restart <= 1 and a positive tolerance, got {restart} and {tolerance}")
    L = graph.shape[0]
    if starts is None:
        identity = sp.eye_array(L, dtype=np.float32)
        starts = sp.csr_array(identity)
    elif starts.shape[1] != L:
        raise InputError(f"starts over {starts.shape[1]} labels do not fit a graph of {L}")
    else:
        starts = by_row(_without_zeros(starts))

    P = arrays_of(by_row(_without_zeros(graph)))
    start_rows = arrays_of(starts)
    top = min(top, L)

    def push(rows: tuple[int, int]) -> RowBlock:
        return _push_rows(P, start_rows, *rows, restart, tolerance, top)

    ranges = split_range(starts.shape[0], ROWS_IN_A_BLOCK)
    blocks = map_threads(push, ranges)
    return stack_rows(blocks, L)


def _without_zeros(matrix: sp.csr_array) -> sp.csr_array:
    """Drop stored zeros: an edge of weight 0 is no edge."""
    if matrix.data.all():
        return matrix
    matrix = matrix.copy()
    matrix.eliminate_zeros()
    return matrix


@njit(cache=True, nogil=True)
def _push_rows(
    P: CsrArrays,
    starts: CsrArrays,
    start: int,
    stop: int,
    restart: float,
    tolerance: float,
    top: int,
) -> RowBlock:
    L = P.indptr.size - 1
    estimate = np.zeros(L)
    residual = np.zeros(L)
    queue = np.empty(L, np.int32)
    touched = np.empty(L, np.int32)
    probabilities = np.empty(L, np.float32)

    sizes = np.empty(stop - start, np.int64)
    ids = np.empty(sizes.size * top, np.int32)
    values = np.empty(sizes.size * top, np.float32)
    for r in range(sizes.size):
        n = _push(
            P,
            starts,
            start + r,
            restart,
            tolerance,
            estimate,
            residual,
            queue,
            touched,
        )
        for i in range(n):
            label = touched[i]
            probabilities[i] = estimate[label] + restart * residual[label]
            estimate[label] = 0
            residual[label] = 0
        n = keep_largest(probabilities[:n], touched[:n], top, -1)
        first = r * top
        ids[first : first + n] = touched[:n]
        values[first : first + n] = probabilities[:n]
        sizes[r] = n
    starts_of_rows = top * np.arange(sizes.size)
    return pack_rows(starts_of_rows, sizes, ids, values)


@njit(cache=True)
def _push(
    P: CsrArrays,
    starts: CsrArrays,
    row: int,
    restart: float,
    tolerance: float,
    estimate: Doubles,
    residual: Doubles,
    queue: Ints,
    touched: Ints,
) -> int:
    """Push until no residual exceeds the tolerance; labels with a larger one wait in the (ring) queue.

    Writes the labels that were reached to `touched`, and returns their number.
    """
    n = 0
    head = 0
    waiting = 0
    for i in range(starts.indptr[row], starts.indptr[row + 1]):
        label = starts.indices[i]
        touched[n] = label
        n += 1
        residual[label] = starts.data[i]
        if residual[label] > tolerance:
            queue[waiting] = label
            waiting += 1

    while waiting > 0:
        label = queue[head]
        head = (head + 1) % queue.size
        waiting -= 1

        amount = residual[label]
        residual[label] = 0.0
        begin = P.indptr[label]
        end = P.indptr[label + 1]
        if end > begin:
            estimate[label] += restart * amount
        else:
            estimate[label] += amount

        for i in range(begin, end):
            other = P.indices[i]
            passed = (1 - restart) * amount * P.data[i]
            if passed == 0:  # a label that gets nothing would count as touched at every visit
                continue
            before = residual[other]
            if before == 0 and estimate[other] == 0:
                touched[n] = other
                n += 1
            residual[other] = before + passed
            if before <= tolerance < residual[other]:
                queue[(head + waiting) % queue.size] = other
                waiting += 1
    return n
