"""The k best of many scores, with one tie rule everywhere: of equal scores, the smaller id comes first.

A score and its id are packed into one 64-bit key. Keys are ordered as the entries of a `TopK` are, so that no tie is
left to chance and a partial sort of integers does all the work.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from xcbench.kernels.arrays import Floats, Ints

SIGN = np.uint32(0x80000000)
LOW = np.uint32(0xFFFFFFFF)
SHIFT = np.uint64(32)
GREATER_THAN_ALL_KEYS = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(cache=True)
def key_of(score: np.float32, label: int) -> np.uint64:
    """Pack a score and a label into one integer. A greater key is better."""
    score = np.float32(score + np.float32(0.0))  # makes -0.0 equal to 0.0
    bits = np.uint32(score.view(np.uint32))

    # Floats are stored as sign and magnitude: flip them so that unsigned integers have the order of the scores.
    if bits & SIGN:
        bits = np.uint32(~bits)
    else:
        bits = np.uint32(bits | SIGN)

    smaller_label_first = LOW - np.uint32(label)
    key: np.uint64 = (np.uint64(bits) << SHIFT) | np.uint64(smaller_label_first)
    return key


@njit(cache=True)
def score_in(key: np.uint64) -> np.float32:
    """Return the score of a key."""
    bits = np.uint32(key >> SHIFT)
    if bits & SIGN:
        bits = np.uint32(bits ^ SIGN)
    else:
        bits = np.uint32(~bits)
    score: np.float32 = np.uint32(bits).view(np.float32)
    return score


@njit(cache=True)
def label_in(key: np.uint64) -> int:
    """Return the label of a key."""
    low_bits = np.uint32(key & np.uint64(LOW))
    label: int = np.int32(LOW - low_bits)
    return label


@njit(cache=True)
def largest_first(values: npt.NDArray[np.generic], count: int, k: int) -> None:
    """Reorder values[:count] so that the k largest come first, in any order, except that the k-th is at k - 1."""
    low = 0
    high = count - 1
    target = k - 1
    while low < high:
        # The median of three values becomes the pivot.
        middle = (low + high) // 2
        if values[middle] > values[low]:
            values[middle], values[low] = values[low], values[middle]
        if values[high] > values[low]:
            values[high], values[low] = values[low], values[high]
        if values[high] > values[middle]:
            values[high], values[middle] = values[middle], values[high]
        pivot = values[middle]

        left = low
        right = high
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
    keys: npt.NDArray[np.uint64],
    count: int,
    labels: Ints,
    scores: Floats,
) -> None:
    """Write the best of keys[:count] to one row of a `TopK`, best first. What is left of the row is padded."""
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
def keep_largest(
    values: Floats,
    ids: Ints,
    top: int,
    always: int,
) -> int:
    """Move the `top` largest entries, and id `always` if it occurs, to the front. Return how many they are."""
    if values.size <= top:
        return values.size

    keys = np.empty(values.size, np.uint64)
    for i in range(values.size):
        keys[i] = key_of(values[i], ids[i])

    smallest_kept = GREATER_THAN_ALL_KEYS
    if top:
        unsorted = keys.copy()
        largest_first(unsorted, unsorted.size, top)
        smallest_kept = unsorted[top - 1]

    count = 0
    for i in range(values.size):
        if keys[i] >= smallest_kept or ids[i] == always:
            values[count] = values[i]
            ids[count] = ids[i]
            count += 1
    return count
