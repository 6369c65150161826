"""The k best of many scores, with one tie rule everywhere: of equal scores, the smaller id comes first.

A score and its id travel as one 64-bit key whose order is the order of a `TopK`. So no tie is ever left to chance, and
a partial sort of integers does all the work.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

SIGN = np.uint32(0x80000000)
LOW = np.uint32(0xFFFFFFFF)
SHIFT = np.uint64(32)


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


@njit(cache=True)
def keep_largest(values: npt.NDArray[np.float32], ids: npt.NDArray[np.int32], top: int, always: int) -> int:
    """Move the `top` largest entries, and id `always` where it occurs, to the front; return how many they are."""
    if values.size <= top:
        return values.size
    keys = np.empty(values.size, np.uint64)
    for i in range(values.size):
        keys[i] = key_of(values[i], ids[i])
    last = np.uint64(0xFFFFFFFFFFFFFFFF)  # no key is so great
    if top:
        unsorted = keys.copy()
        largest_first(unsorted, unsorted.size, top)
        last = unsorted[top - 1]
    kept = 0
    for i in range(values.size):
        if keys[i] >= last or ids[i] == always:
            values[kept], ids[kept] = values[i], ids[i]
            kept += 1
    return kept
