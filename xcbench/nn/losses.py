"""Binary cross-entropy of points against all labels, and against each point's shortlist.

Targets may be real-valued: BCE(s, y) = softplus(s) - y s. Against all labels, a pair whose target is nan is ignored: it
has no loss. (Shortlists do not contain such pairs.)

Both losses compute their gradients in the forward pass, in pieces. The B x K matrix of scores never exists as a whole,
and no vector is copied per (point, candidate) pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from xcbench.kernels.arrays import Longs
from xcbench.kernels.csr import SparseRows
from xcbench.kernels.parallel import share_rows
from xcbench.nn import bce_kernels as kernels
from xcbench.nn.device_arrays import rows_on_device
from xcbench.nn.dropout import kernels_support
from xcbench.nn.pair_scores import DENSE_ABOVE, pair_scores
from xcbench.nn.residual import Factored

Reduction = Literal["mean", "batch"]
"""The mean over all entries, or their sum divided by the number of points. The papers' "mean" makes gradients as small
as Adam's epsilon when there are many labels: see docs/guides/training.md before changing one without the other."""

SCORES_AT_ONCE = 1 << 19
"""Entries of a piece of the score matrix: 2 MB, so that it stays in cache between its three matrix products."""

FULL_ABOVE = 0.7
"""From this many points per dimension on, applying a block to every label beats moving its map to the points. It needs
a few more operations, but two fewer tables of the size of all labels."""


@dataclass(frozen=True)
class Shortlists:
    """The candidates of the points of a batch.

    `labels` is the union of all candidates. Row i of `entries` has the candidates of point i: columns are positions in
    `labels`, and values are targets.
    """

    labels: Longs  # [U], ascending, distinct
    entries: SparseRows  # [B, U]


def bce_over_all(
    x: Tensor,
    H: Tensor | Factored,
    targets: SparseRows,
    bias: Tensor | None = None,
    reduction: Reduction = "mean",
    pairs: int | None = None,
) -> Tensor:
    """Return the loss of the scores x H^T + bias over all (point, label) pairs.

    Parameters
    ----------
    x
        Points, [B, D].
    H
        Classifiers of all labels, [L, D].
    targets
        One row per point; labels that it does not list have the target 0, and nan means that a pair is ignored.
    bias
        One bias per label, [L].
    reduction
        `mean` divides by the number of pairs, `batch` by the number of points.
    pairs
        The number of pairs to divide by, where H has only some of the labels; by default the number of its own.
    """
    if pairs is None:
        pairs = len(x) * len(H)
    scale = 1.0 / _divisor(reduction, len(x), pairs)
    factors = _factors(x, H)
    return _BceInPieces.apply(targets, scale, False, bias, *factors)  # type: ignore[no-untyped-call, no-any-return]


def bce_over_shortlists(
    x: Tensor,
    W: Tensor | Factored,
    shortlists: Shortlists,
    bias: Tensor | None = None,
    reduction: Reduction = "mean",
    pairs: int | None = None,
) -> Tensor:
    """Return the loss of the scores x W^T + bias over each point's own candidates.

    Parameters
    ----------
    x
        Points, [B, D].
    W
        Classifiers of `shortlists.labels`, [U, D].
    shortlists
        The candidates of each point, and their targets.
    bias
        Biases of `shortlists.labels`, [U].
    reduction
        `mean` divides by the number of candidates of all points, `batch` by the number of points.
    pairs
        The number of candidates to divide by, where these are only some of them; by default their own number.
    """
    entries = shortlists.entries
    candidates = len(entries.indices)
    if pairs is None:
        pairs = candidates
    scale = 1.0 / _divisor(reduction, len(x), pairs)
    if not kernels_support(x):
        return _gathered_bce(x, W, bias, entries) * scale

    if candidates > DENSE_ABOVE * len(x) * len(W):
        factors = _factors(x, W)
        return _BceInPieces.apply(entries, scale, True, bias, *factors)  # type: ignore[no-untyped-call, no-any-return]
    factors = _split_factors(x, W)
    return _BceOverPairs.apply(entries, scale, bias, *factors)  # type: ignore[no-untyped-call, no-any-return]


def _divisor(reduction: Reduction, points: int, entries: int) -> int:
    if reduction == "mean":
        return max(entries, 1)
    return max(points, 1)


def _factors(x: Tensor, H: Tensor | Factored) -> Sequence[Tensor]:
    """Return A, B with x H^T = A B^T, or A, B, C, D with x H^T = A B^T + C D^T, whichever is cheaper to multiply."""
    if isinstance(H, Factored) and len(x) >= FULL_ABOVE * x.shape[1]:
        return (x, H.full())
    return _split_factors(x, H)


def _split_factors(x: Tensor, H: Tensor | Factored) -> Sequence[Tensor]:
    if isinstance(H, Tensor):
        return (x, H)
    P, rest = H.split()
    return (x @ H.W, P, x, rest)


class _BceInPieces(torch.autograd.Function):
    """Scores in pieces of labels. Each piece is turned into its gradient and used before the next one is computed.

    The factors are x, T (and x2, T2) with scores x T^T (+ x2 T2^T).
    """

    @staticmethod
    def forward(
        ctx: Any,
        entries: SparseRows,
        scale: float,
        candidates_only: bool,
        bias: Tensor | None,
        *factors: Tensor,
    ) -> Tensor:
        ctx.dtypes = _dtypes(bias, *factors)
        factors = tuple(_in_autocast_dtype(factor) for factor in factors)
        xs = factors[::2]
        Ts = factors[1::2]
        points = len(xs[0])
        labels = len(Ts[0])

        needed = ctx.needs_input_grad[4:]
        dxs = [torch.zeros_like(x) if need else None for x, need in zip(xs, needed[::2], strict=True)]
        dTs = [torch.empty_like(T) if need else None for T, need in zip(Ts, needed[1::2], strict=True)]
        dbias = None
        if bias is not None and any(ctx.needs_input_grad):
            dbias = torch.empty_like(bias)

        losses = torch.zeros(points, dtype=torch.float64, device=xs[0].device)
        width = _labels_per_piece(xs[0])
        buffer = xs[0].new_empty(points * min(width, labels), dtype=_at_least_float32(xs[0].dtype))
        for first in range(0, labels, width):
            piece = slice(first, min(first + width, labels))
            s = buffer[: points * (piece.stop - first)].view(points, -1)
            _write_scores(s, xs, Ts, bias, piece)
            _scores_to_gradients(s, first, entries, scale, candidates_only, losses)
            _add_gradients(s, xs, Ts, dxs, dTs, dbias, piece)

        ctx.grads = [dbias]
        for dx, dT in zip(dxs, dTs, strict=True):
            ctx.grads += [dx, dT]
        ctx.scale = 1.0 if kernels_support(xs[0]) else scale

        loss = losses.sum() * scale
        if xs[0].dtype == torch.float64:
            return loss
        return loss.float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *_scaled(ctx.grads, ctx.dtypes, grads[0] * ctx.scale)


def _write_scores(
    s: Tensor,
    xs: Sequence[Tensor],
    Ts: Sequence[Tensor],
    bias: Tensor | None,
    piece: slice,
) -> None:
    if s.dtype == xs[0].dtype:
        torch.mm(xs[0], Ts[0][piece].T, out=s)
        for x, T in zip(xs[1:], Ts[1:], strict=True):
            s.addmm_(x, T[piece].T)
    else:  # products in short numbers, and their sum in float32
        s.zero_()
        for x, T in zip(xs, Ts, strict=True):
            s += x @ T[piece].T
    if bias is not None:
        s += bias[piece]


def _add_gradients(
    s: Tensor,
    xs: Sequence[Tensor],
    Ts: Sequence[Tensor],
    dxs: Sequence[Tensor | None],
    dTs: Sequence[Tensor | None],
    dbias: Tensor | None,
    piece: slice,
) -> None:
    """Add a piece's part of the gradients, as far as they are needed. `s` has the gradients of its scores."""
    if dbias is not None:
        torch.sum(s, 0, out=dbias[piece])
    s = s.to(xs[0].dtype)
    for x, T, dx, dT in zip(xs, Ts, dxs, dTs, strict=True):
        if dx is not None:
            dx.addmm_(s, T[piece])
        if dT is not None:
            torch.mm(s.T, x, out=dT[piece])


class _BceOverPairs(torch.autograd.Function):
    """Scores of the candidates only, one dot product each. The factors are those of `_BceInPieces`."""

    @staticmethod
    def forward(ctx: Any, entries: SparseRows, scale: float, bias: Tensor | None, *factors: Tensor) -> Tensor:
        ctx.dtypes = _dtypes(bias, *factors)
        if len(factors) == 2:  # the kernels then get a second pair without columns
            x, T = factors
            factors = (x, T, x[:, :0], T[:, :0])
        x, T, x2, T2 = (factor.contiguous() for factor in factors)
        offsets = T.new_empty(0) if bias is None else bias  # likewise, an empty bias means that there is none

        dx = torch.empty_like(x)
        dT = torch.empty_like(T)
        dx2 = torch.empty_like(x2)
        dT2 = torch.empty_like(T2)
        dbias = torch.empty_like(offsets)
        losses = np.zeros(len(x))
        gradients = np.empty(len(entries.indices), np.float32)
        work = len(gradients) * x.shape[1]
        share_rows(
            kernels.bce_of_pairs,
            len(x),
            work,
            x,
            T,
            x2,
            T2,
            offsets,
            entries.indptr,
            entries.indices,
            entries.data,
            np.float32(scale),
            losses,
            gradients,
            dx,
            dx2,
        )

        if any(ctx.needs_input_grad):
            by_label = entries.by_column
            if len(by_label.columns) < len(T):  # some labels are no point's candidates
                dT.zero_()
                dT2.zero_()
                dbias.zero_()
            share_rows(
                kernels.gradients_of_labels,
                len(by_label.columns),
                work,
                by_label.columns,
                by_label.indptr,
                by_label.rows,
                by_label.entries,
                gradients,
                x,
                x2,
                dT,
                dT2,
                dbias,
            )

        gradients_of_factors = [dx, dT, dx2, dT2][: len(ctx.dtypes) - 1]
        ctx.grads = [None if bias is None else dbias, *gradients_of_factors]
        return torch.tensor(losses.sum() * scale, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_scaled(ctx.grads, ctx.dtypes, grads[0])


def _dtypes(*tensors: Tensor | None) -> list[torch.dtype | None]:
    return [None if tensor is None else tensor.dtype for tensor in tensors]


def _in_autocast_dtype(tensor: Tensor) -> Tensor:
    """Return the tensor in the precision of autocast, if that is enabled."""
    device = tensor.device.type
    dtype = tensor.dtype
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    return tensor.to(dtype).contiguous()


def _labels_per_piece(x: Tensor) -> int:
    entries = SCORES_AT_ONCE
    if x.device.type != "cpu":
        entries = SCORES_AT_ONCE << 6
    return max(1, entries // max(len(x), 1))


def _scores_to_gradients(
    s: Tensor,
    first: int,
    entries: SparseRows,
    scale: float,
    candidates_only: bool,
    losses: Tensor,
) -> None:
    """Replace a piece of scores by its gradients, and add its losses to `losses`.

    On the CPU, gradients are multiplied by `scale` here, where it costs nothing. `first` is the first label.
    """
    if not kernels_support(s):
        _scores_to_gradients_in_torch(s, first, entries, losses)
        return

    kernel = kernels.bce_of_all
    if candidates_only:
        kernel = kernels.bce_of_candidates
    share_rows(
        kernel,
        len(s),
        s.numel(),
        s,
        first,
        entries.indptr,
        entries.indices,
        entries.data,
        np.float32(scale),
        losses,
    )


def _scores_to_gradients_in_torch(s: Tensor, first: int, entries: SparseRows, losses: Tensor) -> None:
    # No entry is selected by a mask: for that, the CPU would have to wait until the device has counted the entries.
    # Entries of other pieces are moved to a place in this one, where they count 0.
    listed = rows_on_device(entries, s.device)
    rows = listed.row_of_entries()
    in_piece = (listed.indices >= first) & (listed.indices < first + s.shape[1])
    columns = (listed.indices - first).clamp(0, s.shape[1] - 1)
    y = listed.data.to(s.dtype)
    is_ignored = y.isnan()

    losses += softplus(s).sum(1, dtype=torch.float64)
    score = s[rows, columns]
    in_loss = torch.where(is_ignored, softplus(score), y * score)
    losses.index_add_(0, rows, -torch.where(in_piece, in_loss, 0).double())

    s.sigmoid_()
    in_gradient = torch.where(is_ignored, s[rows, columns], y)
    s.index_put_((rows, columns), -torch.where(in_piece, in_gradient, 0), accumulate=True)


def _scaled(
    grads: Sequence[Tensor | None],
    dtypes: Sequence[torch.dtype | None],
    factor: Tensor,
) -> list[Tensor | None]:
    """Return gradients times the incoming gradient, in their parameters' precision.

    The factor is 1 unless losses are combined or spread over processes.
    """
    is_one = factor.device.type == "cpu" and factor.item() == 1.0
    scaled: list[Tensor | None] = []
    for grad, dtype in zip(grads, dtypes, strict=True):
        if grad is None:
            scaled.append(None)
        elif is_one:
            scaled.append(grad.to(dtype))
        else:
            scaled.append((grad * factor).to(dtype))
    return scaled


def _gathered_bce(x: Tensor, W: Tensor | Factored, bias: Tensor | None, entries: SparseRows) -> Tensor:
    """Return the loss of the candidates in plain torch, from the products of all pairs."""
    if isinstance(W, Factored):
        W = W.full()
    s = pair_scores(x, W, entries)
    s = s.to(_at_least_float32(s.dtype))
    listed = rows_on_device(entries, x.device)
    if bias is not None:
        s = s + bias[listed.indices]
    loss: Tensor = (softplus(s) - listed.data.to(s.dtype) * s).sum()
    return loss


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which losses are computed: that of the factors, but not a shorter one than float32."""
    return torch.promote_types(dtype, torch.float32)
