"""Sparse products whose rows are cut while they are made, so that the full product never exists.

Co-occurrence, conditional probabilities, centroids, graph-smoothed centroids and cluster graphs are all of this form.
"""

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.errors import InputError
from xcbench.kernels.csr import RowBlock, Rows, pack, rows_of, stacked
from xcbench.kernels.selection import keep_largest
from xcbench.kernels.threads import map_threads

ENTRIES_IN_A_BLOCK = 1 << 22


def product(
    A: sp.csr_array,
    B: sp.csr_array,
    top: int | None = None,
    above: npt.NDArray[np.float32] | None = None,
    diagonal: bool = False,
    block: int = ENTRIES_IN_A_BLOCK,
) -> sp.csr_array:
    """A B, of which each row keeps its entries greater than `above[row]`, and of these the `top` largest.

    With `diagonal`, entry (r, r) stays in any case where it is not zero. Each thread makes a block of rows at a time
    that holds at most `block` entries before the cut (a single row may hold more). Columns come out sorted.
    """
    if A.shape[1] != B.shape[0]:
        raise InputError(f"matrices of {A.shape} and {B.shape} have no product")
    a, b, width = rows_of(A), rows_of(B), B.shape[1]
    floor = np.full(A.shape[0], -np.inf, np.float32) if above is None else above.astype(np.float32, copy=False)
    room = _room(a, b, width)
    limit = width if top is None else top
    return stacked(
        map_threads(lambda rows: _product_rows(a, b, *rows, room, floor, limit, diagonal, width), _blocks(room, block)),
        width,
    )


def keep_top(graph: sp.csr_array, top: int, diagonal: bool = True) -> sp.csr_array:
    """The `top` largest entries of each row, and with `diagonal` its diagonal besides."""
    return product(sp.csr_array(sp.eye_array(graph.shape[0], dtype=np.float32)), graph, top, diagonal=diagonal)


def _blocks(room: npt.NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """Runs of rows that need at most so much room together, or single rows that need more."""
    end = np.cumsum(room)
    found, start = [], 0
    while start < len(room):
        used = int(end[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(end, used + most, side="right")))
        found.append((start, stop))
        start = stop
    return found


@njit(cache=True)
def _room(a: Rows, b: Rows, width: int) -> npt.NDArray[np.int64]:
    """How many entries a row of the product has at most."""
    room = np.zeros(a.indptr.size - 1, np.int64)
    for row in range(room.size):
        for i in range(a.indptr[row], a.indptr[row + 1]):
            room[row] += b.indptr[a.indices[i] + 1] - b.indptr[a.indices[i]]
        room[row] = min(room[row], width)
    return room


@njit(cache=True, nogil=True)
def _product_rows(
    a: Rows,
    b: Rows,
    start: int,
    stop: int,
    room: npt.NDArray[np.int64],
    floor: npt.NDArray[np.float32],
    top: int,
    diagonal: bool,
    width: int,
) -> RowBlock:
    sums, seen = np.empty(width, np.float64), np.full(width, -1, np.int32)
    at, sizes = np.zeros(stop - start, np.int64), np.empty(stop - start, np.int64)
    for r in range(1, sizes.size):
        at[r] = at[r - 1] + room[start + r - 1]
    ids, values = np.empty(at[-1] + room[stop - 1], np.int32), np.empty(at[-1] + room[stop - 1], np.float32)
    for r in range(sizes.size):
        row = start + r
        always = row if diagonal else -1
        own_ids, own_values = ids[at[r] : at[r] + room[row]], values[at[r] : at[r] + room[row]]
        n = _add_up(a, b, row, sums, seen, own_ids)
        n = _above(floor[row], always, sums, own_ids[:n], own_values)
        sizes[r] = keep_largest(own_values[:n], own_ids[:n], top, always)
    return pack(at, sizes, ids, values)


@njit(cache=True)
def _add_up(
    a: Rows, b: Rows, row: int, sums: npt.NDArray[np.float64], seen: npt.NDArray[np.int32], ids: npt.NDArray[np.int32]
) -> int:
    """One row of the product in `sums`, its columns in `ids`; return their number. `seen` says which sums are ours."""
    n = 0
    for i in range(a.indptr[row], a.indptr[row + 1]):
        k, weight = a.indices[i], np.float64(a.data[i])
        for j in range(b.indptr[k], b.indptr[k + 1]):
            column = b.indices[j]
            if seen[column] != row:
                seen[column] = row
                sums[column] = 0
                ids[n] = column
                n += 1
            sums[column] += weight * b.data[j]
    return n


@njit(cache=True)
def _above(
    floor: np.float32,
    always: int,
    sums: npt.NDArray[np.float64],
    ids: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
) -> int:
    """Keep the columns whose sum is above the floor and not zero; column `always` needs only the latter."""
    kept = 0
    for column in ids:
        value = np.float32(sums[column])
        if value != 0 and (value > floor or column == always):
            ids[kept] = column
            values[kept] = value
            kept += 1
    return kept
