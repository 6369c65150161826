"""Binary cross-entropy of points against all labels, and against a shortlist a point.

Both compute their gradients on the way, in pieces: no B x K matrix of scores is ever kept whole, and no vector is
copied once per (point, candidate) pair. Targets may be real-valued: BCE(s, y) = softplus(s) - y s. Against all labels,
a target that is not a number leaves its pair open: it has no loss. (A shortlist leaves such a pair out.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from xcbench.kernels.parallel import Longs, share_rows
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.nn import bce_kernels as kernels
from xcbench.nn.dropout import fusable
from xcbench.nn.residual import Factored

Reduction = Literal["mean", "batch"]
"""The mean over all entries, or their sum divided by the number of points. The papers' "mean" makes gradients as small
as Adam's epsilon when there are many labels: see docs/training.md before changing one without the other."""

SCORES_AT_ONCE = 1 << 19
"""Entries of a piece of the score matrix: 2 MB, so that it stays in cache between its three matrix products."""

FULL_ABOVE = 0.7
"""From so many points a dimension on, applying a block to every label beats moving its map to the points: that needs a
few more operations, but two tables of the size of all labels less."""

DENSE_ABOVE = 0.1
"""From this share of (point, label) pairs on, scoring all pairs by matrix product beats visiting the wanted ones."""


@dataclass(frozen=True)
class Shortlists:
    """The candidates of a batch: their union, and each point's own as places in it, with targets as values."""

    labels: Longs  # [U], ascending, all different
    entries: SparseRows  # [B, U]


def bce_over_all(
    x: Tensor,
    H: Tensor | Factored,
    targets: SparseRows,
    bias: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Loss of scores x H^T + bias over all (point, label) pairs; targets that are not listed are 0."""
    scale = 1.0 / _terms(reduction, len(x), len(x) * len(H))
    return _BceInPieces.apply(targets, scale, False, bias, *_pairs(x, H))  # type: ignore[no-untyped-call, no-any-return]


def bce_over_shortlists(
    x: Tensor,
    W: Tensor | Factored,
    shortlists: Shortlists,
    bias: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Loss over each point's own candidates. Row u of W and bias belong to `shortlists.labels[u]`."""
    entries = shortlists.entries
    scale = 1.0 / _terms(reduction, len(x), len(entries.columns))
    if not fusable(x):
        W = W.full() if isinstance(W, Factored) else W
        return _gathered_bce(x @ W.T if bias is None else torch.addmm(bias, x, W.T), entries) * scale
    if len(entries.columns) > DENSE_ABOVE * len(x) * len(W):
        return _BceInPieces.apply(entries, scale, True, bias, *_pairs(x, W))  # type: ignore[no-untyped-call, no-any-return]
    return _BceOverPairs.apply(entries, scale, bias, *_split_pairs(x, W))  # type: ignore[no-untyped-call, no-any-return]


def _terms(reduction: Reduction, points: int, entries: int) -> int:
    return max(entries if reduction == "mean" else points, 1)


def _pairs(x: Tensor, H: Tensor | Factored) -> Sequence[Tensor]:
    """Matrices A, B, ... with x H^T = A B^T (+ C D^T): a chain of products, associated in the cheaper order."""
    if isinstance(H, Factored) and len(x) >= FULL_ABOVE * x.shape[1]:
        return (x, H.full())
    return _split_pairs(x, H)


def _split_pairs(x: Tensor, H: Tensor | Factored) -> Sequence[Tensor]:
    if isinstance(H, Tensor):
        return (x, H)
    P, rest = H.split()
    return (x @ H.W, P, x, rest)


class _BceInPieces(torch.autograd.Function):
    """Scores in pieces of labels; each piece turns into its gradient, and is used up, before the next is formed."""

    @staticmethod
    def forward(
        ctx: Any, entries: SparseRows, scale: float, listed_only: bool, bias: Tensor | None, *pairs: Tensor
    ) -> Tensor:
        want = any(ctx.needs_input_grad)
        ctx.types = [None if t is None else t.dtype for t in (bias, *pairs)]
        pairs = tuple(_as_computed(p) for p in pairs)
        xs, Ts = pairs[::2], pairs[1::2]
        wanted = ctx.needs_input_grad[4:]
        dxs = [torch.zeros_like(x) if need else None for x, need in zip(xs, wanted[::2], strict=True)]
        dTs = [torch.empty_like(T) if need else None for T, need in zip(Ts, wanted[1::2], strict=True)]
        dbias = torch.empty_like(bias) if want and bias is not None else None
        losses = torch.zeros(len(xs[0]), dtype=torch.float64, device=xs[0].device)
        width = _labels_at_once(xs[0])
        buffer = xs[0].new_empty(len(xs[0]) * min(width, len(Ts[0])))
        for first in range(0, len(Ts[0]), width):
            here = slice(first, min(first + width, len(Ts[0])))
            s = buffer[: len(xs[0]) * (here.stop - first)].view(len(xs[0]), -1)
            torch.mm(xs[0], Ts[0][here].T, out=s)
            for x, T in zip(xs[1:], Ts[1:], strict=True):
                s.addmm_(x, T[here].T)
            if bias is not None:
                s += bias[here]
            _to_gradient(s, first, entries, scale, listed_only, losses)
            for x, T, dx, dT in zip(xs, Ts, dxs, dTs, strict=True):
                if dx is not None:
                    dx.addmm_(s, T[here])
                if dT is not None:
                    torch.mm(s.T, x, out=dT[here])
            if dbias is not None:
                torch.sum(s, 0, out=dbias[here])
        ctx.grads = [dbias, *(d for pair in zip(dxs, dTs, strict=True) for d in pair)]
        ctx.scale = 1.0 if fusable(xs[0]) else scale
        return (losses.sum() * scale).float() if xs[0].dtype != torch.float64 else losses.sum() * scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *_scaled(ctx.grads, ctx.types, grads[0] * ctx.scale)


class _BceOverPairs(torch.autograd.Function):
    """Scores of the wanted pairs only, one dot product each."""

    @staticmethod
    def forward(ctx: Any, entries: SparseRows, scale: float, bias: Tensor | None, *pairs: Tensor) -> Tensor:
        ctx.types = [None if t is None else t.dtype for t in (bias, *pairs)]
        x, T, x2, T2 = [p.contiguous() for p in (*pairs, *(p[:, :0] for p in pairs))][:4]
        dx, dT, dx2, dT2 = (torch.empty_like(p) for p in (x, T, x2, T2))
        offsets = T.new_empty(0) if bias is None else bias
        dbias = torch.empty_like(offsets)
        losses, gradients = np.zeros(len(x)), np.empty(len(entries.columns), np.float32)
        listed, work = (entries.starts, entries.columns, entries.values), len(gradients) * x.shape[1]
        outputs = losses, gradients, dx, dx2
        share_rows(kernels.bce_of_pairs, len(x), work, x, T, x2, T2, offsets, *listed, np.float32(scale), *outputs)
        if any(ctx.needs_input_grad):
            to = entries.by_column
            by_label = to.columns, to.starts, to.rows, to.entries
            if len(to.columns) < len(T):  # labels that no point lists
                dT.zero_(), dT2.zero_(), dbias.zero_()
            share_rows(kernels.gradients_of_labels, len(to.columns), work, *by_label, gradients, x, x2, dT, dT2, dbias)
        ctx.grads = [None if bias is None else dbias, dx, dT, dx2, dT2][: 1 + len(pairs)]
        return torch.tensor(losses.sum() * scale, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_scaled(ctx.grads, ctx.types, grads[0])


def _as_computed(t: Tensor) -> Tensor:
    """In the precision that autocast asks for, if it does."""
    kind = t.device.type
    return t.to(torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else t.dtype).contiguous()


def _labels_at_once(x: Tensor) -> int:
    return max(1, (SCORES_AT_ONCE if x.device.type == "cpu" else SCORES_AT_ONCE << 6) // max(len(x), 1))


def _to_gradient(s: Tensor, first: int, entries: SparseRows, scale: float, listed_only: bool, losses: Tensor) -> None:
    """Replace a piece of scores by its gradient (scaled on the CPU, where it costs nothing) and add up the losses."""
    if fusable(s):
        kernel = kernels.bce_of_listed if listed_only else kernels.bce_of_all
        listed = entries.starts, entries.columns, entries.values
        share_rows(kernel, len(s), s.numel(), s, first, *listed, np.float32(scale), losses)
        return
    rows, columns, y = _entries_on(s.device, entries)
    here = (columns >= first) & (columns < first + s.shape[1])
    rows, columns, y = rows[here], columns[here] - first, y[here].to(s.dtype)
    losses += softplus(s.to(torch.promote_types(s.dtype, torch.float32))).sum(1, dtype=torch.float64)
    score, is_open = s[rows, columns], y.isnan()
    losses.index_add_(0, rows, -torch.where(is_open, softplus(score), y * score).double())
    s.sigmoid_().index_put_((rows, columns), -y, accumulate=True)
    s[rows[is_open], columns[is_open]] = 0


def _scaled(grads: Sequence[Tensor | None], types: Sequence[torch.dtype | None], factor: Tensor) -> list[Tensor | None]:
    """Gradients times what arrives from above, which is 1 unless losses are mixed or spread over processes."""
    if factor.device.type == "cpu" and factor.item() == 1.0:
        return [None if g is None else g.to(t) for g, t in zip(grads, types, strict=True)]
    return [None if g is None else (g * factor).to(t) for g, t in zip(grads, types, strict=True)]


def _gathered_bce(scores: Tensor, entries: SparseRows) -> Tensor:
    """Loss of the listed pairs in plain torch, from the scores of all."""
    rows, columns, y = _entries_on(scores.device, entries)
    s = scores[rows, columns]
    return (softplus(s) - y.to(s.dtype) * s).sum()


def _entries_on(device: torch.device, entries: SparseRows) -> tuple[Tensor, Tensor, Tensor]:
    rows = np.repeat(np.arange(len(entries)), np.diff(entries.starts))
    return (
        torch.from_numpy(rows).to(device, non_blocking=True),
        torch.from_numpy(entries.columns).to(device, torch.int64, non_blocking=True),
        torch.from_numpy(entries.values).to(device, non_blocking=True),
    )
