"""Sums by label over a few labels, in a small open hash table whose size does not depend on L.

A table is two arrays of the same length: `labels`, with -1 in free slots, and `values`. The length is a power of two
and at least twice the number of labels that the table will hold.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from xcbench.kernels.arrays import Ints
from xcbench.kernels.selection import key_of

SPREAD = np.uint32(2654435769)  # Knuth's multiplicative hash: 2^32 / golden ratio


@njit(cache=True)
def table_size(labels: int) -> int:
    """Return the length of a table for so many labels."""
    size = 8
    while size < 2 * labels:
        size *= 2
    return size


@njit(cache=True)
def slot_of(labels: Ints, label: int) -> int:
    """Return the slot that holds a label or, if there is none, the slot where it would go."""
    last = len(labels) - 1
    hashed = np.uint32(np.uint32(label) * SPREAD) >> np.uint32(7)
    slot: int = np.int64(hashed) & last
    while labels[slot] != -1 and labels[slot] != label:
        slot = (slot + 1) & last
    return slot


@njit(cache=True)
def add(
    labels: Ints,
    values: npt.NDArray[np.floating],
    label: int,
    value: np.float32,
) -> None:
    """Add a value to the sum of a label."""
    slot = slot_of(labels, label)
    if labels[slot] == -1:
        labels[slot] = label
        values[slot] = value
    else:
        values[slot] += value


@njit(cache=True)
def collect(
    labels: Ints,
    values: npt.NDArray[np.floating],
    keys: npt.NDArray[np.uint64],
) -> int:
    """Write a key (see `selection`) for each label of the table, and return how many there are."""
    count = 0
    for slot in range(len(labels)):
        if labels[slot] != -1:
            keys[count] = key_of(values[slot], labels[slot])
            count += 1
    return count
