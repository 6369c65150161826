"""Dropout, and ReLU and dropout in one pass, with masks that are addressed instead of drawn in turn.

Whether an entry is dropped follows from (seed, step, call, row, column). A hash of the first four gives an offset in a
fixed pool of random numbers, and the row reads its numbers from there on. So a mask is the same on every device and
for any number of threads or processes, a resumed training repeats it, and the backward pass needs no copy of it.

ReLU and dropout commute, since dropout multiplies by numbers that are not negative. One operation serves both orders.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from xcbench.kernels.arrays import Floats
from xcbench.kernels.parallel import kernel, share_rows
from xcbench.kernels.random import scramble_int, word_at, word_at_int, words_at_tensor

POOL = np.random.Philox(key=2021).random_raw(1 << 15).view(np.uint16)
"""131,072 random numbers, 256 kB: they stay in a core's own cache, where reading them costs less than any hash."""


@dataclass
class _Stream:
    """Where the next mask comes from. Outside of a training loop, the calls are counted on from step to step."""

    key: int = 0
    calls: int = 0
    first_point: int = 0


_stream = _Stream()


def start_step(seed: int, step: int, first_point: int = 0) -> None:
    """Make all masks from here on a function of (seed, step) and of the order of the calls.

    Parameters
    ----------
    seed
        The seed of the training.
    step
        The number of the step, from 0 on.
    first_point
        The position, in the whole batch, of the first point of this process. With it, a batch that is split over
        several processes gets the masks that it would get in one.
    """
    _stream.key = _key_of_step(seed, step)
    _stream.calls = 0
    _stream.first_point = first_point


def first_key(seed: int, step: int) -> int:
    """Return the key that `next_key` gives first after `start_step(seed, step)`. It can be had ahead of the step."""
    return word_at_int(_key_of_step(seed, step), 1)


def _key_of_step(seed: int, step: int) -> int:
    return word_at_int(scramble_int(seed), step + 1)


def first_point() -> int:
    """Return the position, in the whole batch, of this process's first point."""
    return _stream.first_point


def next_key() -> int:
    """Return the key of the next mask."""
    _stream.calls += 1
    return word_at_int(_stream.key, _stream.calls)


class DropoutMask(NamedTuple):
    """A dropout mask, in the form that kernels take.

    An entry is dropped where its number of the pool is below `threshold`. Other entries are multiplied by `scale`.
    """

    pool: npt.NDArray[np.uint16]
    key: np.uint64
    first_row: int
    threshold: np.uint16
    scale: np.float32

    @classmethod
    def of(cls, rate: float, key: int, first_row: int, width: int) -> "DropoutMask":
        """Return the mask of a key that drops entries at this rate, for rows of this width."""
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate is at least 0 and below 1, got {rate}")
        if width >= len(POOL):
            raise ValueError(f"dropout is for rows of less than {len(POOL)} entries, got {width}")

        threshold = round(rate * 2**16)
        return cls(
            pool=POOL,
            key=np.uint64(key),
            first_row=first_row,
            threshold=np.uint16(threshold),
            scale=np.float32(2**16 / (2**16 - threshold)),
        )


def relu_dropout(x: Tensor, rate: float, training: bool, first_row: int = 0) -> Tensor:
    """Return drop(ReLU(x)).

    Parameters
    ----------
    x
        A matrix.
    rate
        The share of entries that is dropped in training; the others are scaled up.
    training
        Whether to drop at all.
    first_row
        The number of x's first row within the mask.
    """
    mask = next_mask(rate, training, x.shape[1], first_row)
    return masked_relu(x, mask)


def dropout(x: Tensor, rate: float, training: bool, first_row: int = 0) -> Tensor:
    """Return drop(x), for x of any shape; a row is what the last dimension holds. Parameters as in `relu_dropout`."""
    mask = next_mask(rate, training, x.shape[-1], first_row)
    if mask.threshold == 0:
        return x
    rows = x.reshape(-1, x.shape[-1])
    if kernels_support(x):
        return _Dropout.apply(rows, mask).view(x.shape)  # type: ignore[no-untyped-call, no-any-return]

    row_numbers = torch.arange(len(rows), device=x.device)
    is_kept = kept_entries(mask, row_numbers, rows.shape[1])
    return torch.where(is_kept, rows * float(mask.scale), 0).view(x.shape)


def next_mask(rate: float, training: bool, width: int, first_row: int = 0) -> DropoutMask:
    """Return the next mask for rows of this width. A mask that drops nothing uses up no key."""
    if not training or rate == 0:
        return DropoutMask.of(0.0, 0, first_row, width)
    return DropoutMask.of(rate, next_key(), first_row, width)


def masked_relu(x: Tensor, mask: DropoutMask) -> Tensor:
    """Return ReLU(x), scaled where the mask keeps it and 0 where the mask drops it."""
    if mask.threshold == 0:
        return torch.relu(x)
    if kernels_support(x):
        return _ReluDropout.apply(x, mask)  # type: ignore[no-untyped-call, no-any-return]

    rows = torch.arange(len(x), device=x.device)
    return torch.where(kept_entries(mask, rows, x.shape[1]), torch.relu(x) * float(mask.scale), 0)


def kernels_support(*tensors: Tensor) -> bool:
    """Whether our CPU kernels can take these tensors. For others, the same arithmetic is written in torch."""
    if torch.is_autocast_enabled("cpu"):
        return False
    return all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)


def kept_entries(mask: DropoutMask, rows: Tensor, columns: int) -> Tensor:
    """Return which entries a mask keeps, [rows, columns] of bool. The kernels decide the same entry by entry.

    `rows` has the row numbers within the mask, on the device of the result.
    """
    words = words_at_tensor(int(mask.key), rows + mask.first_row)
    offsets = (words & 0xFFFFFFFF) % (len(POOL) - columns)

    # A view in which row i is the pool from its i-th number on: so no place is computed per entry.
    windows = _pool_on(rows.device).unfold(0, columns, 1)
    return windows[offsets] >= int(mask.threshold) - _SHIFT


_SHIFT = 1 << 15


@cache
def _pool_on(device: torch.device) -> Tensor:
    """Return the pool on a device, shifted from 16 bits without a sign to 16 bits with one: torch has only these."""
    shifted = POOL.astype(np.int32) - _SHIFT
    return torch.from_numpy(shifted.astype(np.int16)).to(device)


@njit(inline="always")
def pool_numbers(mask: DropoutMask, row: int, width: int) -> npt.NDArray[np.uint16]:
    """Return the part of the pool that decides which entries of a row are dropped."""
    word = word_at(mask.key, mask.first_row + row) & np.uint64(0xFFFFFFFF)
    offset = word % np.uint64(len(mask.pool) - width)
    return mask.pool[offset : offset + np.uint64(width)]


@kernel
def relu_dropout_rows(first: int, last: int, x: Floats, mask: DropoutMask, out: Floats) -> None:
    """out = drop(ReLU(x)). `out` may have more columns than x."""
    for i in range(first, last):
        numbers = pool_numbers(mask, i, x.shape[1])
        for j in range(x.shape[1]):
            value = x[i, j]
            out[i, j] = max(value, np.float32(0)) * mask.scale if numbers[j] >= mask.threshold else np.float32(0)


@kernel
def _relu_dropout_backward(
    first: int,
    last: int,
    grad: Floats,
    out: Floats,
    scale: np.float32,
    dx: Floats,
) -> None:
    for i in range(first, last):
        for j in range(out.shape[1]):
            dx[i, j] = grad[i, j] * scale if out[i, j] > 0 else np.float32(0)


class _ReluDropout(torch.autograd.Function):
    """drop(ReLU(x)) on our kernels.

    The gradient passes exactly where the output is positive, so the backward pass reads the mask off the output.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: DropoutMask) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        share_rows(relu_dropout_rows, len(x), x.numel(), x, mask, out)
        ctx.save_for_backward(out)
        ctx.scale = mask.scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        dx = torch.empty_like(out)
        share_rows(
            _relu_dropout_backward,
            len(out),
            out.numel(),
            grads[0].contiguous(),
            out,
            ctx.scale,
            dx,
        )
        return dx, None


@kernel
def _dropout_rows(first: int, last: int, x: Floats, mask: DropoutMask, out: Floats) -> None:
    """out = drop(x)."""
    for i in range(first, last):
        numbers = pool_numbers(mask, i, x.shape[1])
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * mask.scale if numbers[j] >= mask.threshold else np.float32(0)


class _Dropout(torch.autograd.Function):
    """drop(x) on our kernels. Gradients pass through the same mask, which is read from the pool again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: DropoutMask) -> Tensor:
        ctx.mask = mask
        return _dropped(x, mask)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _dropped(grads[0], ctx.mask), None


def _dropped(x: Tensor, mask: DropoutMask) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    share_rows(_dropout_rows, len(x), x.numel(), x, mask, out)
    return out
