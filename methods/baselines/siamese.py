"""Two towers that are one: points and label titles go through the same bag encoder, and the nearest labels win.

phi(x) = E x / |E x|, scores <phi(x), phi(z_l)> / tau. A batch's loss is the cross-entropy of each point's labels
against all labels of the batch: those of other points and, from the second round on, each point's nearest wrong ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, normalize

from xcbench.data import Dataset, TopK
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats
from xcbench.kernels.csr import SparseRows
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
from xcbench.shortlist import Vectors, exact_topk
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
    """Per round."""
    hard: int = 5
    """How many of its nearest wrong labels each point brings into a batch."""
    lr: float = 0.005
    batch_size: int = 256

    def __post_init__(self) -> None:
        sizes = (self.dim, self.rounds, self.epochs, self.batch_size)
        if min(sizes) < 1 or self.hard < 0:
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
        """phi of points or of labels."""
        return normalize(self.E(texts), dim=1)

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of each point's labels, in shares that add up to 1, against all labels of the batch."""
        if batch.shortlists is None or not isinstance(batch.X, SparseRows):
            raise TypeError("the towers read tokens, of points with candidates")
        batch_labels = batch.shortlists.labels
        candidates = batch.shortlists.entries
        n = len(candidates)
        points = self(batch.X)
        labels = normalize(self.E.of_rows(self.Z, batch_labels), dim=1)
        cosines = points @ labels.T
        log_p = log_softmax(cosines / self.tau, dim=1)

        rows = np.repeat(np.arange(n), np.diff(candidates.indptr))
        total = np.bincount(rows, candidates.data, minlength=n)
        divisor = np.where(total > 0, total, 1)
        shares = (candidates.data / divisor[rows]).astype(np.float32)

        row_index = torch.from_numpy(rows).to(log_p.device)
        column_index = torch.from_numpy(candidates.indices).to(log_p.device, torch.int64)
        share = torch.from_numpy(shares).to(log_p.device)
        return -(share * log_p[row_index, column_index]).sum() / n

    @torch.no_grad()
    def embed(self, texts: SparseRows) -> Floats:
        """phi of many texts at once, without gradients."""
        return normalize(self.E.embed(texts), dim=1).cpu().numpy()


@stage(settings=all_but())
def towers(work: StageWork[SiameseConfig]) -> Values:
    """Train in rounds; from the second on with each point's nearest wrong labels as hard negatives."""
    c = work.config
    X = work.data.train.X
    Y = work.data.train.Y
    assert work.data.Z is not None

    module = Towers(work.data.Z, c.dim, c.tau)
    settings = Training(c.lr, c.batch_size, c.epochs, schedule=Schedule("linear", warmup=0.1))
    hard_negatives = np.full((X.shape[0], 1), -1, np.int32)  # none in the first round
    for number in range(c.rounds):
        # A point's own labels among the nearest do no harm: they are its candidates anyway.
        candidates = Candidates.of_labels(hard_negatives, work.data.label_count, with_positives=True)
        train(module, Points(X, Y, candidates, work.data.train), settings, work, f"round {number + 1}")
        if c.hard:
            vectors = module.embed(SparseRows.of(X))
            labels = torch.from_numpy(module.embed(module.Z)).to(work.device)
            hard_negatives = exact_topk(vectors, labels, c.hard).indices

    return {
        "E": module.E.weight.detach().cpu().numpy(),
        "labels": module.embed(module.Z),
    }


class SiamesePredictor(SavedByArguments, Predictor):
    """Token embeddings, and the labels where these put them."""

    def __init__(self, E: Floats, labels: Floats, tau: float) -> None:
        self.E = E
        self.labels = labels
        self.tau = tau

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return self.predict_among(self.labels, X, k)

    def predict_among(self, labels: Vectors, X: sp.csr_array, k: int) -> TopK:
        """Predict by the labels' vectors as they are given, which may live on a device."""
        vectors = normalize(torch.from_numpy(X @ self.E), dim=1).numpy()
        best = exact_topk(vectors, labels, k)
        # As in the loss, but for the sum over all labels: 1 for the same direction, and never negative.
        scores = np.exp((best.scores - 1) / self.tau)
        return TopK.of(best.indices, scores)

    def to(self, device: str) -> SiamesePredictor | SiameseOnDevice:
        if torch.device(device).type == "cpu":
            return self
        return SiameseOnDevice(self, device)


class SiameseOnDevice:
    """The same, with the labels on a device, where the search happens."""

    def __init__(self, source: SiamesePredictor, device: str) -> None:
        self.source = source
        self.labels = torch.from_numpy(source.labels).to(device)

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return self.source.predict_among(self.labels, X, k)

    def save(self, folder: Path) -> None:
        self.source.save(folder)


@register_method("siamese")
class Siamese(Method[SiameseConfig]):
    """Siamese: points and label titles in one space, by one bag encoder (torch)"""

    config_type = SiameseConfig
    predictor_type = SiamesePredictor
    stages = (towers,)
    can_mix_points = True
    citation = "Dahiya et al., SiameseXML: Siamese Networks meet Extreme Classifiers with 100M Labels, ICML 2021"

    def check_data(self, data: Dataset) -> None:
        if data.Z is None:
            raise InputError(f"method 'siamese' needs label text, which dataset {data.name!r} does not have")

    def fit(self, data: Dataset, run: Run) -> SiamesePredictor:
        trained = run.stage(towers, data)
        return SiamesePredictor(trained["E"], trained["labels"], self.config.tau)
