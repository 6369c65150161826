"""The k best columns of score blocks that stream by: the kernels behind every exact search.

The kernels of this room are serial and release the interpreter: blocks of points run side by side (see `blocks`).
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from xcbench.data import TopK
from xcbench.kernels.selection import key_of, largest_first, score_in, write_best

SCAN = 64  # scores compared with the threshold at once; one branch for all of them
STEP = 16  # scores in a piece whose maximum helps to find a first threshold


@njit(cache=True, fastmath={"nnan", "nsz"})
def _chunk_maximum(row: npt.NDArray[np.float32], start: int) -> np.float32:
    best: np.float32 = row[start]
    for j in range(1, STEP):
        best = max(best, row[start + j])
    return best


@njit(cache=True)
def _lower_bound(row: npt.NDArray[np.float32], k: int, maxima: npt.NDArray[np.float32]) -> np.float32:
    """A score that at least k entries of the row exceed: just under the k-th largest of its pieces' maxima."""
    for piece in range(len(maxima)):
        best = _chunk_maximum(row, piece * STEP)
        maxima[piece] = best if best > -np.inf else -np.inf  # nan never counts
    largest_first(maxima, len(maxima), k)
    below: np.float32 = np.nextafter(maxima[k - 1], np.float32(-np.inf))
    return below


@njit(cache=True)
def _keep(
    row: npt.NDArray[np.float32],
    start: int,
    stop: int,
    threshold: np.float32,
    first: int,
    keys: npt.NDArray[np.uint64],
    count: int,
    picked: npt.NDArray[np.int64],
) -> int:
    """Append the entries of row[start:stop] above the threshold, found without a branch each."""
    found = 0
    for j in range(start, stop):
        picked[found] = j
        found += row[j] > threshold
    for place in range(found):
        keys[count + place] = key_of(row[picked[place]], first + picked[place])
    return count + found


@njit(cache=True, nogil=True)
def _offer(
    S: npt.NDArray[np.float32],
    bias: npt.NDArray[np.float32],
    first: int,
    keys: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.int64],
    thresholds: npt.NDArray[np.float32],
    k: int,
) -> None:
    rows, columns = S.shape
    picked = np.empty(SCAN, np.int64)
    maxima = np.empty(columns // STEP, np.float32)
    for i in range(rows):
        row, kept, count, threshold = S[i], keys[i], counts[i], thresholds[i]
        if len(bias) > 0:
            for j in range(columns):
                row[j] += bias[j]
        if count == 0 and columns // STEP >= k:
            threshold = max(threshold, _lower_bound(row, k, maxima))
        for start in range(0, columns, SCAN):
            above = 0
            if start + SCAN <= columns:
                for j in range(start, start + SCAN):
                    above |= row[j] > threshold
            else:
                above = 1
            if above:
                count = _keep(row, start, min(start + SCAN, columns), threshold, first, kept, count, picked)
                if count > len(kept) - SCAN:
                    largest_first(kept, count, k)
                    count, threshold = k, score_in(kept[k - 1])
        counts[i], thresholds[i] = count, threshold


@njit(cache=True, nogil=True)
def _finish(
    keys: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
) -> None:
    for i in range(len(labels)):
        write_best(keys[i], counts[i], labels[i], scores[i])


class RunningTopK:
    """The k best columns of each row, kept while blocks of scores stream by; memory does not grow with the columns.

    Scores of nan and -inf are never kept.
    """

    def __init__(self, rows: int, k: int) -> None:
        self._k = k
        self._keys = np.empty((rows, 2 * k + SCAN), np.uint64)
        self._counts = np.zeros(rows, np.int64)
        self._thresholds = np.full(rows, -np.inf, np.float32)

    def offer(self, S: npt.NDArray[np.float32], bias: npt.NDArray[np.float32], first: int) -> None:
        """Take in the scores S + bias of columns first, first + 1, ... (an empty bias is none); S is overwritten."""
        _offer(S, bias, first, self._keys, self._counts, self._thresholds, self._k)

    def result(self) -> TopK:
        """The best of each row, sorted."""
        found = TopK(np.empty((len(self._keys), self._k), np.int32), np.empty((len(self._keys), self._k), np.float32))
        _finish(self._keys, self._counts, found.indices, found.scores)
        return found
