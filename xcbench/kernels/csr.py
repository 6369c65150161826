"""The forms in which matrices enter and leave the kernels of this room."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit


class Rows(NamedTuple):
    """A CSR matrix as kernels take it: fixed widths, so that each kernel is compiled once."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    data: npt.NDArray[np.float32]


def rows_of(matrix: sp.csr_array) -> Rows:
    return Rows(
        matrix.indptr.astype(np.int64, copy=False),
        matrix.indices.astype(np.int32, copy=False),
        matrix.data.astype(np.float32, copy=False),
    )


@njit(cache=True, fastmath={"reassoc", "contract"})
def dot(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> np.float32:
    """The inner product of two contiguous vectors; the order of its additions is the compiler's, always the same."""
    total: np.float32 = np.float32(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


RowBlock: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]
"""Some rows of a sparse matrix: their sizes, then the columns and the values of all their entries in turn."""


@njit(cache=True, nogil=True)
def pack(
    at: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
) -> RowBlock:
    """The rows of a buffer in which row r begins at `at[r]` and has `sizes[r]` entries, without the gaps."""
    packed_ids, packed_values = np.empty(sizes.sum(), np.int32), np.empty(sizes.sum(), np.float32)
    end = 0
    for row in range(sizes.size):
        start, end = end, end + sizes[row]
        packed_ids[start:end] = ids[at[row] : at[row] + sizes[row]]
        packed_values[start:end] = values[at[row] : at[row] + sizes[row]]
    return sizes, packed_ids, packed_values


@njit(cache=True)
def place_rows(
    block: RowBlock, at: npt.NDArray[np.int64], ids: npt.NDArray[np.int32], values: npt.NDArray[np.float32]
) -> None:
    """Write each row of a block to its place in the arrays of a matrix."""
    sizes, block_ids, block_values = block
    end = 0
    for row in range(sizes.size):
        start, end = end, end + sizes[row]
        ids[at[row] : at[row] + sizes[row]] = block_ids[start:end]
        values[at[row] : at[row] + sizes[row]] = block_values[start:end]


def stacked(blocks: Sequence[RowBlock], width: int) -> sp.csr_array:
    """The matrix whose rows the blocks hold, one after the other, with columns in order."""
    indptr = np.concatenate([np.zeros(1, np.int64), *(sizes for sizes, _, _ in blocks)]).cumsum()
    ids = np.concatenate([np.zeros(0, np.int32), *(ids for _, ids, _ in blocks)])
    values = np.concatenate([np.zeros(0, np.float32), *(values for _, _, values in blocks)])
    matrix = sp.csr_array((values, ids, indptr), shape=(len(indptr) - 1, width))
    matrix.sort_indices()
    return matrix
