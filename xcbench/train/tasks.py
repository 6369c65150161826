"""The two tasks that the modules of all methods are made of: rank all labels, or rank each point's shortlist.

A task is a document side and a label side. The document side maps `batch.X` to vectors; the label side maps label ids
(None: all of them) to classifiers and biases. What those two are is what makes a method itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol, cast

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from xcbench.kernels.parallel import Floats, Longs
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.nn import (
    DocumentEncoder,
    Factored,
    GatedBlock,
    LabelBank,
    Reduction,
    ResidualBlock,
    TokenEmbeddings,
    bce_over_all,
    bce_over_shortlists,
)
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
