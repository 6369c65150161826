"""Sparse matrices as kernels take and make them: CSR arrays of fixed widths, whose names are scipy's.

- `SparseRows` is the form to keep and pass around: it knows its width, takes rows and lists entries by column.
- `CsrArrays` is the same without the width, as a tuple that numba understands: what compiled loops take.
- `RowBlock` is what a compiled loop returns: some rows of a new matrix. `stack_rows` makes a matrix of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numba import njit

from xcbench.kernels.arrays import Floats, Ints, Longs


class CsrArrays(NamedTuple):
    """The arrays of a CSR matrix, for compiled loops. Row r is at indptr[r] to indptr[r + 1] of the other two."""

    indptr: Longs  # [rows + 1]
    indices: Ints
    data: Floats


def arrays_of(matrix: sp.csr_array) -> CsrArrays:
    """Return the arrays of a scipy matrix. They are copied only where their types differ."""
    return CsrArrays(
        np.ascontiguousarray(matrix.indptr, np.int64),
        np.ascontiguousarray(matrix.indices, np.int32),
        np.ascontiguousarray(matrix.data, np.float32),
    )


@dataclass(frozen=True)
class SparseRows:
    """Rows of a sparse matrix with `width` columns, in main memory. Whoever computes elsewhere moves them there."""

    indptr: Longs  # [rows + 1]
    indices: Ints
    data: Floats
    width: int

    @classmethod
    def of(cls, matrix: sp.csr_array) -> SparseRows:
        """View a scipy matrix, or convert it where its types differ."""
        width = int(matrix.shape[1])
        return cls(*arrays_of(matrix), width)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.indptr) - 1

    @property
    def arrays(self) -> CsrArrays:
        """The form for compiled loops."""
        return CsrArrays(self.indptr, self.indices, self.data)

    def take(self, rows: Longs) -> SparseRows:
        """Return some of the rows, in the order given."""
        taken = _take(self.arrays, rows)
        return SparseRows(*taken, self.width)

    def in_table(self) -> tuple[int, Longs]:
        """Return the length T of the longest row, and the place of each entry in a flattened table of [rows, T].

        The entries of a row stand at the row's first places, in their order; the places behind them are padding.
        """
        lengths = np.diff(self.indptr)
        T = int(lengths.max(initial=0))
        gaps = np.arange(len(self)) * T - self.indptr[:-1]
        return T, np.arange(len(self.indices)) + np.repeat(gaps, lengths)

    @cached_property
    def by_column(self) -> ByColumn:
        """The entries sorted by column. Computed once."""
        entries = _by_column(self.indptr, self.indices, self.width)
        return ByColumn(*entries)


@dataclass(frozen=True)
class ByColumn:
    """The entries of `SparseRows` sorted by column: the order in which gradients with respect to columns are added.

    Entries indptr[c] to indptr[c + 1] belong to columns[c].
    """

    columns: Ints  # the columns with at least one entry, ascending
    indptr: Longs  # [len(columns) + 1]
    rows: Ints  # the row of each entry
    entries: Longs  # the position of each entry in the row form


@njit(cache=True, nogil=True)
def _take(matrix: CsrArrays, rows: Longs) -> tuple[Longs, Ints, Floats]:
    indptr = np.zeros(len(rows) + 1, np.int64)
    for i, row in enumerate(rows):
        size = matrix.indptr[row + 1] - matrix.indptr[row]
        indptr[i + 1] = indptr[i] + size

    indices = np.empty(indptr[-1], np.int32)
    data = np.empty(indptr[-1], np.float32)
    for i, row in enumerate(rows):
        offset = matrix.indptr[row] - indptr[i]
        for e in range(indptr[i], indptr[i + 1]):
            indices[e] = matrix.indices[e + offset]
            data[e] = matrix.data[e + offset]
    return indptr, indices, data


@njit(cache=True, nogil=True)
def _by_column(
    row_indptr: Longs,
    indices: Ints,
    width: int,
) -> tuple[Ints, Longs, Ints, Longs]:
    count = np.zeros(width, np.int64)
    for column in indices:
        count[column] += 1
    columns = np.flatnonzero(count).astype(np.int32)

    indptr = np.zeros(len(columns) + 1, np.int64)
    next_position = count  # reuses the memory: from here on, where the column's next entry goes
    for k, column in enumerate(columns):
        indptr[k + 1] = indptr[k] + count[column]
        next_position[column] = indptr[k]

    rows = np.empty(len(indices), np.int32)
    entries = np.empty(len(indices), np.int64)
    for row in range(len(row_indptr) - 1):
        for e in range(row_indptr[row], row_indptr[row + 1]):
            position = next_position[indices[e]]
            rows[position] = row
            entries[position] = e
            next_position[indices[e]] = position + 1
    return columns, indptr, rows, entries


RowBlock: TypeAlias = tuple[Longs, Ints, Floats]
"""Some rows of a sparse matrix: the size of each row, then the columns and the values of all their entries."""


@njit(cache=True, nogil=True)
def pack_rows(
    starts: Longs,
    sizes: Longs,
    indices: Ints,
    data: Floats,
) -> RowBlock:
    """Copy rows out of a buffer with gaps, in which row r has `sizes[r]` entries from `starts[r]` on."""
    packed_indices = np.empty(sizes.sum(), np.int32)
    packed_data = np.empty(sizes.sum(), np.float32)
    end = 0
    for row in range(sizes.size):
        first = end
        end = first + sizes[row]
        start = starts[row]
        stop = start + sizes[row]
        packed_indices[first:end] = indices[start:stop]
        packed_data[first:end] = data[start:stop]
    return sizes, packed_indices, packed_data


@njit(cache=True)
def write_rows(
    block: RowBlock,
    starts: Longs,
    indices: Ints,
    data: Floats,
) -> None:
    """Copy the rows of a block into the arrays of a matrix: row r goes to `starts[r]` and after."""
    sizes, block_indices, block_data = block
    end = 0
    for row in range(sizes.size):
        first = end
        end = first + sizes[row]
        start = starts[row]
        stop = start + sizes[row]
        indices[start:stop] = block_indices[first:end]
        data[start:stop] = block_data[first:end]


def stack_rows(blocks: Sequence[RowBlock], width: int) -> sp.csr_array:
    """Stack blocks into one matrix with `width` columns. Columns come out sorted."""
    # The first arrays give the right types even if there are no blocks.
    sizes = [np.zeros(1, np.int64)]
    indices = [np.zeros(0, np.int32)]
    data = [np.zeros(0, np.float32)]
    for block_sizes, block_indices, block_data in blocks:
        sizes.append(block_sizes)
        indices.append(block_indices)
        data.append(block_data)

    indptr = np.concatenate(sizes).cumsum()
    arrays = (np.concatenate(data), np.concatenate(indices), indptr)
    matrix = sp.csr_array(arrays, shape=(len(indptr) - 1, width))
    matrix.sort_indices()
    return matrix


@njit(cache=True, fastmath={"reassoc", "contract"})
def dot(a: Floats, b: Floats) -> np.float32:
    """Return the inner product of two contiguous vectors. The compiler orders the additions, always the same way."""
    total: np.float32 = np.float32(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total
