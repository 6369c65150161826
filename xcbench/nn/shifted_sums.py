"""Sums of rows that are shifted against each other: the second half of a convolution with a stride."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xcbench.kernels.arrays import Floats, Longs
from xcbench.kernels.parallel import kernel, share_rows
from xcbench.nn.dropout import kernels_support


def shifted_sums(products: Tensor, branches: Sequence[int], shifts: Sequence[int]) -> Tensor:
    """Return, per place i, the sum over the pieces s of a branch of products[:, i + shift_s, s].

    Returns [points, places, branches x filters], with as many places as have all their terms.

    Parameters
    ----------
    products
        [points, blocks, pieces, filters].
    branches
        The branch of each piece, ascending from 0.
    shifts
        The shift of each piece.
    """
    points, blocks, _, filters = products.shape
    places = blocks - max(shifts)
    if kernels_support(products):
        return _ShiftedSums.apply(products, np.array(branches), np.array(shifts), places)  # type: ignore[no-untyped-call, no-any-return]

    sums = products.new_zeros(points, places, branches[-1] + 1, filters)
    for piece, (branch, shift) in enumerate(zip(branches, shifts, strict=True)):
        sums[:, :, branch] += products[:, shift : shift + places, piece]
    return sums.flatten(2)


class _ShiftedSums(torch.autograd.Function):
    """The same on our kernels: each number is read and written once, forward and backward."""

    @staticmethod
    def forward(ctx: Any, products: Tensor, branches: Longs, shifts: Longs, places: int) -> Tensor:
        ctx.branches = branches
        ctx.shifts = shifts
        ctx.shape = products.shape
        points, _, _, filters = products.shape
        sums = products.new_empty(points, places, int(branches[-1]) + 1, filters)
        share_rows(_sum_points, points, products.numel(), products.contiguous(), branches, shifts, sums)
        return sums.flatten(2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        grad = grads[0].contiguous()
        products = grad.new_empty(ctx.shape)
        filters = ctx.shape[3]
        grad = grad.view(len(grad), -1, grad.shape[2] // filters, filters)
        share_rows(_spread_points, len(grad), products.numel(), grad, ctx.branches, ctx.shifts, products)
        return products, None, None, None


@kernel
def _sum_points(first: int, last: int, products: Floats, branches: Longs, shifts: Longs, sums: Floats) -> None:
    filters = products.shape[3]
    for point in range(first, last):
        for place in range(sums.shape[1]):
            sums[point, place] = np.float32(0)
            for piece in range(len(shifts)):
                term = products[point, place + shifts[piece], piece]
                target = sums[point, place, branches[piece]]
                for f in range(filters):
                    target[f] += term[f]


@kernel
def _spread_points(first: int, last: int, grad: Floats, branches: Longs, shifts: Longs, products: Floats) -> None:
    """Write the gradient of each product: that of the one sum that it is a term of, or 0."""
    filters = products.shape[3]
    for point in range(first, last):
        for block in range(products.shape[1]):
            for piece in range(len(shifts)):
                place = block - shifts[piece]
                target = products[point, block, piece]
                if 0 <= place < grad.shape[1]:
                    source = grad[point, place, branches[piece]]
                    for f in range(filters):
                        target[f] = source[f]
                else:
                    for f in range(filters):
                        target[f] = np.float32(0)
