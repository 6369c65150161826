"""The operation that all embedding blocks share: rows of the form W drop(ReLU(r)) + b + skip (.) r + gate (.) z.

The blocks fold DECAF's gates and ECLARE's scalar into W, b, skip and gate. That costs one D x D product instead of a
pass over every label. Besides matrix products, there is one pass over the rows forward and one backward. Where the rows
are multiplied out, both passes go piece by piece, each next to the matrix product of its piece, while it is in cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from xcbench.kernels.arrays import Floats
from xcbench.kernels.parallel import kernel, share_rows
from xcbench.nn.dropout import (
    DropoutMask,
    KernelMask,
    kernels_support,
    masked_relu,
    next_mask,
    pool_numbers,
    relu_dropout_rows,
)

ROWS_PER_SUM = 256
"""Column sums are taken over blocks of this many rows and then added up: the same sum for any number of threads."""

COLUMNS_PER_TILE = 16
"""Columns that a matrix product computes at a time: a D of 300 costs more than one of 304. Work tables are padded."""

ROWS_PER_THREAD = 2 * ROWS_PER_SUM
"""Rows of a piece, per thread."""


@dataclass(frozen=True)
class Factored:
    """Rows W p + rest that are not multiplied out yet, with p = drop(ReLU(r)) and rest = b + skip (.) r (+ gate (.) z).

    <x, W p + rest> = <W^T x, p> + <x, rest>. When rows are only scored against a batch that is much smaller than D,
    multiplying the batch by W^T is cheaper than multiplying every row by W. The losses choose.
    """

    r: Tensor  # [n, D]
    W: Tensor  # [D, D]
    b: Tensor  # [D]
    skip: Tensor  # [D]
    mask: DropoutMask
    gate: Tensor | None = None  # [D]; given if z is
    z: Tensor | None = None  # [n, D]

    def full(self) -> Tensor:
        """Return the rows, multiplied out."""
        if kernels_support(self.r, self.W):
            return _Full.apply(self.r, self.W, self.b, self.skip, self.gate, self.z, self.mask)  # type: ignore[no-untyped-call, no-any-return]
        P, rest = self.split()
        return torch.addmm(rest, P, self.W.T)

    def split(self) -> tuple[Tensor, Tensor]:
        """Return P, the matrix of all p, and rest."""
        if kernels_support(self.r, self.W):
            return _Split.apply(self.r, self.b, self.skip, self.gate, self.z, self.mask)  # type: ignore[no-untyped-call, no-any-return]
        rest = self.b + self.skip * self.r
        if self.gate is not None and self.z is not None:
            rest = rest + self.gate * self.z
        return masked_relu(self.r, self.mask), rest

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.r)


def relu_residual(
    r: Tensor,
    W: Tensor,
    b: Tensor,
    skip: Tensor,
    rate: float,
    training: bool,
    first_row: int = 0,
    plus: tuple[Tensor, Tensor] | tuple[()] = (),
) -> Factored:
    """Return W drop(ReLU(r)) + b + skip (.) r, plus gate (.) z where `plus` is (gate, z)."""
    mask = next_mask(rate, training, r.shape[1], first_row)
    return Factored(r, W, b, skip, mask, *plus)


class _Full(torch.autograd.Function):
    """W drop(ReLU(r)) + b + skip (.) r + gate (.) z. The dropout mask is computed again in the backward pass.

    Pieces are cut from arrays (`r_` is r as an array), which takes a tenth of the time that tensors need.
    """

    @staticmethod
    def forward(
        ctx: Any,
        r: Tensor,
        W: Tensor,
        b: Tensor,
        skip: Tensor,
        gate: Tensor | None,
        z: Tensor | None,
        mask: DropoutMask,
    ) -> Tensor:
        ctx.mask = mask
        ctx.has_z = z is not None
        r = r.contiguous()
        gate, z = _or_unused(gate, z, b, r)
        out = torch.empty_like(r, memory_format=torch.contiguous_format)

        r_ = r.numpy()
        z_ = z.numpy()
        out_ = out.numpy()
        for rows, piece_mask, P in _pieces(r, mask):
            share_rows(
                _split_rows,
                len(P),
                P.numel(),
                r_[rows],
                b,
                skip,
                gate,
                z_[rows],
                ctx.has_z,
                piece_mask,
                P,
                out_[rows],
            )
            out[rows].addmm_(P, W.T)

        ctx.save_for_backward(r, W, skip, gate, z)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        r, W, skip, gate, z = ctx.saved_tensors
        g = grads[0].contiguous()
        needs_r = ctx.needs_input_grad[0]
        needs_W = ctx.needs_input_grad[1]
        needs_z = ctx.needs_input_grad[5]

        dim = r.shape[1]
        width = -(-dim // COLUMNS_PER_TILE) * COLUMNS_PER_TILE
        W_padded = pad(W, (0, width - dim))
        dW = W.new_zeros(len(W), width)  # and stays so, if there is no row
        dP = r.new_empty(min(_piece_size(), len(r)), width)
        dr = _new_if(needs_r, r)
        dz = _new_if(needs_z, z)
        sums = torch.empty(-(-len(r) // ROWS_PER_SUM), 3, dim)

        r_ = r.numpy()
        g_ = g.numpy()
        z_ = z.numpy()
        dP_ = dP.numpy()
        dr_ = dr.numpy()
        dz_ = dz.numpy()
        sums_ = sums.numpy()
        for rows, mask, P in _pieces(r, ctx.mask, width):
            share_rows(relu_dropout_rows, len(P), P.numel(), r_[rows], mask, P)
            if needs_W:
                is_first = rows.start == 0
                torch.addmm(dW, g[rows].T, P, beta=0.0 if is_first else 1.0, out=dW)
            if needs_r:
                torch.mm(g[rows], W_padded, out=dP[: len(P)])

            piece_sums = sums_[rows.start // ROWS_PER_SUM : -(-rows.stop // ROWS_PER_SUM)]
            share_rows(
                _merge_rows,
                len(piece_sums),
                P.numel(),
                dP_[: len(P)],
                g_[rows],
                r_[rows],
                P,
                skip,
                gate,
                z_[rows],
                mask.scale,
                needs_r,
                needs_z,
                ctx.has_z,
                dr_[rows],
                dz_[rows],
                piece_sums,
            )

        db, dskip, dgate = sums.sum(0)
        gradients = (dr, dW[:, :dim].contiguous(), db, dskip, dgate, dz, None)
        return _only_needed(gradients, ctx.needs_input_grad)


def _or_unused(gate: Tensor | None, z: Tensor | None, b: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Return gate and z; where there are none, tensors of the same shapes, which the kernels then do not read."""
    if gate is None or z is None:
        return b, r
    return gate, z.contiguous()


def _new_if(needed: bool, tensor: Tensor) -> Tensor:
    """Return a new table for a gradient; if it is not needed, the tensor itself, which the kernel does not change."""
    if needed:
        return torch.empty_like(tensor)
    return tensor


def _only_needed(gradients: Sequence[Tensor | None], needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    return tuple(gradient if need else None for gradient, need in zip(gradients, needed, strict=True))


def _piece_size() -> int:
    return ROWS_PER_THREAD * torch.get_num_threads()


def _pieces(r: Tensor, mask: DropoutMask, width: int | None = None) -> Iterator[tuple[slice, KernelMask, Tensor]]:
    """Yield slices of rows, with their part of the mask and a work table with `width` columns (by default those of r).

    Columns of the work table beyond those of r are 0. All pieces share its memory.
    """
    size = _piece_size()
    P = r.new_empty(min(size, len(r)), width or r.shape[1])
    P[:, r.shape[1] :] = 0
    whole_mask = mask.for_kernels()
    for first in range(0, len(r), size):
        rows = slice(first, min(first + size, len(r)))
        piece_mask = whole_mask._replace(first_row=mask.first_row + first)
        yield rows, piece_mask, P[: rows.stop - first]


class _Split(torch.autograd.Function):
    """drop(ReLU(r)), and b + skip (.) r + gate (.) z."""

    @staticmethod
    def forward(
        ctx: Any,
        r: Tensor,
        b: Tensor,
        skip: Tensor,
        gate: Tensor | None,
        z: Tensor | None,
        mask: DropoutMask,
    ) -> tuple[Tensor, Tensor]:
        ctx.scale = np.float32(mask.scale)
        ctx.has_z = z is not None
        r = r.contiguous()
        gate, z = _or_unused(gate, z, b, r)
        P = torch.empty_like(r)
        rest = torch.empty_like(r)
        share_rows(
            _split_rows,
            len(r),
            r.numel(),
            r,
            b,
            skip,
            gate,
            z,
            ctx.has_z,
            mask.for_kernels(),
            P,
            rest,
        )
        ctx.save_for_backward(r, skip, P, gate, z)
        ctx.set_materialize_grads(False)
        if not ctx.needs_input_grad[0]:
            ctx.mark_non_differentiable(P)  # r is constant: so the loss does not compute the gradient of P
        return P, rest

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        r, skip, P, gate, z = ctx.saved_tensors
        needs_r = ctx.needs_input_grad[0]
        needs_z = ctx.needs_input_grad[4]

        dP = grads[0].contiguous() if needs_r else P  # P is only a stand-in: the kernel then reads no dP
        dr = _new_if(needs_r, r)
        dz = _new_if(needs_z, z)
        sums = torch.empty(-(-len(r) // ROWS_PER_SUM), 3, r.shape[1])
        share_rows(
            _merge_rows,
            len(sums),
            r.numel(),
            dP,
            grads[1].contiguous(),
            r,
            P,
            skip,
            gate,
            z,
            ctx.scale,
            needs_r,
            needs_z,
            ctx.has_z,
            dr,
            dz,
            sums,
        )

        db, dskip, dgate = sums.sum(0)
        return _only_needed((dr, db, dskip, dgate, dz, None), ctx.needs_input_grad)


@kernel
def _split_rows(
    first: int,
    last: int,
    r: Floats,
    b: Floats,
    skip: Floats,
    gate: Floats,
    z: Floats,
    has_z: bool,
    mask: KernelMask,
    P: Floats,
    rest: Floats,
) -> None:
    """P = drop(ReLU(r)) and rest = b + skip (.) r (+ gate (.) z)."""
    for i in range(first, last):
        numbers = pool_numbers(mask, i, r.shape[1])
        for j in range(r.shape[1]):
            value = r[i, j]
            P[i, j] = max(value, np.float32(0)) * mask.scale if numbers[j] >= mask.threshold else np.float32(0)
            rest[i, j] = b[j] + skip[j] * value
        if has_z:
            for j in range(r.shape[1]):
                rest[i, j] += gate[j] * z[i, j]


@kernel
def _merge_rows(
    first: int,
    last: int,
    dP: Floats,
    drest: Floats,
    r: Floats,
    P: Floats,
    skip: Floats,
    gate: Floats,
    z: Floats,
    scale: np.float32,
    needs_r: bool,
    needs_z: bool,
    has_z: bool,
    dr: Floats,
    dz: Floats,
    sums: Floats,
) -> None:
    """Write dr and dz from dP and drest, and for each block of rows its parts of db, dskip and dgate to sums[block]."""
    for block in range(first, last):
        sums[block] = np.float32(0)
        for i in range(block * ROWS_PER_SUM, min((block + 1) * ROWS_PER_SUM, r.shape[0])):
            for j in range(r.shape[1]):
                sums[block, 0, j] += drest[i, j]
                sums[block, 1, j] += drest[i, j] * r[i, j]
            if has_z:
                for j in range(r.shape[1]):
                    sums[block, 2, j] += drest[i, j] * z[i, j]
            if needs_r:
                for j in range(r.shape[1]):
                    through = dP[i, j] * scale if P[i, j] > 0 else np.float32(0)
                    dr[i, j] = through + skip[j] * drest[i, j]
            if needs_z:
                for j in range(r.shape[1]):
                    dz[i, j] = gate[j] * drest[i, j]
