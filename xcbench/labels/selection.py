"""Partial selection with one tie rule everywhere: of equal values, the smaller id comes first."""

import numpy as np
import numpy.typing as npt
from numba import njit


@njit(cache=True)
def fill_keys(
    values: npt.NDArray[np.float32], ids: npt.NDArray[np.int32], sign: int, keys: npt.NDArray[np.int64]
) -> None:
    """One integer per entry, ordered as the pairs (sign * value, id) are."""
    bits = values.view(np.int32)
    for i in range(values.size):
        high = np.int64(bits[i])
        if high < 0:  # negative floats have growing bits for falling values; minus zero must equal zero
            high = -(high & 0x7FFFFFFF)
        keys[i] = (sign * high << 32) | np.int64(ids[i])


@njit(cache=True)
def nth_smallest(keys: npt.NDArray[np.int64], n: int) -> int:
    """The key that exactly n others precede (Hoare's selection). Reorders `keys`, which must be distinct."""
    low, high = 0, keys.size - 1
    while low < high:
        a, b, c = keys[low], keys[(low + high) >> 1], keys[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if n <= j:
            high = j
        elif n >= i:
            low = i
        else:
            break
    return int(keys[n])


@njit(cache=True)
def keep_largest(values: npt.NDArray[np.float32], ids: npt.NDArray[np.int32], top: int, always: int) -> int:
    """Move the `top` largest entries, and id `always` where it occurs, to the front; return how many they are."""
    if values.size <= top:
        return values.size
    keys = np.empty(values.size, np.int64)
    fill_keys(values, ids, -1, keys)
    last = nth_smallest(keys.copy(), top - 1) if top else np.iinfo(np.int64).min
    kept = 0
    for i in range(values.size):
        if keys[i] <= last or ids[i] == always:
            values[kept], ids[kept] = values[i], ids[i]
            kept += 1
    return kept
