"""Sums by label over a handful of labels, in a small open hash table whose size does not depend on L.

A table is two arrays, `labels` (-1: free) and `values`, of one power of two as length, at least twice the labels it
will hold.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from xcbench.kernels.selection import key_of

SPREAD = np.uint32(2654435769)  # Knuth's multiplicative hash: 2^32 / golden ratio


@njit(cache=True)
def table_size(labels: int) -> int:
    size = 8
    while size < 2 * labels:
        size *= 2
    return size


@njit(cache=True)
def slot_of(labels: npt.NDArray[np.int32], label: int) -> int:
    """Where a label is, or where it would go."""
    last = len(labels) - 1
    slot: int = np.int64(np.uint32(np.uint32(label) * SPREAD) >> np.uint32(7)) & last
    while labels[slot] != -1 and labels[slot] != label:
        slot = (slot + 1) & last
    return slot


@njit(cache=True)
def add(labels: npt.NDArray[np.int32], values: npt.NDArray[np.floating], label: int, value: np.float32) -> None:
    slot = slot_of(labels, label)
    if labels[slot] == -1:
        labels[slot] = label
        values[slot] = value
    else:
        values[slot] += value


@njit(cache=True)
def collect(labels: npt.NDArray[np.int32], values: npt.NDArray[np.floating], keys: npt.NDArray[np.uint64]) -> int:
    """Write the keys of all that the table holds, and return how many."""
    count = 0
    for slot in range(len(labels)):
        if labels[slot] != -1:
            keys[count] = key_of(values[slot], labels[slot])
            count += 1
    return count
