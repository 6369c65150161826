"""The two tasks that the modules of all methods are made of: rank all labels, or rank each point's shortlist.

A task is a document side and a label side. The document side maps `batch.X` to vectors; the label side maps label ids
(None: all of them) to classifiers and biases. What those two are is what makes a method itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from xcbench.nn import (
    DocumentEncoder,
    Factored,
    GatedBlock,
    LabelBank,
    Reduction,
    ResidualBlock,
    SparseRows,
    TokenEmbeddings,
    bce_over_all,
    bce_over_shortlists,
    weighted_sums,
)
from xcbench.nn.parallel import Floats, Longs
from xcbench.train.batches import Batch, Points


class LabelSide(Protocol):
    """One classifier and perhaps one bias a label, for the labels asked for."""

    def __call__(self, labels: Longs | None) -> tuple[Tensor | Factored, Tensor | None]: ...


class Task(nn.Module):
    """Documents against labels."""

    def __init__(self, documents: nn.Module, labels: nn.Module, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.documents = documents
        self.labels = labels
        self.reduction: Reduction = reduction

    def loss_terms(self, batch: Batch) -> float:
        """What the loss is divided by, as far as it differs between the parts of a batch."""
        listed = self.reduction == "mean" and batch.shortlists is not None
        return float(len(batch.shortlists.entries.columns) if listed and batch.shortlists else len(batch.rows))

    def classifiers(self, labels: Longs | None) -> tuple[Tensor | Factored, Tensor | None]:
        return cast("LabelSide", self.labels)(labels)


class RankAll(Task):
    """One-vs-all over every label (or cluster): the surrogate and shortlister modules, Astec's Module I."""

    def loss(self, batch: Batch) -> Tensor:
        H, bias = self.classifiers(None)
        return bce_over_all(self.documents(batch.X), H, batch.targets, bias, self.reduction)


class RankShortlist(Task):
    """One-vs-all over each point's candidates: the extreme modules."""

    def loss(self, batch: Batch) -> Tensor:
        if batch.shortlists is None:
            raise ValueError("a task over shortlists needs points with candidates")
        W, bias = self.classifiers(batch.shortlists.labels)
        return bce_over_shortlists(self.documents(batch.X), W, batch.shortlists, bias, self.reduction)


class LabelText(nn.Module):
    """E z_l for the labels asked for: summed up while token embeddings train, looked up once they are fixed."""

    table: Tensor | None

    def __init__(self, E: TokenEmbeddings, Z: sp.csr_array, frozen: bool = False) -> None:
        super().__init__()
        self.Z = SparseRows.of(Z)
        self.E = None if frozen else E
        self.register_buffer("table", E.embed(self.Z) if frozen else None, persistent=False)

    def forward(self, labels: Longs | None = None) -> Tensor:
        if self.E is not None:
            return self.E(self.Z if labels is None else self.Z.take(labels))  # type: ignore[no-any-return]
        assert self.table is not None
        return self.table if labels is None else self.table[torch.from_numpy(labels)]


class NeighbourText(nn.Module):
    """(G^k E z)_l for the orders k asked for: the text of a label (0), of its neighbours in a graph (1), and so on."""

    def __init__(
        self, E: TokenEmbeddings, Z: sp.csr_array, G: sp.csr_array, orders: Sequence[int], frozen: bool = False
    ) -> None:
        super().__init__()
        self.Z, self.G, self.orders = SparseRows.of(Z), SparseRows.of(G), orders
        self.E = None if frozen else E
        for k, table in enumerate(self._of_all(E.embed(self.Z)) if frozen else ()):
            self.register_buffer(f"table{k}", table, persistent=False)

    def forward(self, labels: Longs | None = None) -> list[Tensor]:
        if self.E is None:
            tables = self.buffers(recurse=False)
            return [table if labels is None else table[torch.from_numpy(labels)] for table in tables]
        return self._of_all(self.E(self.Z)) if labels is None else [self._of_some(labels, k) for k in self.orders]

    def _of_all(self, r: Tensor) -> list[Tensor]:
        powers = [r]
        while len(powers) <= max(self.orders):
            powers.append(weighted_sums(self.G, powers[-1]))
        return [powers[k] for k in self.orders]

    def _of_some(self, labels: Longs, order: int) -> Tensor:
        """Only what these labels need: the text of their neighbours, and of theirs."""
        assert self.E is not None
        if order == 0:
            return self.E(self.Z.take(labels))  # type: ignore[no-any-return]
        edges = self.G.take(labels)
        place = np.zeros(edges.width, np.int32)
        place[edges.columns] = 1
        near = np.flatnonzero(place)
        place[near] = np.arange(len(near))
        among = SparseRows(edges.starts, place[edges.columns], edges.values, len(near))
        return weighted_sums(among, self._of_some(near, order - 1))


class FreeLabels(nn.Module):
    """A free vector and a bias a label, as in a linear layer: both uniform in +-1/sqrt(D) unless a start is given."""

    def __init__(self, labels: int, dim: int, start: Tensor | None = None, bias: bool = True) -> None:
        super().__init__()
        bound = dim**-0.5
        drawn = torch.empty(labels, dim + 1).uniform_(-bound, bound) if start is None else None
        self.weight = LabelBank(labels, dim, start if drawn is None else drawn[:, 1:])
        self.bias = LabelBank(labels, start=None if drawn is None else drawn[:, 0]) if bias else None

    def forward(self, labels: Longs | None = None) -> tuple[Tensor, Tensor | None]:
        return self.weight(labels), None if self.bias is None else self.bias(labels)


def document_side(
    block: GatedBlock | ResidualBlock, E: TokenEmbeddings, X: sp.csr_array, frozen: bool = False
) -> tuple[DocumentEncoder, sp.csr_array | Tensor]:
    """The documents of a task and what they read: tokens, or the constant E x once E is frozen."""
    if frozen:
        return DocumentEncoder(block), E.embed(SparseRows.of(X))
    return DocumentEncoder(block, E), X


def log_odds(share: float) -> float:
    """Where biases start if a share of all pairs is true: one-vs-all then learns what differs from that."""
    share = min(max(share, 1e-6), 0.5)
    return math.log(share / (1 - share))


@torch.no_grad()
def fit_bias(task: nn.Module, points: Points, looked_at: int = 256) -> None:
    """Start all biases at the one value that makes the untrained task's loss least, judged by points from everywhere.

    Classifiers that begin as text begin with scores: biases that ignore these leave the first steps to push every
    score down, at the price of the text.
    """
    assert isinstance(task, RankAll | RankShortlist)
    bias = task.labels.bias
    if not (isinstance(bias, LabelBank) and len(points)):
        return
    seen = np.unique(np.linspace(0, len(points) - 1, looked_at).astype(np.int64))
    batch = points.cut(seen, device=bias.weight.device)
    task.eval()

    def loss(value: float) -> float:
        bias.weight.fill_(value)
        return float(task.loss(batch))

    bias.weight.fill_(minimize_scalar(loss, bounds=(-50, 10), method="bounded", options={"xatol": 0.05}).x)


@torch.no_grad()
def all_classifiers(task: Task, count: int, block: int = 1 << 16) -> tuple[Floats, Floats]:
    """Classifiers [count, D] and biases [count] of a trained task, multiplied out block by block."""
    task.eval()
    W, b = [], []
    for first in range(0, max(count, 1), block):
        rows, bias = task.classifiers(np.arange(first, min(first + block, count)))
        rows = rows.full() if isinstance(rows, Factored) else rows
        W.append(rows.cpu().numpy())
        b.append(np.zeros(len(rows), np.float32) if bias is None else bias.cpu().numpy())
    return np.concatenate(W), np.concatenate(b)


@torch.no_grad()
def encode(task: Task, X: sp.csr_array | Floats | Tensor, block: int = 1 << 14) -> Floats:
    """The document side of a trained task on many points."""
    task.eval()
    return np.concatenate([task.documents(part).cpu().numpy() for part in _parts(task, X, block)])


def _parts(task: Task, X: sp.csr_array | Floats | Tensor, block: int) -> Iterator[SparseRows | Tensor]:
    device = next(task.parameters()).device
    for first in range(0, max(X.shape[0], 1), block):
        if isinstance(X, sp.csr_array):
            yield SparseRows.of(X[first : first + block])
        else:
            yield torch.as_tensor(X[first : first + block]).to(device)
