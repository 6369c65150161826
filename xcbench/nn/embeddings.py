"""Tables with one learnt vector per token or per label. A training step reads and updates only some of their rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import ByColumn, SparseRows
from xcbench.kernels.parallel import SMALL, kernel, share_ranges
from xcbench.nn.device_arrays import DeviceRows, on_device, rows_on_device, take_on_device
from xcbench.nn.dropout import kernels_support


class TokenEmbeddings(nn.Module):
    """E: the embedding of a text is the weighted sum of its tokens' vectors, E x = sum_t x_t e_t.

    The gradient is added straight into `weight.grad`, and `touched` marks the rows that it reached. `Adam` reads both
    and clears them again, so that no step allocates or sweeps a table of V x D.

    Parameters
    ----------
    vocabulary
        V, the number of tokens.
    dim
        D, the length of a vector.
    lazy
        Whether `Adam` updates only the touched rows, as torch's SparseAdam does, or all rows, as torch's Adam does.
    scale
        Multiplies the random initial vectors.
    """

    touched: Tensor

    def __init__(self, vocabulary: int, dim: int, lazy: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, dim))
        self.lazy = lazy
        self.register_buffer("touched", torch.zeros(vocabulary, dtype=torch.bool), persistent=False)
        bound = scale * math.sqrt(6.0 / dim)  # Kaiming's uniform with fan-in D, as in DECAF's code
        nn.init.uniform_(self.weight, -bound, bound)

    @classmethod
    def of(cls, vectors: Floats, lazy: bool = False) -> TokenEmbeddings:
        """Return a table that starts at given vectors. `lazy` is as above."""
        vocabulary, dim = vectors.shape
        table = cls(vocabulary, dim, lazy)
        with torch.no_grad():
            table.weight.copy_(torch.from_numpy(vectors))
        return table

    def forward(self, texts: SparseRows) -> Tensor:
        """Return one embedding per row of `texts`."""
        if texts.width > len(self.weight):
            raise ValueError(f"texts over {texts.width} tokens met a table of {len(self.weight)}")
        if kernels_support(self.weight):
            return _EmbedTexts.apply(self.weight, texts, self.touched)  # type: ignore[no-untyped-call, no-any-return]

        return self._sums_in_torch(rows_on_device(texts, self.weight.device))

    def of_words(self, texts: SparseRows) -> Tensor:
        """Return one vector per entry of `texts`, in their order, whatever its value: the words, not their sum."""
        count = len(texts.indices)
        single = SparseRows(
            indptr=np.arange(count + 1),
            indices=texts.indices,
            data=np.ones(count, np.float32),
            width=texts.width,
        )
        return self(single)  # type: ignore[no-any-return]

    def of_rows(self, texts: SparseRows, rows: Longs) -> Tensor:
        """Return the embeddings of some rows of constant texts, which stay on the device."""
        if self.weight.device.type == "cpu":
            return self(texts.take(rows))  # type: ignore[no-any-return]
        return self._sums_in_torch(take_on_device(texts, rows, self.weight.device))

    def _sums_in_torch(self, texts: DeviceRows) -> Tensor:
        if self.training and self.weight.requires_grad:
            self.touched[texts.indices] = True
        return _sums(texts, self.weight)

    @torch.no_grad()
    def embed(self, texts: SparseRows, block: int = 1 << 16) -> Tensor:
        """Return the embeddings of many texts as a constant table on the CPU, for modules that keep E fixed.

        `block` is the number of texts that are embedded at a time on other devices.
        """
        if kernels_support(self.weight):
            return self(texts)  # type: ignore[no-any-return]

        rows = np.arange(len(texts))
        parts = []
        for first in range(0, max(len(rows), 1), block):
            part = self(texts.take(rows[first : first + block]))
            parts.append(part.cpu())
        return torch.cat(parts)


class LabelBank(nn.Module):
    """A table with one free vector per label, or with one number per label (a bias) if no `dim` is given.

    Called with label ids, it leaves a sparse gradient on these rows, which any torch optimiser for sparse gradients
    takes. Called with None, it returns all rows, and is an ordinary dense parameter.

    Parameters
    ----------
    labels
        The number of labels.
    dim
        The length of a vector; None for a table of numbers.
    start
        The initial table, [labels, dim] or [labels]; zeros by default.
    """

    def __init__(self, labels: int, dim: int | None = None, start: Tensor | None = None) -> None:
        super().__init__()
        shape = (labels,) if dim is None else (labels, dim)
        if start is None:
            self.weight = nn.Parameter(torch.zeros(shape))
            return
        if start.shape != shape:
            raise ValueError(f"a bank of shape {shape} cannot start from a table of shape {tuple(start.shape)}")
        self.weight = nn.Parameter(start.detach().clone())

    def forward(self, labels: Longs | None = None) -> Tensor:
        """Return the rows of these labels, which must be ascending and distinct; None means all labels."""
        if labels is None:
            return self.weight
        ids = on_device(labels, self.weight.device)
        return _TakeRows.apply(self.weight, ids)  # type: ignore[no-untyped-call, no-any-return]


def weighted_sums(weights: SparseRows | DeviceRows, table: Tensor) -> Tensor:
    """Return the product of a sparse matrix and a table: one graph convolution, if the matrix is a graph.

    Parameters
    ----------
    weights
        The sparse matrix, [rows, n]. It is constant. It may be on the table's device already.
    table
        A dense matrix [n, D], which gets a gradient.
    """
    if isinstance(weights, DeviceRows):
        return _sums(weights, table)
    if kernels_support(table):
        return _WeightedSums.apply(table, weights)  # type: ignore[no-untyped-call, no-any-return]
    return _sums(rows_on_device(weights, table.device), table)


def _sums(weights: DeviceRows, table: Tensor) -> Tensor:
    """Return `weights` times `table` by torch's `embedding_bag`."""
    return embedding_bag(
        weights.indices,
        table,
        weights.indptr,
        mode="sum",
        per_sample_weights=weights.data.to(table.dtype),
        include_last_offset=True,
    )


class _TakeRows(torch.autograd.Function):
    """weight[ids], with a sparse gradient."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor) -> Tensor:
        ctx.ids = ids
        ctx.shape = weight.shape
        return weight.index_select(0, ids)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        sparse = torch.sparse_coo_tensor(
            ctx.ids[None],
            grads[0].contiguous(),
            ctx.shape,
            check_invariants=False,
            is_coalesced=True,
        )
        return sparse, None


class _EmbedTexts(torch.autograd.Function):
    """texts @ weight. The gradient is added to `weight.grad` here, and rows that it reaches are marked as touched."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, texts: SparseRows, touched: Tensor) -> Tensor:
        ctx.weight = weight
        ctx.texts = texts
        ctx.touched = touched
        return _sums(rows_on_device(texts, weight.device), weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        weight = ctx.weight
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        _scatter_add(ctx.texts, grads[0], weight.grad, ctx.touched)
        return None, None, None


class _WeightedSums(torch.autograd.Function):
    """weights @ table, with a dense gradient for the table."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, weights: SparseRows) -> Tensor:
        ctx.weights = weights
        ctx.rows = len(table)
        return _sums(rows_on_device(weights, table.device), table)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        dtable = torch.zeros(ctx.rows, grads[0].shape[1])
        touched = torch.zeros(ctx.rows, dtype=torch.bool)
        _scatter_add(ctx.weights, grads[0], dtable, touched)
        return dtable, None


def _scatter_add(weights: SparseRows, grad: Tensor, out: Tensor, touched: Tensor) -> None:
    """out += weights^T grad, and mark the rows of `out` that have changed."""
    by_column = weights.by_column
    share_ranges(
        _scatter_add_columns,
        _column_ranges(by_column, grad.shape[1]),
        by_column.columns,
        by_column.indptr,
        by_column.rows,
        by_column.entries,
        weights.data,
        grad.contiguous(),
        out,
        touched,
    )


def _column_ranges(by_column: ByColumn, dim: int) -> list[int]:
    """Return the bounds of one range of columns per thread.

    Each column belongs to one thread. Ranges have equally many entries and not equally many columns, since the first
    few tokens of a vocabulary may well have half of the entries.
    """
    entries = len(by_column.rows)
    threads = torch.get_num_threads()
    if entries * dim <= SMALL or threads == 1:
        return [0, len(by_column.columns)]

    targets = np.arange(threads + 1) * entries // threads
    bounds: list[int] = np.searchsorted(by_column.indptr, targets).tolist()
    return bounds


@kernel
def _scatter_add_columns(
    first: int,
    last: int,
    columns: Ints,
    indptr: Longs,
    rows: Ints,
    entries: Longs,
    values: Floats,
    grad: Floats,
    out: Floats,
    touched: npt.NDArray[np.bool_],
) -> None:
    """out[column] += value * grad[row] over all entries of columns[first] to columns[last - 1]."""
    for k in range(first, last):
        touched[columns[k]] = True
        target = out[columns[k]]
        e = indptr[k]
        end = indptr[k + 1]
        while e + 4 <= end:  # four rows per load and store of the target
            w0 = values[entries[e]]
            w1 = values[entries[e + 1]]
            w2 = values[entries[e + 2]]
            w3 = values[entries[e + 3]]
            r0 = grad[rows[e]]
            r1 = grad[rows[e + 1]]
            r2 = grad[rows[e + 2]]
            r3 = grad[rows[e + 3]]
            for j in range(grad.shape[1]):
                target[j] += (w0 * r0[j] + w1 * r1[j]) + (w2 * r2[j] + w3 * r3[j])
            e += 4
        while e < end:
            w0 = values[entries[e]]
            r0 = grad[rows[e]]
            for j in range(grad.shape[1]):
                target[j] += w0 * r0[j]
            e += 1
