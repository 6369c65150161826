"""The k best of many scores: the kernels behind every shortlist and every prediction.

A score and its label travel as one 64-bit key whose order is the order of a `TopK`: higher score first, smaller label
first among equals. So no tie is ever left to chance, and a partial sort of integers does all the work.

The kernels of this room are serial and release the interpreter: blocks of points run side by side (see `blocks`).
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from xcbench.data import TopK

SIGN = np.uint32(0x80000000)
LOW = np.uint32(0xFFFFFFFF)
SHIFT = np.uint64(32)

SCAN = 64  # scores compared with the threshold at once; one branch for all of them
STEP = 16  # scores in a piece whose maximum helps to find a first threshold


@njit(cache=True)
def key_of(score: np.float32, label: int) -> np.uint64:
    """The rank of (score, label) as an integer: greater is better."""
    bits = np.uint32(np.float32(score + np.float32(0.0)).view(np.uint32))  # the sum makes -0.0 equal to 0.0
    bits = np.uint32(~bits) if bits & SIGN else np.uint32(bits | SIGN)
    key: np.uint64 = (np.uint64(bits) << SHIFT) | np.uint64(LOW - np.uint32(label))
    return key


@njit(cache=True)
def score_in(key: np.uint64) -> np.float32:
    bits = np.uint32(key >> SHIFT)
    bits = np.uint32(bits ^ SIGN) if bits & SIGN else np.uint32(~bits)
    score: np.float32 = np.uint32(bits).view(np.float32)
    return score


@njit(cache=True)
def label_in(key: np.uint64) -> int:
    label: int = np.int32(LOW - np.uint32(key & np.uint64(LOW)))
    return label


@njit(cache=True)
def largest_first(values: npt.NDArray[np.generic], count: int, k: int) -> None:
    """Reorder values[:count] so that the k largest come first, in no particular order, the k-th of them at k - 1."""
    low, high, target = 0, count - 1, k - 1
    while low < high:
        middle = (low + high) // 2
        if values[middle] > values[low]:
            values[middle], values[low] = values[low], values[middle]
        if values[high] > values[low]:
            values[high], values[low] = values[low], values[high]
        if values[high] > values[middle]:
            values[high], values[middle] = values[middle], values[high]
        pivot = values[middle]
        left, right = low, high
        while left <= right:
            while values[left] > pivot:
                left += 1
            while values[right] < pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if target <= right:
            high = right
        elif target >= left:
            low = left
        else:
            return


@njit(cache=True)
def write_best(
    keys: npt.NDArray[np.uint64], count: int, labels: npt.NDArray[np.int32], scores: npt.NDArray[np.float32]
) -> None:
    """Sort the best of keys[:count] into one row of a `TopK`; what is left of the row becomes padding."""
    k = len(labels)
    if count > k:
        largest_first(keys, count, k)
        count = k
    keys[:count].sort()
    for place in range(count):
        key = keys[count - 1 - place]
        labels[place] = label_in(key)
        scores[place] = score_in(key)
    labels[count:] = -1
    scores[count:] = -np.inf


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
