"""Tables with a vector a row of which a step touches a few: token embeddings, and one vector (or bias) a label."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from xcbench.kernels.parallel import SMALL, Floats, Ints, Longs, kernel, share_ranges
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.nn.dropout import fusable


class TokenEmbeddings(nn.Module):
    """E: the embedding of a text is the weighted sum of the vectors of its tokens.

    The gradient is added straight into `weight.grad`, and `touched` marks the rows it reached; the optimiser reads
    both and clears them again, so that no step allocates or sweeps a V x D array. With `lazy` it updates the touched
    rows only (the semantics of torch's SparseAdam), otherwise all of them (those of Adam). `scale` multiplies the
    random start.
    """

    touched: Tensor

    def __init__(self, vocabulary: int, dim: int, lazy: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, dim))
        self.lazy = lazy
        self.register_buffer("touched", torch.zeros(vocabulary, dtype=torch.bool), persistent=False)
        bound = scale * math.sqrt(6.0 / dim)  # Kaiming's uniform with fan-in D, as DECAF has it
        nn.init.uniform_(self.weight, -bound, bound)

    @classmethod
    def of(cls, vectors: Floats) -> TokenEmbeddings:
        """A table that starts at vectors learnt elsewhere."""
        table = cls(*vectors.shape)
        with torch.no_grad():
            table.weight.copy_(torch.from_numpy(vectors))
        return table

    def forward(self, texts: SparseRows) -> Tensor:
        """One embedding a row: sum_t r_t e_t."""
        if texts.width > len(self.weight):
            raise ValueError(f"texts over {texts.width} tokens met a table of {len(self.weight)}")
        if fusable(self.weight):
            return _WeightedBag.apply(self.weight, texts, self.touched)  # type: ignore[no-untyped-call, no-any-return]
        if self.training and self.weight.requires_grad:
            self.touched[torch.from_numpy(texts.columns).to(self.touched.device, torch.int64)] = True
        return _bag(self.weight, texts)

    @torch.no_grad()
    def embed(self, texts: SparseRows, block: int = 1 << 16) -> Tensor:
        """The embeddings of many texts as a constant table on the CPU, for modules that keep E fixed."""
        if fusable(self.weight):
            return self(texts)  # type: ignore[no-any-return]
        rows = np.arange(len(texts))
        return torch.cat([self(texts.take(rows[i : i + block])).cpu() for i in range(0, max(len(rows), 1), block)])


def _bag(weight: Tensor, texts: SparseRows) -> Tensor:
    device = weight.device
    return embedding_bag(
        torch.from_numpy(texts.columns).to(device, torch.int64, non_blocking=True),
        weight,
        torch.from_numpy(texts.starts).to(device, non_blocking=True),
        mode="sum",
        per_sample_weights=torch.from_numpy(texts.values).to(device, weight.dtype, non_blocking=True),
        include_last_offset=True,
    )


class LabelBank(nn.Module):
    """One free vector a label (D given) or one number a label (no D), with a gradient on the rows asked for only.

    Asked for some rows, ascending and all different, it leaves a sparse gradient that any torch optimiser for sparse
    gradients takes. Asked for all of them (None), it is an ordinary dense parameter.
    """

    def __init__(self, labels: int, dim: int | None = None, start: Tensor | None = None) -> None:
        super().__init__()
        shape = (labels,) if dim is None else (labels, dim)
        if start is not None and start.shape != shape:
            raise ValueError(f"a bank of shape {shape} cannot start from a table of shape {tuple(start.shape)}")
        self.weight = nn.Parameter(torch.zeros(shape) if start is None else start.detach().clone())

    def forward(self, labels: Longs | None = None) -> Tensor:
        if labels is None:
            return self.weight
        ids = torch.from_numpy(labels).to(self.weight.device, non_blocking=True)
        return _Rows.apply(self.weight, ids)  # type: ignore[no-untyped-call, no-any-return]


def weighted_sums(weights: SparseRows, table: Tensor) -> Tensor:
    """The sparse matrix `weights` times a table, with a gradient for the table: a graph's step from node to node."""
    if fusable(table):
        return _WeightedSums.apply(table, weights)  # type: ignore[no-untyped-call, no-any-return]
    return _bag(table, weights)


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor) -> Tensor:
        ctx.ids, ctx.shape = ids, weight.shape
        return weight.index_select(0, ids)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        sparse = torch.sparse_coo_tensor(
            ctx.ids[None], grads[0].contiguous(), ctx.shape, check_invariants=False, is_coalesced=True
        )
        return sparse, None


class _WeightedBag(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, texts: SparseRows, touched: Tensor) -> Tensor:
        ctx.weight, ctx.texts, ctx.touched = weight, texts, touched
        return _bag(weight, texts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        weight, texts = ctx.weight, ctx.texts
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        _scatter(texts, grads[0], weight.grad, ctx.touched)
        return None, None, None


class _WeightedSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, weights: SparseRows) -> Tensor:
        ctx.weights, ctx.rows = weights, len(table)
        return _bag(table, weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad = torch.zeros(ctx.rows, grads[0].shape[1])
        _scatter(ctx.weights, grads[0], grad, torch.zeros(ctx.rows, dtype=torch.bool))
        return grad, None


def _scatter(weights: SparseRows, grad: Tensor, into: Tensor, touched: Tensor) -> None:
    """into[column] += value * grad[row] over all entries.

    A column is one thread's; threads get equally many entries, since the first few tokens of a vocabulary may well
    hold half of them.
    """
    to = weights.by_column
    threads = torch.get_num_threads() if len(to.rows) * grad.shape[1] > SMALL else 1
    bounds = [0, len(to.columns)]
    if threads > 1:
        bounds = np.searchsorted(to.starts, np.arange(threads + 1) * len(to.rows) // threads).tolist()
    entries = to.columns, to.starts, to.rows, to.entries, weights.values
    share_ranges(_add_to_columns, bounds, *entries, grad.contiguous(), into, touched)


@kernel
def _add_to_columns(
    first: int, last: int, columns: Ints, starts: Longs, rows: Ints, entries: Longs, values: Floats, grad: Floats,
    into: Floats, touched: npt.NDArray[np.bool_],
) -> None:  # fmt: skip
    for k in range(first, last):
        touched[columns[k]] = True
        target = into[columns[k]]
        e, end = starts[k], starts[k + 1]
        while e + 4 <= end:  # four rows for one load and store of the target
            w0, w1 = values[entries[e]], values[entries[e + 1]]
            w2, w3 = values[entries[e + 2]], values[entries[e + 3]]
            r0, r1, r2, r3 = grad[rows[e]], grad[rows[e + 1]], grad[rows[e + 2]], grad[rows[e + 3]]
            for j in range(grad.shape[1]):
                target[j] += (w0 * r0[j] + w1 * r1[j]) + (w2 * r2[j] + w3 * r3[j])
            e += 4
        while e < end:
            w0, r0 = values[entries[e]], grad[rows[e]]
            for j in range(grad.shape[1]):
                target[j] += w0 * r0[j]
            e += 1
