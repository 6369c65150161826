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
from torch.nn.functional import normalize

from xcbench.data import Dataset, TopK
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats
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
from xcbench.train import Schedule, Training

from ._towers import Towers, train_in_rounds


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


@stage(settings=all_but())
def towers(work: StageWork[SiameseConfig]) -> Values:
    """Train in rounds; from the second on with each point's nearest wrong labels as hard negatives."""
    c = work.config
    assert work.data.Z is not None

    module = Towers(work.data.Z, c.dim, c.tau)
    settings = Training(c.lr, c.batch_size, c.epochs, schedule=Schedule("linear", warmup=0.1))
    train_in_rounds(module, work.data, settings, c.rounds, c.hard, work)
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
