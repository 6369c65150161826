"""Rows of a sparse matrix as three arrays, the form in which points and label text reach the token layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numba import njit

from xcbench.kernels.parallel import Floats, Ints, Longs


@dataclass(frozen=True)
class ByColumn:
    """The same entries sorted by column: what a gradient that flows to the columns has to read."""

    columns: Ints  # those that occur, ascending
    starts: Longs  # [len(columns) + 1]
    rows: Ints
    entries: Longs  # where in the row form each one stands


@dataclass(frozen=True)
class SparseRows:
    """n rows over `width` columns, in the memory of the CPU: they are cut there, and their consumers move them."""

    starts: Longs  # [n + 1]
    columns: Ints
    values: Floats
    width: int

    @classmethod
    def of(cls, matrix: sp.csr_array) -> SparseRows:
        """View (or convert) a scipy matrix."""
        return cls(
            np.ascontiguousarray(matrix.indptr, np.int64),
            np.ascontiguousarray(matrix.indices, np.int32),
            np.ascontiguousarray(matrix.data, np.float32),
            int(matrix.shape[1]),
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, rows: Longs) -> SparseRows:
        """Some of the rows, in the order given."""
        return SparseRows(*_take(self.starts, self.columns, self.values, rows), self.width)

    @cached_property
    def by_column(self) -> ByColumn:
        return ByColumn(*_by_column(self.starts, self.columns, self.width))


@njit(cache=True, nogil=True)
def _take(
    starts: Longs, columns: Ints, values: Floats,
    rows: Longs,
) -> tuple[Longs, Ints, Floats]:  # fmt: skip
    new_starts = np.zeros(len(rows) + 1, np.int64)
    for i, row in enumerate(rows):
        new_starts[i + 1] = new_starts[i] + starts[row + 1] - starts[row]
    new_columns = np.empty(new_starts[-1], np.int32)
    new_values = np.empty(new_starts[-1], np.float32)
    for i, row in enumerate(rows):
        offset = starts[row] - new_starts[i]
        for e in range(new_starts[i], new_starts[i + 1]):
            new_columns[e] = columns[e + offset]
            new_values[e] = values[e + offset]
    return new_starts, new_columns, new_values


@njit(cache=True, nogil=True)
def _by_column(starts: Longs, columns: Ints, width: int) -> tuple[Ints, Longs, Ints, Longs]:
    count = np.zeros(width, np.int64)
    for column in columns:
        count[column] += 1
    used = np.flatnonzero(count).astype(np.int32)
    new_starts = np.zeros(len(used) + 1, np.int64)
    for k, column in enumerate(used):
        new_starts[k + 1] = new_starts[k] + count[column]
        count[column] = new_starts[k]  # from here on: where the column's next entry goes
    rows = np.empty(len(columns), np.int32)
    entries = np.empty(len(columns), np.int64)
    for row in range(len(starts) - 1):
        for e in range(starts[row], starts[row + 1]):
            place = count[columns[e]]
            rows[place] = row
            entries[place] = e
            count[columns[e]] = place + 1
    return used, new_starts, rows, entries
