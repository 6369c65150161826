"""MACH: labels are hashed into few buckets several times over, and one small network per hashing finds the buckets.

score(l | x) = 1/R sum_r P_r(h_r(l) | x), with R networks x -> ReLU -> buckets of their own. (The paper derives an
unbiased estimate from this mean; it ranks labels alike.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numba import njit
from torch import Tensor, nn
from torch.nn.functional import dropout, log_softmax

from xcbench.data import Dataset, TopK
from xcbench.kernels.arrays import Floats, Ints
from xcbench.kernels.csr import SparseRows
from xcbench.kernels.selection import key_of, write_best
from xcbench.nn import TokenEmbeddings
from xcbench.plugins import (
    Method,
    Predictor,
    Run,
    SavedByArguments,
    StageWork,
    Values,
    all_but,
    register_method,
    stage,
)
from xcbench.shortlist.blocks import topk_in_blocks
from xcbench.train import Batch, Points, Schedule, Training, train


@dataclass(frozen=True)
class MachConfig:
    """The paper's form at the size of short texts; sizes and steps were chosen on a held-out fifth of lf-debian-4k."""

    repetitions: int = 8
    buckets: int | None = None
    """Buckets of a hashing; by default a quarter of the labels, but no fewer than 512 and no more than 2048."""
    hidden: int = 128
    dropout: float = 0.5
    lr: float = 0.02
    batch_size: int = 256
    epochs: int = 10

    def __post_init__(self) -> None:
        sizes = (self.repetitions, self.hidden, self.batch_size, self.epochs)
        if min(sizes) < 1 or (self.buckets or 2) < 2:
            raise ValueError("repetitions, hidden, batch_size and epochs are at least 1, buckets at least 2")
        if not 0 <= self.dropout < 1 or self.lr <= 0:
            raise ValueError("dropout is at least 0 and below 1, lr positive")

    def bucket_count(self, label_count: int) -> int:
        """B, never more than there are labels."""
        quarter = min(2048, max(512, label_count // 4))
        buckets = self.buckets or quarter
        return min(max(label_count, 2), buckets)


# The hashings, and what they make of a point's labels.


def _bucket_targets(Y: sp.csr_array, bucket_of: Ints, B: int) -> sp.csr_array:
    """[n, R B]: how much of a point's labels lies in each bucket; a row adds up to R, or to 0 without labels."""
    L, R = bucket_of.shape
    columns = (bucket_of + B * np.arange(R)).astype(np.int32)
    ones = np.ones(L * R, np.float32)
    hashing = sp.csr_array((ones, columns.ravel(), R * np.arange(L + 1)), shape=(L, R * B))

    total = Y.sum(axis=1)
    share = np.divide(1, total, out=np.zeros_like(total), where=total > 0)
    targets = sp.diags_array(share, format="csr") @ Y @ hashing
    result: sp.csr_array = targets.tocsr().astype(np.float32)
    return result


# The networks.


class Networks(nn.Module):
    """R networks side by side in shared tables; none sees another's units, so they learn as if each were alone."""

    def __init__(
        self,
        vocabulary: int,
        repetitions: int,
        hidden: int,
        buckets: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.E = TokenEmbeddings(vocabulary, repetitions * hidden)
        self.hidden_bias = nn.Parameter(torch.zeros(repetitions * hidden))
        start = torch.empty(repetitions, hidden, buckets).uniform_(-1, 1)
        self.W = nn.Parameter(start * hidden**-0.5)
        self.bias = nn.Parameter(torch.zeros(repetitions, 1, buckets))
        self.dropout = dropout

    def forward(self, X: SparseRows) -> Tensor:
        """Logits [R, n, B]."""
        R, hidden, _ = self.W.shape
        h = torch.relu(self.E(X) + self.hidden_bias)
        h = dropout(h, self.dropout, self.training)
        by_network = h.view(-1, R, hidden).transpose(0, 1)
        return torch.baddbmm(self.bias, by_network, self.W)

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of every network's softmax, against a point's buckets in equal shares."""
        if not isinstance(batch.X, SparseRows):
            raise TypeError("these networks read tokens")
        log_p = log_softmax(self(batch.X), -1)
        y = batch.targets
        n = len(y)
        B = log_p.shape[2]

        # The targets number the buckets of all networks through: bucket b of network r is column r B + b of y. In
        # log_p, flattened, point i has it at (r n + i) B + b.
        i = np.repeat(np.arange(n), np.diff(y.indptr))
        r, b = np.divmod(y.indices.astype(np.int64), B)
        places = torch.from_numpy((r * n + i) * B + b).to(log_p.device)
        share = torch.from_numpy(y.data).to(log_p.device)
        return -(share * log_p.reshape(-1)[places]).sum() / n


@stage(settings=all_but())
def networks(work: StageWork[MachConfig]) -> Values:
    """Hash the labels, and train all networks."""
    c = work.config
    data = work.data
    R = c.repetitions
    B = c.bucket_count(data.label_count)
    random = work.generator()
    bucket_of = random.integers(0, B, (data.label_count, R)).astype(np.int32)

    module = Networks(data.feature_count, R, c.hidden, B, c.dropout)
    targets = _bucket_targets(data.train.Y, bucket_of, B)
    points = Points(data.train.X, targets, split=data.train)
    settings = Training(c.lr, c.batch_size, c.epochs, schedule=Schedule("linear", warmup=0.1))
    train(module, points, settings, work, "networks")
    tensors = {name: tensor.cpu() for name, tensor in module.state_dict().items()}
    return {"tensors": tensors, "bucket_of": bucket_of}


# Prediction: every network votes for the labels in its buckets.


class MachPredictor(SavedByArguments, Predictor):
    """The networks, and the bucket of every label in every hashing [L, R]."""

    def __init__(self, tensors: Mapping[str, Tensor], bucket_of: Ints) -> None:
        self.tensors = tensors
        self.bucket_of = bucket_of
        vocabulary = len(tensors["E.weight"])
        R, hidden, B = tensors["W"].shape
        self.networks = Networks(vocabulary, R, hidden, B, dropout=0.0).eval()
        self.networks.load_state_dict(tensors)

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        def predict_block(block: slice) -> TopK:
            return self._predict_block(SparseRows.of(X[block]), k)

        return topk_in_blocks(X.shape[0], k, predict_block)

    @torch.no_grad()
    def _predict_block(self, X: SparseRows, k: int) -> TopK:
        logits = self.networks(X)
        P = torch.softmax(logits, -1).numpy()
        labels = np.empty((len(X), k), np.int32)
        scores = np.empty((len(X), k), np.float32)
        _vote(P, self.bucket_of, labels, scores)
        return TopK(labels, scores)


@njit(cache=True, nogil=True)
def _vote(P: Floats, bucket_of: Ints, out_labels: Ints, out_scores: Floats) -> None:
    """The mean probability of each label's buckets; P is [R, n, B]."""
    L, R = bucket_of.shape
    keys = np.empty(L, np.uint64)
    share = np.float32(1 / R)
    for i in range(P.shape[1]):
        for label in range(L):
            total = np.float32(0)
            for r in range(R):
                total += P[r, i, bucket_of[label, r]]
            keys[label] = key_of(total * share, label)
        write_best(keys, L, out_labels[i], out_scores[i])


@register_method("mach")
class Mach(Method[MachConfig]):
    """MACH: labels hashed into buckets several times, one small network per hashing (torch)"""

    config_type = MachConfig
    predictor_type = MachPredictor
    stages = (networks,)
    can_mix_points = True
    citation = "Medini et al., Extreme Classification in Log Memory using Count-Min Sketch, NeurIPS 2019"

    def fit(self, data: Dataset, run: Run) -> MachPredictor:
        trained = run.stage(networks, data)
        return MachPredictor(trained["tensors"], trained["bucket_of"])
