"""Sparse products whose rows are cut as soon as they are computed, so that the full product never exists.

Co-occurrence, conditional probabilities, centroids, graph-smoothed centroids and cluster graphs are all of this form.
"""

import numpy as np
import scipy.sparse as sp
from numba import njit

from xcbench.errors import InputError
from xcbench.kernels.arrays import Doubles, Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, RowBlock, arrays_of, pack_rows, stack_rows
from xcbench.kernels.parallel import map_threads
from xcbench.kernels.selection import keep_largest

ENTRIES_IN_A_BLOCK = 1 << 22


def product(
    A: sp.csr_array,
    B: sp.csr_array,
    top: int | None = None,
    above: Floats | None = None,
    diagonal: bool = False,
    block: int = ENTRIES_IN_A_BLOCK,
) -> sp.csr_array:
    """Return A B with some entries of each row only. Columns come out sorted.

    Parameters
    ----------
    A, B : the factors.
    top : how many entries a row keeps, the largest ones; None keeps all.
    above : for each row a number that its entries must exceed.
    diagonal : whether entry (r, r) stays in any case, unless it is zero.
    block : how many entries, before the cut, each thread holds at a time (a single row may have more).
    """
    if A.shape[1] != B.shape[0]:
        raise InputError(f"matrices of {A.shape} and {B.shape} have no product")
    a = arrays_of(A)
    b = arrays_of(B)
    width = B.shape[1]

    if top is None:
        top = width
    if above is None:
        above = np.full(A.shape[0], -np.inf, np.float32)
    floor = above.astype(np.float32, copy=False)
    capacity = _capacity(a, b, width)

    def multiply(rows: tuple[int, int]) -> RowBlock:
        start, stop = rows
        return _product_rows(
            a,
            b,
            start,
            stop,
            capacity,
            floor,
            top,
            diagonal,
            width,
        )

    blocks = map_threads(multiply, _row_ranges(capacity, block))
    return stack_rows(blocks, width)


def keep_top(graph: sp.csr_array, top: int, diagonal: bool = True) -> sp.csr_array:
    """Keep the `top` largest entries of each row and, with `diagonal`, its diagonal in any case."""
    identity = sp.eye_array(graph.shape[0], dtype=np.float32)
    return product(sp.csr_array(identity), graph, top, diagonal=diagonal)


def _row_ranges(capacity: Longs, max_entries: int) -> list[tuple[int, int]]:
    """Cut the rows into ranges of at most `max_entries` entries together, or single rows that have more."""
    ends = np.cumsum(capacity)
    ranges = []
    start = 0
    while start < len(capacity):
        entries_before = 0
        if start > 0:
            entries_before = int(ends[start - 1])
        last_end = entries_before + max_entries
        stop = int(np.searchsorted(ends, last_end, side="right"))
        stop = max(start + 1, stop)
        ranges.append((start, stop))
        start = stop
    return ranges


@njit(cache=True)
def _capacity(a: CsrArrays, b: CsrArrays, width: int) -> Longs:
    """Return how many entries each row of the product has at most."""
    capacity = np.zeros(a.indptr.size - 1, np.int64)
    for row in range(capacity.size):
        for i in range(a.indptr[row], a.indptr[row + 1]):
            k = a.indices[i]
            capacity[row] += b.indptr[k + 1] - b.indptr[k]
        capacity[row] = min(capacity[row], width)
    return capacity


@njit(cache=True, nogil=True)
def _product_rows(
    a: CsrArrays,
    b: CsrArrays,
    start: int,
    stop: int,
    capacity: Longs,
    floor: Floats,
    top: int,
    diagonal: bool,
    width: int,
) -> RowBlock:
    sums = np.empty(width, np.float64)
    summed_for = np.full(width, -1, np.int32)

    sizes = np.empty(stop - start, np.int64)
    starts = np.zeros(stop - start, np.int64)
    for r in range(1, sizes.size):
        starts[r] = starts[r - 1] + capacity[start + r - 1]
    length = starts[-1] + capacity[stop - 1]
    ids = np.empty(length, np.int32)
    values = np.empty(length, np.float32)

    for r in range(sizes.size):
        row = start + r
        always = -1
        if diagonal:
            always = row
        row_start = starts[r]
        row_stop = row_start + capacity[row]
        row_ids = ids[row_start:row_stop]
        row_values = values[row_start:row_stop]

        count = _sum_row(a, b, row, sums, summed_for, row_ids)
        row_ids = row_ids[:count]
        count = _keep_above(floor[row], always, sums, row_ids, row_values)
        sizes[r] = keep_largest(row_values[:count], row_ids[:count], top, always)
    return pack_rows(starts, sizes, ids, values)


@njit(cache=True)
def _sum_row(
    a: CsrArrays,
    b: CsrArrays,
    row: int,
    sums: Doubles,
    summed_for: Ints,
    ids: Ints,
) -> int:
    """Write one row of the product to `sums` and its columns to `ids`. Return the number of columns.

    A sum counts only if `summed_for` names this row: so nothing has to be cleared between rows.
    """
    count = 0
    for i in range(a.indptr[row], a.indptr[row + 1]):
        k = a.indices[i]
        weight = np.float64(a.data[i])
        for j in range(b.indptr[k], b.indptr[k + 1]):
            column = b.indices[j]
            if summed_for[column] != row:
                summed_for[column] = row
                sums[column] = 0
                ids[count] = column
                count += 1
            sums[column] += weight * b.data[j]
    return count


@njit(cache=True)
def _keep_above(
    floor: np.float32,
    always: int,
    sums: Doubles,
    ids: Ints,
    values: Floats,
) -> int:
    """Keep the columns whose sum is above the floor and not zero. Column `always` may be below the floor."""
    count = 0
    for column in ids:
        value = np.float32(sums[column])
        if value != 0 and (value > floor or column == always):
            ids[count] = column
            values[count] = value
            count += 1
    return count
