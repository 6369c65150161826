"""Scores of listed (point, label) pairs, with gradients, without a copy of a vector per pair.

The losses of `losses` score and judge pairs in one pass. A loss that is not the cross-entropy of the score alone takes
the scores from here and goes on in torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import SparseRows
from xcbench.kernels.parallel import kernel, share_rows
from xcbench.nn.device_arrays import rows_on_device
from xcbench.nn.dropout import kernels_support

DENSE_ABOVE = 0.1
"""From this share of (point, label) pairs on, one matrix product for all pairs beats scoring them one by one."""


def pair_scores(x: Tensor, W: Tensor, pairs: SparseRows, bias: Tensor | None = None) -> Tensor:
    """Return <x_i, w_u> + bias_u for all listed pairs (i, u), in their order.

    Parameters
    ----------
    x
        Points, [B, D].
    W
        Classifiers, [U, D].
    pairs
        [B, U] one row per point, which lists its labels by their rows of W. Values are not used.
    bias
        One number per label, [U], or None.
    """
    if kernels_support(x, W):
        scores: Tensor = _PairScores.apply(x, W, pairs)  # type: ignore[no-untyped-call]
    else:
        listed = rows_on_device(pairs, x.device)
        scores = (x @ W.T)[listed.row_of_entries(), listed.indices]
    if bias is None:
        return scores
    columns = rows_on_device(pairs, x.device).indices
    return scores + bias[columns]


class _PairScores(torch.autograd.Function):
    """On our kernels: by one product for all pairs and a look-up, or one by one where few of them are listed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, pairs: SparseRows) -> Tensor:
        x = x.contiguous()
        W = W.contiguous()
        ctx.save_for_backward(x, W)
        ctx.pairs = pairs
        count = len(pairs.indices)
        ctx.dense = count > DENSE_ABOVE * len(x) * len(W)
        scores = torch.empty(count)
        if ctx.dense:
            share_rows(_look_up, len(x), count, x @ W.T, pairs.indptr, pairs.indices, scores)
        else:
            share_rows(_products, len(x), count * x.shape[1], x, W, pairs.indptr, pairs.indices, scores)
        return scores

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, W = ctx.saved_tensors
        pairs = ctx.pairs
        ds = grads[0].contiguous()
        if ctx.dense:
            G = torch.zeros(len(x), len(W))
            share_rows(_put_back, len(x), len(ds), ds, pairs.indptr, pairs.indices, G)
            return G @ W, G.T @ x, None

        dx = torch.zeros_like(x)
        dW = torch.zeros_like(W)
        work = len(ds) * x.shape[1]
        share_rows(_sums_by_point, len(x), work, ds, pairs.indptr, pairs.indices, W, dx)
        by_label = pairs.by_column
        share_rows(
            _sums_by_label,
            len(by_label.columns),
            work,
            ds,
            by_label.columns,
            by_label.indptr,
            by_label.rows,
            by_label.entries,
            x,
            dW,
        )
        return dx, dW, None


@kernel
def _look_up(first: int, last: int, products: Floats, indptr: Longs, columns: Ints, out: Floats) -> None:
    for i in range(first, last):
        row = products[i]
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = row[columns[e]]


@kernel
def _put_back(first: int, last: int, values: Floats, indptr: Longs, columns: Ints, out: Floats) -> None:
    for i in range(first, last):
        row = out[i]
        for e in range(indptr[i], indptr[i + 1]):
            row[columns[e]] += values[e]


@kernel
def _products(first: int, last: int, x: Floats, W: Floats, indptr: Longs, columns: Ints, out: Floats) -> None:
    for i in range(first, last):
        point = x[i]
        for e in range(indptr[i], indptr[i + 1]):
            label = W[columns[e]]
            score = np.float32(0)
            for j in range(len(point)):
                score += point[j] * label[j]
            out[e] = score


@kernel
def _sums_by_point(
    first: int,
    last: int,
    ds: Floats,
    indptr: Longs,
    columns: Ints,
    W: Floats,
    dx: Floats,
) -> None:
    """dx_i = sum over the pairs (i, u) of ds w_u."""
    for i in range(first, last):
        point = dx[i]
        for e in range(indptr[i], indptr[i + 1]):
            label = W[columns[e]]
            for j in range(len(point)):
                point[j] += ds[e] * label[j]


@kernel
def _sums_by_label(
    first: int,
    last: int,
    ds: Floats,
    labels: Ints,
    indptr: Longs,
    rows: Ints,
    entries: Longs,
    x: Floats,
    dW: Floats,
) -> None:
    """dw_u = sum over the pairs (i, u) of ds x_i."""
    for k in range(first, last):
        label = dW[labels[k]]
        for e in range(indptr[k], indptr[k + 1]):
            point = x[rows[e]]
            d = ds[entries[e]]
            for j in range(len(label)):
                label[j] += d * point[j]
