"""One bag encoder for points and label titles, and its contrastive training. Not a method."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, normalize

from xcbench.data import Dataset
from xcbench.kernels.arrays import Floats, Ints
from xcbench.kernels.csr import SparseRows
from xcbench.nn import TokenEmbeddings
from xcbench.shortlist import exact_topk
from xcbench.train import Batch, Candidates, Points, Training, train
from xcbench.train.loop import WorkLike


class Towers(nn.Module):
    """One encoder for points and labels, and the loss that draws a point to its labels."""

    def __init__(self, Z: sp.csr_array, dim: int, tau: float) -> None:
        super().__init__()
        self.E = TokenEmbeddings(Z.shape[1], dim)
        self.Z = SparseRows.of(Z)
        self.tau = tau

    def forward(self, texts: SparseRows) -> Tensor:
        """phi of points or of labels."""
        return normalize(self.E(texts), dim=1)

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of each point's labels, in shares that add up to 1, against all labels of the batch."""
        if batch.shortlists is None or isinstance(batch.X, Tensor):
            raise TypeError("the towers read tokens, of points with candidates")
        batch_labels = batch.shortlists.labels
        candidates = batch.shortlists.entries
        points = self(batch.X)
        labels = normalize(self.E.of_rows(self.Z, batch_labels), dim=1)
        cosines = points @ labels.T
        return cross_entropy(cosines / self.tau, candidates)

    @torch.no_grad()
    def embed(self, texts: SparseRows) -> Floats:
        """phi of many texts at once, without gradients."""
        return normalize(self.E.embed(texts), dim=1).cpu().numpy()


def cross_entropy(logits: Tensor, candidates: SparseRows) -> Tensor:
    """Cross-entropy of each point's labels, in shares that add up to 1, against all labels of the batch.

    Parameters
    ----------
    logits
        [points, labels of the batch].
    candidates
        The targets of each point's candidates, in the same shape.
    """
    log_p = log_softmax(logits, dim=1)
    n = len(candidates)
    rows = np.repeat(np.arange(n), np.diff(candidates.indptr))
    total = np.bincount(rows, candidates.data, minlength=n)
    divisor = np.where(total > 0, total, 1)
    shares = (candidates.data / divisor[rows]).astype(np.float32)

    row_index = torch.from_numpy(rows).to(log_p.device)
    column_index = torch.from_numpy(candidates.indices).to(log_p.device, torch.int64)
    share = torch.from_numpy(shares).to(log_p.device)
    return -(share * log_p[row_index, column_index]).sum() / n


def train_in_rounds(
    module: Towers,
    data: Dataset,
    settings: Training,
    rounds: int,
    hard: int,
    work: WorkLike,
) -> None:
    """Train in rounds; from the second on with each point's nearest wrong labels as hard negatives.

    Parameters
    ----------
    module
        What is trained.
    data
        The training points and the label text.
    settings
        How long and how fast a round learns.
    rounds
        How often hard negatives are looked up anew; the first round has none yet.
    hard
        How many of its nearest labels each point brings into a batch.
    work
        The work of the stage.
    """
    X = data.train.X
    hard_negatives = np.full((X.shape[0], 1), -1, np.int32)  # none in the first round
    for number in range(rounds):
        # A point's own labels among the nearest do no harm: they are its candidates anyway.
        candidates = Candidates.of_labels(hard_negatives, data.label_count, with_positives=True)
        points = Points(X, data.train.Y, candidates, data.train)
        train(module, points, settings, work, f"round {number + 1}")
        if hard:
            hard_negatives = nearest_labels(module, X, hard, work.device)


def nearest_labels(module: Towers, X: sp.csr_array, count: int, device: str) -> Ints:
    """The labels [n, count] that the encoder puts nearest to each point."""
    vectors = module.embed(SparseRows.of(X))
    labels = torch.from_numpy(module.embed(module.Z)).to(device)
    return exact_topk(vectors, labels, count).indices
