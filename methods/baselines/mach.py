"""MACH: labels hashed into few buckets, several times over; a small network a hashing; a label is where all agree.

score(l | x) = 1/R sum_r P_r(h_r(l) | x), with R networks x -> ReLU -> buckets of their own. (The paper derives an
unbiased estimate from this mean; it ranks labels alike.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from numba import njit
from torch import Tensor, nn
from torch.nn.functional import dropout, log_softmax

from xcbench.data import Dataset, TopK
from xcbench.kernels.selection import key_of, write_best
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.nn import TokenEmbeddings
from xcbench.plugins import Method, Predictor, Run, Stage, StageWork, load_values, register_method, save_values
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
        if min(self.repetitions, self.hidden, self.batch_size, self.epochs) < 1 or (self.buckets or 2) < 2:
            raise ValueError("repetitions, hidden, batch_size and epochs are at least 1, buckets at least 2")
        if not 0 <= self.dropout < 1 or self.lr <= 0:
            raise ValueError("dropout is at least 0 and below 1, lr positive")

    def bucket_count(self, labels: int) -> int:
        return min(max(labels, 2), self.buckets or min(2048, max(512, labels // 4)))


class Networks(nn.Module):
    """R networks side by side in shared tables; none sees another's units, so they learn as if each were alone."""

    def __init__(self, vocabulary: int, repetitions: int, hidden: int, buckets: int, dropout: float) -> None:
        super().__init__()
        self.E = TokenEmbeddings(vocabulary, repetitions * hidden)
        self.hidden_bias = nn.Parameter(torch.zeros(repetitions * hidden))
        self.W = nn.Parameter(torch.empty(repetitions, hidden, buckets).uniform_(-1, 1) * hidden**-0.5)
        self.bias = nn.Parameter(torch.zeros(repetitions, 1, buckets))
        self.dropout = dropout

    def forward(self, X: SparseRows) -> Tensor:
        """Logits [R, n, B]."""
        R, hidden, _ = self.W.shape
        h = dropout(torch.relu(self.E(X) + self.hidden_bias), self.dropout, self.training)
        return torch.baddbmm(self.bias, h.view(-1, R, hidden).transpose(0, 1), self.W)

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of every network's softmax, against a point's buckets in equal shares."""
        if isinstance(batch.X, Tensor):
            raise TypeError("these networks read tokens")
        s, y = log_softmax(self(batch.X), -1), batch.targets
        rows = np.repeat(np.arange(len(y)), np.diff(y.starts))
        # Entry (r, i, b) stands at (r n + i) B + b; the targets number the buckets of all networks through.
        r, b = np.divmod(y.columns.astype(np.int64), s.shape[2])
        places = torch.from_numpy((r * len(y) + rows) * s.shape[2] + b).to(s.device)
        return -(torch.from_numpy(y.values).to(s.device) * s.reshape(-1)[places]).sum() / len(y)


class MachPredictor(Predictor):
    """The networks, and the bucket of every label in every hashing."""

    def __init__(self, tensors: Mapping[str, Tensor], bucket_of: npt.NDArray[np.int32]) -> None:
        self.tensors = tensors
        self.bucket_of = bucket_of  # [L, R]
        R, hidden, B = tensors["W"].shape
        self.networks = Networks(len(tensors["E.weight"]), R, hidden, B, 0.0).eval()
        self.networks.load_state_dict(tensors)

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return topk_in_blocks(X.shape[0], k, lambda block: self._block(SparseRows.of(X[block]), k))

    @torch.no_grad()
    def _block(self, X: SparseRows, k: int) -> TopK:
        out = TopK(np.empty((len(X), k), np.int32), np.empty((len(X), k), np.float32))
        _vote(torch.softmax(self.networks(X), -1).numpy(), self.bucket_of, out.indices, out.scores)
        return out

    def save(self, folder: Path) -> None:
        save_values(folder, {"tensors": self.tensors, "bucket_of": self.bucket_of})

    @classmethod
    def load(cls, folder: Path) -> MachPredictor:
        return cls(**load_values(folder))


@njit(cache=True, nogil=True)
def _vote(
    P: npt.NDArray[np.float32],
    bucket_of: npt.NDArray[np.int32],
    out_labels: npt.NDArray[np.int32],
    out_scores: npt.NDArray[np.float32],
) -> None:
    """The mean probability of each label's buckets; P is [R, n, B]."""
    L, R = bucket_of.shape
    keys, share = np.empty(L, np.uint64), np.float32(1 / R)
    for i in range(P.shape[1]):
        for label in range(L):
            total = np.float32(0)
            for r in range(R):
                total += P[r, i, bucket_of[label, r]]
            keys[label] = key_of(total * share, label)
        write_best(keys, L, out_labels[i], out_scores[i])


@register_method("mach")
class Mach(Method[MachConfig]):
    """MACH: labels hashed into buckets several times, a small network a hashing (torch)"""

    config_type = MachConfig
    predictor_type = MachPredictor
    citation = "Medini et al., Extreme Classification in Log Memory using Count-Min Sketch, NeurIPS 2019"

    def stages(self, data: Dataset, run: Run) -> Mapping[str, Stage]:
        return {"networks": run.stage("networks", lambda work: self._train(data, work), data=data, config=self.config)}

    def fit(self, data: Dataset, run: Run) -> MachPredictor:
        return MachPredictor(**self.stages(data, run)["networks"])

    def _train(self, data: Dataset, work: StageWork) -> dict[str, Any]:
        config = self.config
        R, B = config.repetitions, config.bucket_count(data.label_count)
        bucket_of = work.generator().integers(0, B, (data.label_count, R)).astype(np.int32)
        networks = Networks(data.feature_count, R, config.hidden, B, config.dropout)
        points = Points(data.train.X, _bucket_targets(data.train.Y, bucket_of, B))
        settings = Training(config.lr, config.batch_size, config.epochs, schedule=Schedule("linear", warmup=0.1))
        train(networks, points, settings, work, "networks")
        return {"tensors": networks.state_dict(), "bucket_of": bucket_of}


def _bucket_targets(Y: sp.csr_array, bucket_of: npt.NDArray[np.int32], B: int) -> sp.csr_array:
    """[n, R B]: how much of a point's labels lies in each bucket; a row adds up to R, or to 0 without labels."""
    L, R = bucket_of.shape
    places = (bucket_of + B * np.arange(R)).astype(np.int32)
    hashing = sp.csr_array((np.ones(L * R, np.float32), places.ravel(), R * np.arange(L + 1)), shape=(L, R * B))
    total = Y.sum(axis=1)
    share = sp.diags_array(np.divide(1, total, out=np.zeros_like(total), where=total > 0), format="csr")
    targets: sp.csr_array = (share @ Y @ hashing).tocsr().astype(np.float32)
    return targets
