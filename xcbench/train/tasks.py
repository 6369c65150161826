"""The two tasks that the modules of all methods are made of: rank all labels, or rank each point's shortlist.

A task has a document side and a label side. The document side maps `batch.X` to vectors. The label side maps label ids
(None: all labels) to classifiers and biases. Methods differ in these two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias, cast

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from xcbench.kernels.arrays import Floats, Longs
from xcbench.kernels.csr import SparseRows
from xcbench.nn import (
    DocumentEncoder,
    Factored,
    FreeLabels,
    GatedBlock,
    LabelBank,
    Reduction,
    ResidualBlock,
    TokenEmbeddings,
    bce_over_all,
    bce_over_shortlists,
)
from xcbench.progress import counted
from xcbench.train.batches import Batch, Points
from xcbench.train.label_shards import splits_labels


class LabelSide(Protocol):
    """Maps label ids (None: all labels) to one classifier per label and, if there are biases, one bias per label."""

    def __call__(self, labels: Longs | None) -> tuple[Tensor | Factored, Tensor | None]: ...


class Task(nn.Module):
    """Scores <x_hat, w_l> + b_l of documents and labels.

    Parameters
    ----------
    documents
        Maps `batch.X` to vectors x_hat, [points, D].
    labels
        Maps label ids (None: all labels) to classifiers w, [labels, D], and biases b, [labels] or None.
    reduction
        What the loss is divided by; see `bce_over_all` and `bce_over_shortlists`.
    """

    def __init__(self, documents: nn.Module, labels: nn.Module, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.documents = documents
        self.labels = labels
        self.reduction: Reduction = reduction

    def loss_terms(self, batch: Batch) -> float:
        """Return what the loss is divided by, up to a factor that is the same for all parts of a batch."""
        if self.reduction == "mean" and batch.shortlists is not None:
            return float(len(batch.shortlists.entries.indices))
        return float(len(batch.rows))

    def classifiers(self, labels: Longs | None) -> tuple[Tensor | Factored, Tensor | None]:
        """Return classifiers and biases of the labels given; None means all labels."""
        return cast("LabelSide", self.labels)(labels)


class RankAll(Task):
    """One-vs-all over every label (or cluster): the surrogate and shortlister modules."""

    @splits_labels
    def loss(self, batch: Batch) -> Tensor:
        """Return the binary cross-entropy over all labels."""
        H, bias = self.classifiers(batch.labels)
        x = batch.gather(self.documents(batch.X))
        return bce_over_all(x, H, batch.targets, bias, self.reduction, batch.pairs)


class RankShortlist(Task):
    """One-vs-all over each point's candidates: the extreme modules."""

    @splits_labels
    def loss(self, batch: Batch) -> Tensor:
        """Return the binary cross-entropy over each point's candidates."""
        if batch.shortlists is None:
            raise ValueError("a task over shortlists needs points with candidates")
        W, bias = self.classifiers(batch.shortlists.labels)
        x = batch.gather(self.documents(batch.X))
        return bce_over_shortlists(x, W, batch.shortlists, bias, self.reduction, batch.pairs)


def document_side(
    block: GatedBlock | ResidualBlock,
    E: TokenEmbeddings,
    X: sp.csr_array,
    frozen: bool = False,
) -> tuple[DocumentEncoder, sp.csr_array | Tensor]:
    """Return the document side of a task, and the features that it reads: tokens, or E x if E stays fixed.

    Parameters
    ----------
    block
        The embedding block of the encoder.
    E
        Token embeddings.
    X
        The text of the points, [points, tokens].
    frozen
        Whether E stays fixed.
    """
    if frozen:
        return DocumentEncoder(block), E.embed(SparseRows.of(X))
    return DocumentEncoder(block, E), X


def log_odds(share: float) -> float:
    """Return the bias of a classifier that knows only which share of all pairs is true: a good start for biases."""
    share = min(max(share, 1e-6), 0.5)
    return math.log(share / (1 - share))


LabelStart: TypeAlias = Literal["zero", "random"]
"""Where free label classifiers start: at 0, with biases at the log odds of a true pair, or at random, with biases 0."""


def free_labels(targets: sp.csr_array, dim: int, ranked: int, start: LabelStart) -> FreeLabels:
    """Return one new classifier and one bias per label.

    Parameters
    ----------
    targets
        [points, labels] what they are to learn.
    dim
        D, the length of a vector.
    ranked
        How many labels each point is ranked against.
    start
        From 0, few steps are enough, and a label with few points need not lose a random start. A random start, as most
        authors have it, learns more slowly: its large first gradients keep Adam's steps small for long.
    """
    points, count = targets.shape
    if start == "random":
        labels = FreeLabels(count, dim, nn.init.kaiming_uniform_(torch.empty(count, dim)))
        bias = 0.0
    else:
        labels = FreeLabels(count, dim, torch.zeros(count, dim))
        bias = log_odds(targets.nnz / max(1, points * ranked))
    assert labels.bias is not None
    nn.init.constant_(labels.bias.weight, bias)
    return labels


@torch.no_grad()
def fit_bias(task: nn.Module, points: Points, sample: int = 256) -> None:
    """Set all biases of an untrained task to the one value that minimises its loss.

    Classifiers that start at the text of their labels have scores from the start. If biases ignored these, the first
    steps would push every score down, at the expense of the text. Pass this function to `train` as `initialise`.

    Parameters
    ----------
    task
        A `RankAll` or `RankShortlist`. If it has no biases, nothing happens.
    points
        Its training points.
    sample
        How many of them the loss is computed on. They are evenly spaced.
    """
    assert isinstance(task, RankAll | RankShortlist)
    bias = task.labels.bias
    if not isinstance(bias, LabelBank) or len(points) == 0:
        return

    rows = np.unique(np.linspace(0, len(points) - 1, sample).astype(np.int64))
    batch = points.cut(rows, device=bias.weight.device)
    task.eval()

    def loss(value: float) -> float:
        bias.weight.fill_(value)
        return float(task.loss(batch))

    best = minimize_scalar(loss, bounds=(-50, 10), method="bounded", options={"xatol": 0.05})
    bias.weight.fill_(best.x)


@torch.no_grad()
def all_classifiers(task: Task, count: int, block: int = 1 << 16) -> tuple[Floats, Floats]:
    """Return the classifiers [count, D] and biases [count] of a trained task, multiplied out.

    Parameters
    ----------
    task
        The trained task.
    count
        The number of labels.
    block
        How many labels are computed at a time.
    """
    task.eval()
    all_weights = []
    all_biases = []
    for first in counted(range(0, max(count, 1), block), "classifiers of labels"):
        labels = np.arange(first, min(first + block, count))
        weights, bias = task.classifiers(labels)
        if isinstance(weights, Factored):
            weights = weights.full()
        if bias is None:
            bias = torch.zeros(len(weights))
        all_weights.append(weights.cpu().numpy())
        all_biases.append(bias.cpu().numpy())
    return np.concatenate(all_weights), np.concatenate(all_biases)


@torch.no_grad()
def encode(task: Task, X: sp.csr_array | Floats | Tensor, block: int = 1 << 14) -> Floats:
    """Return the vectors of many points, [points, D], by the document side of a trained task.

    Parameters
    ----------
    task
        The trained task.
    X
        What its document side reads: tokens, or vectors E x.
    block
        How many points are encoded at a time.
    """
    task.eval()
    device = next(task.parameters()).device
    count = -(-X.shape[0] // block)
    parts = counted(_blocks(X, block, device), "points encoded", count)
    vectors = [task.documents(part).cpu().numpy() for part in parts]
    return np.concatenate(vectors)


def _blocks(
    X: sp.csr_array | Floats | Tensor,
    size: int,
    device: torch.device,
) -> Iterator[SparseRows | Tensor]:
    for first in range(0, max(X.shape[0], 1), size):
        part = X[first : first + size]
        if isinstance(part, sp.csr_array):
            yield SparseRows.of(part)
        else:
            yield torch.as_tensor(part).to(device)
