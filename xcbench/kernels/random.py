"""Random numbers for parallel kernels: splitmix64, addressed by (seed, stream, counter) instead of drawn in turn.

A label's numbers depend on the seed and on the label alone, so no thread count and no block size changes a result.
"""

import numpy as np
from numba import njit

STEP = np.uint64(0x9E3779B97F4A7C15)


def seed_word(seed: int) -> np.uint64:
    """Any whole number as a seed."""
    word: np.uint64 = np.uint64(seed % 2**64)
    return word


@njit(cache=True)
def scramble(word: np.uint64) -> np.uint64:
    """splitmix64's output function: a bijection of 64-bit words that looks random."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    return word


@njit(cache=True)
def stream(seed: np.uint64, address: int) -> np.uint64:
    """Where the numbers of one label (or tree node) begin: number t of it is `scramble(stream + t * STEP)`."""
    return scramble(scramble(seed + STEP) + np.uint64(address) * STEP)


@njit(cache=True)
def below(word: np.uint64, bound: int) -> int:
    """A number in [0, bound) from the high 32 bits of a word."""
    number: int = np.int64(((word >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))
    return number
