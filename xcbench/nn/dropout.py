"""ReLU and dropout in one pass, with masks that are addressed instead of drawn.

Whether an entry is dropped is a hash of (seed, step, call, row, column). So a mask is the same on every device and
for any number of threads or processes, a resumed run repeats it, and the backward pass needs no copy of it.
ReLU and dropout commute (dropout multiplies by nothing below zero), so one operation serves both of their orders.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from xcbench.nn.parallel import Floats, kernel, share_rows

_WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


@dataclass
class _Stream:
    """Where the next mask comes from. Outside of a training loop the calls are simply counted on."""

    key: int = 0
    calls: int = 0
    first_point: int = 0


_stream = _Stream()


def start_step(seed: int, step: int, first_point: int = 0) -> None:
    """Make all masks that follow a function of (seed, step) and of the order in which they are asked for.

    `first_point` is the place in the whole batch of the first point this process holds: a batch that is spread over
    processes gets the masks it would get in one.
    """
    _stream.key = _scramble(_scramble(seed & _WORD) + (step + 1) * _STEP)
    _stream.calls = 0
    _stream.first_point = first_point


def first_point() -> int:
    """Row number, in the whole batch, of this process's first point."""
    return _stream.first_point


def next_key() -> int:
    """The key of one mask."""
    _stream.calls += 1
    return _scramble(_stream.key + _stream.calls * _STEP)


def threshold_of(rate: float) -> int:
    """Hashes below this are dropped."""
    return min(round(rate * 2**32), 2**32 - 1)


def relu_dropout(x: Tensor, rate: float, training: bool, first_row: int = 0) -> Tensor:
    """drop(ReLU(x)); `first_row` is the row number of x's first row in the mask."""
    if not training or rate == 0.0:
        return torch.relu(x)
    key = next_key()
    if fusable(x):
        return _ReluDropout.apply(x, rate, key, first_row)  # type: ignore[no-untyped-call, no-any-return]
    return torch.relu(x) * keep_mask(x.shape[0], x.shape[1], rate, key, first_row, x.device) / (1.0 - rate)


def fusable(*tensors: Tensor) -> bool:
    """Whether our CPU kernels can take these tensors; elsewhere the same arithmetic is written in torch."""
    return all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)


def keep_mask(rows: int, columns: int, rate: float, key: int, first_row: int, device: torch.device) -> Tensor:
    """The mask of a key as a tensor of zeros and ones; the kernels below compute the same entry by entry."""
    word = torch.arange(first_row, first_row + rows, device=device) * _signed(_STEP) + _signed(key)
    word = (word ^ _shift(word, 30)) * _signed(0xBF58476D1CE4E5B9)
    word = (word ^ _shift(word, 27)) * _signed(0x94D049BB133111EB)
    word = (word ^ _shift(word, 31)) & 0xFFFFFFFF
    h = (word[:, None] + torch.arange(columns, device=device) * 0x9E3779B9) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return (h ^ (h >> 16)) >= threshold_of(rate)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _shift(word: Tensor, bits: int) -> Tensor:
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def _scramble(word: int) -> int:
    """splitmix64's output function."""
    word &= _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


@njit(inline="always")
def addressed_word(key: np.uint64, address: int) -> np.uint64:
    """A word that looks random and follows from key and address: splitmix64, entered at any place."""
    word = key + np.uint64(address) * np.uint64(_STEP)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))  # type: ignore[no-any-return]


@njit(inline="always")
def row_word(key: np.uint64, row: int) -> np.uint32:
    """The 32 bits that all entries of one row start from."""
    return np.uint32(addressed_word(key, row))  # type: ignore[no-any-return]


@njit(inline="always")
def kept(word: np.uint32, column: int, threshold: np.uint32) -> bool:
    """Whether an entry survives. All in 32 bits, so that eight entries are hashed at once."""
    h = np.uint32(word + np.uint32(np.uint32(column) * np.uint32(0x9E3779B9)))
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(h ^ (h >> np.uint32(16))) >= threshold  # type: ignore[no-any-return]


@kernel
def _relu_dropout_rows(
    first: int, last: int, x: Floats, key: np.uint64, first_row: int, threshold: np.uint32, scale: np.float32,
    out: Floats,
) -> None:  # fmt: skip
    for i in range(first, last):
        word = row_word(key, first_row + i)
        for j in range(x.shape[1]):
            value = max(x[i, j], np.float32(0)) * scale
            out[i, j] = value if kept(word, j, threshold) else np.float32(0)


class _ReluDropout(torch.autograd.Function):
    """An entry is positive after the forward pass exactly where the gradient passes: the output is the mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, key: int, first_row: int) -> Tensor:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        scale = np.float32(1.0 / (1.0 - rate))
        noise = np.uint64(key), first_row, np.uint32(threshold_of(rate)), scale
        share_rows(_relu_dropout_rows, len(x), x.numel(), x, *noise, out)
        ctx.save_for_backward(out)
        ctx.scale = float(scale)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (out,) = ctx.saved_tensors
        return (out > 0) * grads[0] * ctx.scale, None, None, None
