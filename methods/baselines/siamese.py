"""Two towers that are one: points and label titles go through the same bag encoder, and the nearest labels win.

phi(x) = E x / |E x|, scores <phi(x), phi(z_l)> / tau. A batch's loss is the cross-entropy of each point's labels
against all labels of the batch: those of other points and, from the second round on, each point's nearest wrong ones.
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
from torch import Tensor, nn
from torch.nn.functional import log_softmax, normalize

from xcbench.data import Dataset, TopK
from xcbench.errors import InputError
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.nn import TokenEmbeddings
from xcbench.plugins import Method, Predictor, Run, Stage, StageWork, load_values, register_method, save_values
from xcbench.shortlist import exact_topk
from xcbench.train import Batch, Candidates, Points, Schedule, Training, train


@dataclass(frozen=True)
class SiameseConfig:
    """A plain siamese bag encoder; all sizes were chosen on a held-out fifth of lf-debian-4k's training points."""

    dim: int = 256
    tau: float = 0.05
    """Temperature: how much a small difference of cosines counts."""
    rounds: int = 3
    """How often hard negatives are looked up anew; the first round has none yet."""
    epochs: int = 4
    """Of each round."""
    hard: int = 5
    """Wrong labels a point, the nearest ones, that join a batch."""
    lr: float = 0.005
    batch_size: int = 256

    def __post_init__(self) -> None:
        if min(self.dim, self.rounds, self.epochs, self.batch_size) < 1 or self.hard < 0:
            raise ValueError("dim, rounds, epochs and batch_size are at least 1, hard is not negative")
        if min(self.tau, self.lr) <= 0:
            raise ValueError("tau and lr are positive")


class Towers(nn.Module):
    """One encoder for points and labels, and the loss that draws a point to its labels."""

    def __init__(self, Z: sp.csr_array, dim: int, tau: float) -> None:
        super().__init__()
        self.E = TokenEmbeddings(Z.shape[1], dim)
        self.Z = SparseRows.of(Z)
        self.tau = tau

    def forward(self, texts: SparseRows) -> Tensor:
        return normalize(self.E(texts), dim=1)

    def loss(self, batch: Batch) -> Tensor:
        if batch.shortlists is None or isinstance(batch.X, Tensor):
            raise TypeError("the towers read tokens, of points with candidates")
        labels, own = batch.shortlists.labels, batch.shortlists.entries
        s = log_softmax(self(batch.X) @ self(self.Z.take(labels)).T / self.tau, dim=1)
        rows = np.repeat(np.arange(len(own)), np.diff(own.starts))
        total = np.bincount(rows, own.values, minlength=len(own))
        share = (own.values / np.where(total > 0, total, 1)[rows]).astype(np.float32)
        true = s[torch.from_numpy(rows).to(s.device), torch.from_numpy(own.columns).to(s.device, torch.int64)]
        return -(torch.from_numpy(share).to(s.device) * true).sum() / len(own)

    @torch.no_grad()
    def embed(self, texts: SparseRows) -> npt.NDArray[np.float32]:
        return normalize(self.E.embed(texts), dim=1).cpu().numpy()


class SiamesePredictor(Predictor):
    """Token embeddings, and the labels where these put them."""

    def __init__(self, E: npt.NDArray[np.float32], labels: npt.NDArray[np.float32], tau: float) -> None:
        self.E = E
        self.labels = labels
        self.tau = tau

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        vectors = normalize(torch.from_numpy(X @ self.E), dim=1).numpy()
        best = exact_topk(vectors, self.labels, k)
        # As in the loss, but for the sum over all labels: 1 for the very same direction, and never negative.
        return TopK.of(best.indices, np.exp((best.scores - 1) / self.tau))

    def save(self, folder: Path) -> None:
        save_values(folder, vars(self))

    @classmethod
    def load(cls, folder: Path) -> SiamesePredictor:
        return cls(**load_values(folder))


@register_method("siamese")
class Siamese(Method[SiameseConfig]):
    """Siamese: points and label titles in one space, by one bag encoder (torch)"""

    config_type = SiameseConfig
    predictor_type = SiamesePredictor
    citation = "Dahiya et al., SiameseXML: Siamese Networks meet Extreme Classifiers with 100M Labels, ICML 2021"

    def stages(self, data: Dataset, run: Run) -> Mapping[str, Stage]:
        if data.Z is None:
            raise InputError(f"method 'siamese' needs label text, which dataset {data.name!r} does not have")
        return {"towers": run.stage("towers", lambda work: self._train(data, work), data=data, config=self.config)}

    def fit(self, data: Dataset, run: Run) -> SiamesePredictor:
        towers = self.stages(data, run)["towers"]
        return SiamesePredictor(towers["E"], towers["labels"], self.config.tau)

    def _train(self, data: Dataset, work: StageWork) -> dict[str, Any]:
        assert data.Z is not None
        config, X, Y = self.config, data.train.X, data.train.Y
        towers = Towers(data.Z, config.dim, config.tau)
        settings = Training(config.lr, config.batch_size, config.epochs, schedule=Schedule("linear", warmup=0.1))
        wrong = np.full((X.shape[0], 1), -1, np.int32)
        for number in range(config.rounds):
            # A point's own labels among the nearest do no harm: they are its candidates anyway.
            candidates = Candidates.of_labels(wrong, data.label_count, with_positives=True)
            train(towers, Points(X, Y, candidates), settings, work, f"round {number + 1}")
            if config.hard:
                vectors, labels = towers.embed(SparseRows.of(X)), towers.embed(towers.Z)
                wrong = exact_topk(vectors, labels, config.hard).indices
        return {"E": towers.E.weight.detach().cpu().numpy(), "labels": towers.embed(towers.Z)}
