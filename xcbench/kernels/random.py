"""Random numbers that are addressed instead of drawn in turn: splitmix64, entered at any place.

The word at (key, address) is `scramble(key + address * STEP)`. A label's numbers depend on the seed and on the label
alone, so neither the number of threads nor the size of blocks changes a result. The same words can be had in compiled
loops, as Python integers and as tensors.
"""

import numpy as np
from numba import njit
from torch import Tensor

_STEP = 0x9E3779B97F4A7C15
_FIRST_FACTOR = 0xBF58476D1CE4E5B9
_SECOND_FACTOR = 0x94D049BB133111EB
_MASK = (1 << 64) - 1

# The same for compiled loops, which must not mix signed and unsigned integers.
STEP = np.uint64(_STEP)
_FACTOR_1 = np.uint64(_FIRST_FACTOR)
_FACTOR_2 = np.uint64(_SECOND_FACTOR)


def seed_word(seed: int) -> np.uint64:
    """Return a 64-bit word for any integer seed."""
    word: np.uint64 = np.uint64(seed % 2**64)
    return word


@njit(cache=True)
def scramble(word: np.uint64) -> np.uint64:
    """splitmix64's output function: a bijection of 64-bit words that looks random."""
    word = (word ^ (word >> np.uint64(30))) * _FACTOR_1
    word = (word ^ (word >> np.uint64(27))) * _FACTOR_2
    word ^= word >> np.uint64(31)
    return word


@njit(inline="always")
def word_at(key: np.uint64, address: int) -> np.uint64:
    """Return the word at an address of the stream that begins at `key`."""
    return scramble(key + np.uint64(address) * STEP)


@njit(cache=True)
def stream(seed: np.uint64, address: int) -> np.uint64:
    """Return the key of the stream of one label (or tree node)."""
    key = scramble(seed + STEP)
    return word_at(key, address)


@njit(cache=True)
def below(word: np.uint64, bound: int) -> int:
    """Return a number in [0, bound), from the high 32 bits of a word."""
    high = word >> np.uint64(32)
    number: int = np.int64((high * np.uint64(bound)) >> np.uint64(32))
    return number


def scramble_int(word: int) -> int:
    """`scramble` for a Python integer, which is taken modulo 2^64."""
    word &= _MASK
    word = ((word ^ (word >> 30)) * _FIRST_FACTOR) & _MASK
    word = ((word ^ (word >> 27)) * _SECOND_FACTOR) & _MASK
    return word ^ (word >> 31)


def word_at_int(key: int, address: int) -> int:
    """`word_at` for Python integers."""
    return scramble_int(key + address * _STEP)


def words_at_tensor(key: int, addresses: Tensor) -> Tensor:
    """`word_at` for a tensor of addresses. Words come as int64, with the same bits."""
    word = addresses * _signed(_STEP) + _signed(key)
    word = (word ^ _shift_right(word, 30)) * _signed(_FIRST_FACTOR)
    word = (word ^ _shift_right(word, 27)) * _signed(_SECOND_FACTOR)
    return word ^ _shift_right(word, 31)


def _signed(word: int) -> int:
    """Return the signed 64-bit integer with the bits of an unsigned one: torch has no arithmetic on uint64."""
    if word >> 63:
        return word - (1 << 64)
    return word


def _shift_right(word: Tensor, bits: int) -> Tensor:
    """Shift as if the words were unsigned: zeros come in from the left."""
    mask = (1 << (64 - bits)) - 1
    return (word >> bits) & mask
