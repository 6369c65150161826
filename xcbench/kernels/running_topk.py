"""The k best columns of each row of scores, kept while the scores are computed block by block: for exact search.

The kernels are serial and release the interpreter's lock, so that blocks of points can be searched side by side.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.selection import key_of, largest_first, score_in, write_best

SCAN = 64
"""How many scores are compared with the threshold at once, with one branch for all of them."""

PIECE = 16
"""How many scores there are in a piece. The maxima of pieces give a first threshold."""


class RunningTopK:
    """The k best columns of each row, kept while blocks of scores arrive. Memory does not grow with the columns.

    Scores of nan and -inf are never kept.
    """

    def __init__(self, rows: int, k: int) -> None:
        self._k = k
        capacity = 2 * k + SCAN
        self._keys = np.empty((rows, capacity), np.uint64)
        self._counts = np.zeros(rows, np.int64)
        self._thresholds = np.full(rows, -np.inf, np.float32)

    def offer(
        self,
        S: Floats,
        bias: Floats,
        first: int,
    ) -> None:
        """Take the scores S + bias of columns first, first + 1, ... An empty bias is none. S is overwritten."""
        _offer(
            S,
            bias,
            first,
            self._keys,
            self._counts,
            self._thresholds,
            self._k,
        )

    def result(self) -> tuple[Ints, Floats]:
        """Return the best columns of each row and their scores, best first."""
        shape = (len(self._keys), self._k)
        columns = np.empty(shape, np.int32)
        scores = np.empty(shape, np.float32)
        _finish(self._keys, self._counts, columns, scores)
        return columns, scores


@njit(cache=True, nogil=True)
def _offer(
    S: Floats,
    bias: Floats,
    first: int,
    keys: npt.NDArray[np.uint64],
    counts: Longs,
    thresholds: Floats,
    k: int,
) -> None:
    rows, columns = S.shape
    picked = np.empty(SCAN, np.int64)
    maxima = np.empty(columns // PIECE, np.float32)
    for i in range(rows):
        row = S[i]
        row_keys = keys[i]
        count = counts[i]
        threshold = thresholds[i]

        if len(bias) > 0:
            for j in range(columns):
                row[j] += bias[j]
        if count == 0 and columns // PIECE >= k:
            threshold = max(threshold, _lower_bound(row, k, maxima))

        for start in range(0, columns, SCAN):
            above = 0
            if start + SCAN <= columns:
                for j in range(start, start + SCAN):
                    above |= row[j] > threshold
            else:
                above = 1
            if above:
                stop = min(start + SCAN, columns)
                count = _append_above(row, start, stop, threshold, first, row_keys, count, picked)
                if count > len(row_keys) - SCAN:
                    largest_first(row_keys, count, k)
                    count = k
                    threshold = score_in(row_keys[k - 1])

        counts[i] = count
        thresholds[i] = threshold


@njit(cache=True)
def _lower_bound(row: Floats, k: int, maxima: Floats) -> np.float32:
    """Return a score that at least k entries of the row exceed: just under the k-th largest maximum of its pieces."""
    for piece in range(len(maxima)):
        maximum = _piece_maximum(row, piece * PIECE)
        if maximum > -np.inf:
            maxima[piece] = maximum
        else:  # nan never counts
            maxima[piece] = -np.inf
    largest_first(maxima, len(maxima), k)
    bound: np.float32 = np.nextafter(maxima[k - 1], np.float32(-np.inf))
    return bound


@njit(cache=True, fastmath={"nnan", "nsz"})
def _piece_maximum(row: Floats, start: int) -> np.float32:
    maximum: np.float32 = row[start]
    for j in range(1, PIECE):
        maximum = max(maximum, row[start + j])
    return maximum


@njit(cache=True)
def _append_above(
    row: Floats,
    start: int,
    stop: int,
    threshold: np.float32,
    first: int,
    keys: npt.NDArray[np.uint64],
    count: int,
    picked: Longs,
) -> int:
    """Append the keys of the entries of row[start:stop] above the threshold, and return the new count."""
    above = 0
    for j in range(start, stop):
        picked[above] = j
        above += row[j] > threshold  # a sum instead of a branch, which would often be mispredicted
    for place in range(above):
        column = picked[place]
        keys[count + place] = key_of(row[column], first + column)
    return count + above


@njit(cache=True, nogil=True)
def _finish(
    keys: npt.NDArray[np.uint64],
    counts: Longs,
    columns: Ints,
    scores: Floats,
) -> None:
    for i in range(len(columns)):
        write_best(keys[i], counts[i], columns[i], scores[i])
