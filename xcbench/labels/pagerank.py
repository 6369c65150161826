"""Personalised PageRank: which labels a restarting walk over a label graph visits most, by local pushes."""

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.errors import InputError
from xcbench.kernels.csr import RowBlock, Rows, pack, rows_of, stacked
from xcbench.kernels.selection import keep_largest
from xcbench.kernels.threads import map_threads, split_range
from xcbench.labels.normalise import by_row

ROWS_IN_A_BLOCK = 1 << 12


def personalised_pagerank(
    graph: sp.csr_array,
    starts: sp.csr_array | None = None,
    restart: float = 0.2,
    top: int = 100,
    tolerance: float = 1e-4,
) -> sp.csr_array:
    """Rows p = restart * s + (1 - restart) * p P, cut to their `top` largest entries (n x L).

    P is the row-stochastic graph; a label without edges keeps what reaches it. Each row s of `starts` (default:
    every label by itself) is scaled to sum 1. Mass below `tolerance` is not passed on any more, so entries are too
    small by at most the mass left over, and a row costs what its surroundings cost, whatever L is.
    """
    if not 0 < restart <= 1 or tolerance <= 0:
        raise InputError(f"PageRank needs 0 < restart <= 1 and a positive tolerance, got {restart} and {tolerance}")
    L = graph.shape[0]
    if starts is not None and starts.shape[1] != L:
        raise InputError(f"starts over {starts.shape[1]} labels do not fit a graph of {L}")
    starts = sp.csr_array(sp.eye_array(L, dtype=np.float32)) if starts is None else by_row(_without_zeros(starts))
    P, s = rows_of(by_row(_without_zeros(graph))), rows_of(starts)
    parts = split_range(starts.shape[0], ROWS_IN_A_BLOCK)
    return stacked(map_threads(lambda rows: _push_rows(P, s, *rows, restart, tolerance, min(top, L)), parts), L)


def _without_zeros(matrix: sp.csr_array) -> sp.csr_array:
    """An edge of weight 0 is none."""
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    return matrix


@njit(cache=True, nogil=True)
def _push_rows(P: Rows, starts: Rows, start: int, stop: int, restart: float, tolerance: float, top: int) -> RowBlock:
    L = P.indptr.size - 1
    mass, rest, kept = np.zeros(L), np.zeros(L), np.empty(L, np.float32)
    queue, touched = np.empty(L, np.int32), np.empty(L, np.int32)
    sizes = np.empty(stop - start, np.int64)
    ids, values = np.empty(sizes.size * top, np.int32), np.empty(sizes.size * top, np.float32)
    for r in range(sizes.size):
        n = _push(P, starts, start + r, restart, tolerance, mass, rest, queue, touched)
        for i in range(n):
            label = touched[i]
            kept[i] = mass[label] + restart * rest[label]
            mass[label] = rest[label] = 0
        n = keep_largest(kept[:n], touched[:n], top, -1)
        ids[r * top : r * top + n] = touched[:n]
        values[r * top : r * top + n] = kept[:n]
        sizes[r] = n
    return pack(top * np.arange(sizes.size), sizes, ids, values)


@njit(cache=True)
def _push(
    P: Rows,
    starts: Rows,
    row: int,
    restart: float,
    tolerance: float,
    mass: npt.NDArray[np.float64],
    rest: npt.NDArray[np.float64],
    queue: npt.NDArray[np.int32],
    touched: npt.NDArray[np.int32],
) -> int:
    """Settle mass until no label holds more than the tolerance; a label waits in the (ring) queue while it does."""
    n = head = waiting = 0
    for i in range(starts.indptr[row], starts.indptr[row + 1]):
        label = starts.indices[i]
        touched[n] = label
        n += 1
        rest[label] = starts.data[i]
        if rest[label] > tolerance:
            queue[waiting] = label
            waiting += 1
    while waiting > 0:
        label = queue[head]
        head = (head + 1) % queue.size
        waiting -= 1
        settled, rest[label] = rest[label], 0.0
        begin, end = P.indptr[label], P.indptr[label + 1]
        mass[label] += restart * settled if end > begin else settled
        for i in range(begin, end):
            other, passed = P.indices[i], (1 - restart) * settled * P.data[i]
            if passed == 0:  # what gets nothing stays untouched, or else it would be noted at every visit
                continue
            before = rest[other]
            if before == 0 and mass[other] == 0:
                touched[n] = other
                n += 1
            rest[other] = before + passed
            if before <= tolerance < rest[other]:
                queue[(head + waiting) % queue.size] = other
                waiting += 1
    return n
