"""The one operation under the embedding blocks: rows of the form W drop(ReLU(r)) + b + skip (.) r + gate (.) z.

DECAF's gates and ECLARE's scalar are folded into W, b, skip and gate by the blocks: a D x D product instead of a pass
over every label. What is left beside matrix products is one pass forward and one back, and where the rows themselves
are wanted both are made piece by piece, beside the products, while a piece is in cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from xcbench.kernels.parallel import Floats, kernel, share_rows
from xcbench.nn.dropout import Noise, draw_noise, fusable, numbers_of_row, relu_dropout_rows, relu_under

ROWS_PER_SUM = 256
"""Column sums are taken over blocks of so many rows and then added up: the same sum for any number of threads."""

COLUMNS_AT_ONCE = 16
"""What a product of matrices makes at a time: a D of 300 costs more than one of 304. Tables to work in are as wide."""

ROWS_AT_ONCE = 2 * ROWS_PER_SUM
"""Rows of a piece, for every thread."""


@dataclass(frozen=True)
class Factored:
    """Rows W p + rest, with p = drop(ReLU(r)) and rest = b + skip (.) r (+ gate (.) z), that are not made yet.

    <x, W p + rest> = <W^T x, p> + <x, rest>: when rows are only ever scored against a batch much smaller than D, moving
    W to the other side is cheaper than applying it to every row. The losses choose.
    """

    r: Tensor  # [n, D]
    W: Tensor  # [D, D]
    b: Tensor  # [D]
    skip: Tensor  # [D]
    noise: Noise
    gate: Tensor | None = None  # [D], with z
    z: Tensor | None = None  # [n, D]

    def full(self) -> Tensor:
        """The rows, multiplied out."""
        if fusable(self.r, self.W):
            parts = self.r, self.W, self.b, self.skip, self.gate, self.z, self.noise
            return _MultipliedOut.apply(*parts)  # type: ignore[no-untyped-call, no-any-return]
        P, rest = self.split()
        return torch.addmm(rest, P, self.W.T)

    def split(self) -> tuple[Tensor, Tensor]:
        """P and rest."""
        if fusable(self.r, self.W):
            return _Split.apply(self.r, self.b, self.skip, self.gate, self.z, self.noise)  # type: ignore[no-untyped-call, no-any-return]
        rest = self.b + self.skip * self.r
        if self.gate is not None and self.z is not None:
            rest = rest + self.gate * self.z
        return relu_under(self.noise, self.r), rest

    def __len__(self) -> int:
        return len(self.r)


def relu_residual(
    r: Tensor, W: Tensor, b: Tensor, skip: Tensor, rate: float, training: bool, first_row: int = 0,
    plus: tuple[Tensor, Tensor] | tuple[()] = (),
) -> Factored:  # fmt: skip
    """W drop(ReLU(r)) + b + skip (.) r, and + gate (.) z where `plus` is (gate, z)."""
    return Factored(r, W, b, skip, draw_noise(rate, training, r.shape[1], first_row), *plus)


class _MultipliedOut(torch.autograd.Function):
    """r -> W drop(ReLU(r)) + b + skip (.) r + gate (.) z; what the noise dropped is asked again, not kept.

    r_ is r as an array, and so on: a tenth of a tensor's cost to cut a piece from.
    """

    @staticmethod
    def forward(
        ctx: Any, r: Tensor, W: Tensor, b: Tensor, skip: Tensor, gate: Tensor | None, z: Tensor | None, noise: Noise
    ) -> Tensor:
        r, out = r.contiguous(), torch.empty_like(r, memory_format=torch.contiguous_format)
        ctx.noise, ctx.has_z = noise, z is not None
        gate, z = (b, r) if gate is None or z is None else (gate, z.contiguous())
        r_, b_, skip_, gate_, z_, out_ = (t.numpy() for t in (r, b, skip, gate, z, out))
        for here, its_noise, P in _pieces(r, noise):
            its = r_[here], b_, skip_, gate_, z_[here], ctx.has_z, its_noise, P, out_[here]
            share_rows(_split, len(P), P.numel(), *its)
            out[here].addmm_(P, W.T)
        ctx.save_for_backward(r, W, skip, gate, z)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (r, W, skip, gate, z), g = ctx.saved_tensors, grads[0].contiguous()
        want_r, want_W, want_z = (ctx.needs_input_grad[k] for k in (0, 1, 5))
        dr, dz = (torch.empty_like(t) if want else t for t, want in ((r, want_r), (z, want_z)))
        width = -(-r.shape[1] // COLUMNS_AT_ONCE) * COLUMNS_AT_ONCE
        W_wide, dW = pad(W, (0, width - r.shape[1])), W.new_empty(len(W), width)
        dP = r.new_empty(min(_rows_at_once(), len(r)), width)
        sums = torch.empty(-(-len(r) // ROWS_PER_SUM), 3, r.shape[1])
        r_, g_, skip_, gate_, z_, dP_, dr_, dz_, sums_ = (t.numpy() for t in (r, g, skip, gate, z, dP, dr, dz, sums))
        for here, noise, P in _pieces(r, ctx.noise, width):
            share_rows(relu_dropout_rows, len(P), P.numel(), r_[here], noise, P)
            if want_W:
                torch.addmm(dW, g[here].T, P, beta=float(here.start > 0), out=dW)
            if want_r:
                torch.mm(g[here], W_wide, out=dP[: len(P)])
            its_sums = sums_[here.start // ROWS_PER_SUM : -(-here.stop // ROWS_PER_SUM)]
            its = dP_[: len(P)], g_[here], r_[here], P, skip_, gate_, z_[here], noise.scale, want_r, want_z, ctx.has_z
            share_rows(_merge, len(its_sums), P.numel(), *its, dr_[here], dz_[here], its_sums)
        db, dskip, dgate = sums.sum(0)
        return (
            dr if want_r else None, dW[:, : r.shape[1]].contiguous() if want_W else None, db, dskip,
            dgate if ctx.has_z else None, dz if want_z else None, None,
        )  # fmt: skip


def _rows_at_once() -> int:
    return ROWS_AT_ONCE * torch.get_num_threads()


def _pieces(r: Tensor, noise: Noise, width: int | None = None) -> Iterator[tuple[slice, Noise, Tensor]]:
    """Slices of rows, with the noise that is theirs and a table to work in, of their size or with wider rows."""
    size = _rows_at_once()
    P = r.new_empty(min(size, len(r)), width or r.shape[1])
    P[:, r.shape[1] :] = 0
    for first in range(0, len(r), size):
        here = slice(first, min(first + size, len(r)))
        yield here, noise._replace(first_row=noise.first_row + first), P[: here.stop - first]


class _Split(torch.autograd.Function):
    """r -> drop(ReLU(r)) and b + skip (.) r + gate (.) z."""

    @staticmethod
    def forward(
        ctx: Any, r: Tensor, b: Tensor, skip: Tensor, gate: Tensor | None, z: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Tensor]:
        r = r.contiguous()
        P, rest = torch.empty_like(r), torch.empty_like(r)
        ctx.scale, ctx.has_z = noise.scale, z is not None
        gate, z = (b, r) if gate is None or z is None else (gate, z.contiguous())
        share_rows(_split, len(r), r.numel(), r, b, skip, gate, z, ctx.has_z, noise, P, rest)
        ctx.save_for_backward(r, skip, P, gate, z)
        ctx.set_materialize_grads(False)
        if not ctx.needs_input_grad[0]:
            ctx.mark_non_differentiable(P)  # a constant r: nobody then multiplies out the gradient of P
        return P, rest

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        r, skip, P, gate, z = ctx.saved_tensors
        want_r, want_z = ctx.needs_input_grad[0], ctx.needs_input_grad[4]
        unused = P  # stands in where a kernel's argument is neither read nor written
        dP, drest = grads[0].contiguous() if want_r else unused, grads[1].contiguous()
        dr = torch.empty_like(r) if want_r else unused
        dz = torch.empty_like(z) if want_z else unused
        sums = torch.empty(-(-len(r) // ROWS_PER_SUM), 3, r.shape[1])
        wanted = want_r, want_z, ctx.has_z
        share_rows(_merge, len(sums), r.numel(), dP, drest, r, P, skip, gate, z, ctx.scale, *wanted, dr, dz, sums)
        db, dskip, dgate = sums.sum(0)
        return dr if want_r else None, db, dskip, dgate if ctx.has_z else None, dz if want_z else None, None


@kernel
def _split(
    first: int, last: int, r: Floats, b: Floats, skip: Floats, gate: Floats, z: Floats, has_z: bool, noise: Noise,
    P: Floats, rest: Floats,
) -> None:  # fmt: skip
    for i in range(first, last):
        numbers = numbers_of_row(noise, i, r.shape[1])
        for j in range(r.shape[1]):
            value = r[i, j]
            P[i, j] = max(value, np.float32(0)) * noise.scale if numbers[j] >= noise.threshold else np.float32(0)
            rest[i, j] = b[j] + skip[j] * value
        if has_z:
            for j in range(r.shape[1]):
                rest[i, j] += gate[j] * z[i, j]


@kernel
def _merge(
    first: int, last: int, dP: Floats, drest: Floats, r: Floats, P: Floats, skip: Floats, gate: Floats, z: Floats,
    scale: np.float32, want_r: bool, want_z: bool, has_z: bool, dr: Floats, dz: Floats, sums: Floats,
) -> None:  # fmt: skip
    """For blocks of rows; sums[block] gets that block's parts of db, dskip and dgate."""
    for block in range(first, last):
        sums[block] = np.float32(0)
        for i in range(block * ROWS_PER_SUM, min((block + 1) * ROWS_PER_SUM, r.shape[0])):
            for j in range(r.shape[1]):
                sums[block, 0, j] += drest[i, j]
                sums[block, 1, j] += drest[i, j] * r[i, j]
            if has_z:
                for j in range(r.shape[1]):
                    sums[block, 2, j] += drest[i, j] * z[i, j]
            if want_r:
                for j in range(r.shape[1]):
                    through = dP[i, j] * scale if P[i, j] > 0 else np.float32(0)
                    dr[i, j] = through + skip[j] * drest[i, j]
            if want_z:
                for j in range(r.shape[1]):
                    dz[i, j] = gate[j] * drest[i, j]
