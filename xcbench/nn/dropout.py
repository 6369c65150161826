"""ReLU and dropout in one pass, with masks that are addressed instead of drawn.

Whether an entry is dropped follows from (seed, step, call, row, column): a hash of the first four says where in a
fixed pool of random numbers the row's own begin. So a mask is the same on every device and for any number of threads
or processes, a resumed run repeats it, and the backward pass needs no copy of it. ReLU and dropout commute (dropout
multiplies by nothing below zero), so one operation serves both of their orders.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from xcbench.kernels.parallel import Floats, kernel, share_rows

_WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15

POOL = np.random.Philox(key=2021).random_raw(1 << 15).view(np.uint16)
"""131,072 random numbers, 256 kB: they stay in a core's own cache, where reading them costs less than any hash."""


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


class Noise(NamedTuple):
    """A dropout mask, as kernels take it. Numbers of the pool below the threshold drop, the rest scale."""

    pool: npt.NDArray[np.uint16]
    key: np.uint64
    first_row: int
    threshold: np.uint16
    scale: np.float32

    @classmethod
    def of(cls, rate: float, key: int, first_row: int, width: int) -> "Noise":
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate is at least 0 and below 1, got {rate}")
        if width >= len(POOL):
            raise ValueError(f"dropout is for rows of less than {len(POOL)} entries, got {width}")
        threshold = round(rate * 2**16)
        return cls(POOL, np.uint64(key), first_row, np.uint16(threshold), np.float32(2**16 / (2**16 - threshold)))


def relu_dropout(x: Tensor, rate: float, training: bool, first_row: int = 0) -> Tensor:
    """drop(ReLU(x)); `first_row` is the row number of x's first row in the mask."""
    return relu_under(draw_noise(rate, training, x.shape[1], first_row), x)


def draw_noise(rate: float, training: bool, width: int, first_row: int = 0) -> Noise:
    """The next mask, for rows of this width; where nothing is dropped it keeps everything and uses up no key."""
    rate = rate if training else 0.0
    return Noise.of(rate, next_key() if rate else 0, first_row, width)


def relu_under(noise: Noise, x: Tensor) -> Tensor:
    """ReLU(x) where the noise keeps it, scaled, and else nothing."""
    if noise.threshold == 0:
        return torch.relu(x)
    if fusable(x):
        return _ReluDropout.apply(x, noise)  # type: ignore[no-untyped-call, no-any-return]
    return torch.relu(x) * kept_and_scaled(noise, x.shape[0], x.shape[1], x.device).to(x.dtype)


def fusable(*tensors: Tensor) -> bool:
    """Whether our CPU kernels can take these tensors; elsewhere the same arithmetic is written in torch."""
    if torch.is_autocast_enabled("cpu"):
        return False
    return all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)


def kept_and_scaled(noise: Noise, rows: int, columns: int, device: torch.device) -> Tensor:
    """What a mask multiplies by, as a tensor; the kernels compute the same entry by entry."""
    word = torch.arange(noise.first_row, noise.first_row + rows, device=device) * _signed(_STEP)
    word = word + _signed(int(noise.key))
    word = (word ^ _shift(word, 30)) * _signed(0xBF58476D1CE4E5B9)
    word = (word ^ _shift(word, 27)) * _signed(0x94D049BB133111EB)
    start = ((word ^ _shift(word, 31)) & 0xFFFFFFFF) % (len(POOL) - columns)
    numbers = _pool_on(device)[start[:, None] + torch.arange(columns, device=device)]
    return (numbers >= int(noise.threshold)) * float(noise.scale)


@cache
def _pool_on(device: torch.device) -> Tensor:
    return torch.from_numpy(POOL.astype(np.int32)).to(device)


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
def word_at(key: np.uint64, address: int) -> np.uint64:
    """A word that looks random and follows from key and address: splitmix64, entered at any place."""
    word = key + np.uint64(address) * np.uint64(_STEP)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))  # type: ignore[no-any-return]


@njit(inline="always")
def numbers_of_row(noise: Noise, row: int, width: int) -> npt.NDArray[np.uint16]:
    """The part of the pool that decides about a row."""
    word = word_at(noise.key, noise.first_row + row) & np.uint64(0xFFFFFFFF)
    start = word % np.uint64(len(noise.pool) - width)
    return noise.pool[start : start + np.uint64(width)]


@kernel
def relu_dropout_rows(first: int, last: int, x: Floats, noise: Noise, out: Floats) -> None:
    for i in range(first, last):
        numbers = numbers_of_row(noise, i, x.shape[1])
        for j in range(x.shape[1]):
            value = x[i, j]
            out[i, j] = max(value, np.float32(0)) * noise.scale if numbers[j] >= noise.threshold else np.float32(0)


@kernel
def _pass_kept_rows(first: int, last: int, grad: Floats, out: Floats, scale: np.float32, dx: Floats) -> None:
    for i in range(first, last):
        for j in range(out.shape[1]):
            dx[i, j] = grad[i, j] * scale if out[i, j] > 0 else np.float32(0)


class _ReluDropout(torch.autograd.Function):
    """An entry is positive after the forward pass exactly where the gradient passes: the output is the mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, noise: Noise) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        share_rows(relu_dropout_rows, len(x), x.numel(), x, noise, out)
        ctx.save_for_backward(out)
        ctx.scale = noise.scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        dx = torch.empty_like(out)
        share_rows(_pass_kept_rows, len(out), out.numel(), grads[0].contiguous(), out, ctx.scale, dx)
        return dx, None
