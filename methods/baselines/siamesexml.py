"""SiameseXML: a siamese encoder of points and label titles, then one classifier per label that starts at its title.

Module I learns phi(x) = E x / |E x|, one encoder for points and titles, by a contrastive loss with in-batch and mined
negatives. Module II shortlists the labels whose titles or whose points lie nearest. Module III starts the classifiers
at w_l = phi(z_l) + eta_l with eta = 0, and Module IV learns eta and a finer encoder of points,
x_hat = phi(x) + drop(ReLU(R phi(x) + b)), on the shortlists; E stays. Both sides are scaled to unit length:
score = exp((beta <x_hat, w_l> + (1 - beta) <phi(x), phi(z_l)> - 1) / tau).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from xcbench.data import Dataset, TopK
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats
from xcbench.labels import dense_centroids
from xcbench.nn import LabelBank, SpectralWeight
from xcbench.nn.dropout import first_point, relu_dropout
from xcbench.plugins import (
    Method,
    Predictor,
    Run,
    SavedByArguments,
    StageWork,
    Values,
    register_method,
    stage,
)
from xcbench.shortlist import exact_topk
from xcbench.shortlist.predictors import as_array
from xcbench.shortlist.predictors.cascade import predict_in_parts
from xcbench.train import Batch, Candidates, Points, Schedule, Training, train

from ._towers import Towers, cross_entropy, train_in_rounds


@dataclass(frozen=True)
class SiameseXMLConfig:
    """Module I is that of `siamese`; beta, extreme_lr and dropout were chosen on a held-out fifth of lf-debian-4k."""

    dim: int = 256
    tau: float = 0.05
    """Temperature: how much a small difference of cosines counts."""
    rounds: int = 3
    """How often negatives are mined in Module I, plus one: the first round has none yet."""
    epochs: int = 4
    """Per round."""
    hard: int = 5
    """How many of its nearest wrong labels each point brings into a batch of Module I."""
    lr: float = 0.005
    shortlist: int = 50
    """Labels nearest by title, and as many nearest by their points, that a point is ranked against in Module IV."""
    extreme_epochs: int = 10
    extreme_lr: float = 0.001
    dropout: float = 0.5
    beta: float = 0.7
    """Weight of the classifiers in the final score; the siamese encoder has the rest."""
    batch_size: int = 256

    def __post_init__(self) -> None:
        sizes = (self.dim, self.rounds, self.epochs, self.batch_size, self.shortlist)
        if min(sizes) < 1 or min(self.hard, self.extreme_epochs) < 0:
            raise ValueError(
                "dim, rounds, epochs, batch_size and shortlist are at least 1, hard and extreme_epochs not negative"
            )
        if min(self.tau, self.lr, self.extreme_lr) <= 0:
            raise ValueError("tau, lr and extreme_lr are positive")
        if not (0 <= self.beta <= 1 and 0 <= self.dropout < 1):
            raise ValueError("beta lies between 0 and 1, dropout is at least 0 and below 1")


@stage(settings=["dim", "tau", "rounds", "epochs", "hard", "lr", "batch_size"])
def towers(work: StageWork[SiameseXMLConfig]) -> Values:
    """Module I: E, and the labels where it puts their titles."""
    c = work.config
    assert work.data.Z is not None
    module = Towers(work.data.Z, c.dim, c.tau)
    settings = Training(c.lr, c.batch_size, c.epochs, schedule=Schedule("linear", warmup=0.1))
    train_in_rounds(module, work.data, settings, c.rounds, c.hard, work)
    return {"E": as_array(module.E.weight), "titles": module.embed(module.Z)}


@stage(settings=["shortlist"], after=[towers], seeded=False)
def shortlists(work: StageWork[SiameseXMLConfig]) -> Values:
    """Module II: the labels whose titles are nearest to each training point, and those whose points are."""
    x = unit_embeddings(work.data.train.X, work[towers]["E"])
    centroids = dense_centroids(work.data.train.Y, x)
    count = min(work.config.shortlist, work.data.label_count)
    by_title = exact_topk(x, work[towers]["titles"], count).indices
    by_points = exact_topk(x, centroids, count).indices
    return {"labels": np.hstack([by_title, by_points])}


class Classifiers(nn.Module):
    """Module III: the finer encoder of points, and w_l = phi(z_l) + eta_l."""

    titles: Tensor

    def __init__(self, titles: Tensor, tau: float, dropout: float) -> None:
        super().__init__()
        labels, dim = titles.shape
        self.R = SpectralWeight(torch.eye(dim))
        self.b = nn.Parameter(torch.zeros(dim))
        self.register_buffer("titles", titles)
        self.eta = LabelBank(labels, dim)
        self.tau = tau
        self.dropout = dropout

    def encode(self, x: Tensor) -> Tensor:
        """x_hat, of unit length."""
        fine = relu_dropout(linear(x, self.R(), self.b), self.dropout, self.training, first_point())
        return normalize(x + fine, dim=1)

    def loss(self, batch: Batch) -> Tensor:
        """The loss of Module I, between x_hat and w_l."""
        if batch.shortlists is None or not isinstance(batch.X, Tensor):
            raise TypeError("the classifiers read vectors of points with candidates")
        labels = batch.shortlists.labels
        ids = torch.from_numpy(labels).to(self.titles.device)
        w = normalize(self.titles[ids] + self.eta(labels), dim=1)
        return cross_entropy(self.encode(batch.X) @ w.T / self.tau, batch.shortlists.entries)


@stage(
    settings=["tau", "extreme_epochs", "extreme_lr", "dropout", "batch_size"],
    after=[towers, shortlists],
)
def classifiers(work: StageWork[SiameseXMLConfig]) -> Values:
    """Module IV."""
    c = work.config
    x = unit_embeddings(work.data.train.X, work[towers]["E"])
    candidates = Candidates.of_labels(work[shortlists]["labels"], work.data.label_count, with_positives=True)
    module = Classifiers(torch.from_numpy(np.array(work[towers]["titles"])), c.tau, c.dropout)
    settings = Training(
        c.extreme_lr,
        c.batch_size,
        c.extreme_epochs,
        schedule=Schedule("linear", warmup=0.1),
    )
    train(module, Points(x, work.data.train.Y, candidates), settings, work, "classifiers")
    w = normalize(module.titles + module.eta.weight, dim=1)
    return {"R": as_array(module.R()), "b": as_array(module.b), "W": as_array(w)}


def unit_embeddings(X: sp.csr_array, E: Floats) -> Floats:
    """phi(x)."""
    return normalize(torch.from_numpy(X @ E), dim=1).numpy()


class SiameseXMLPredictor(SavedByArguments, Predictor):
    """Both encoders, and both vectors of each label in one table: [beta w_l, (1 - beta) phi(z_l)]."""

    def __init__(self, E: Floats, R: Floats, b: Floats, labels: Floats, tau: float) -> None:
        self.E = E
        self.R = R
        self.b = b
        self.labels = labels
        self.tau = tau

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return predict_in_parts(X, lambda part: self._predict_part(part, k))

    def _predict_part(self, X: sp.csr_array, k: int) -> TopK:
        x = torch.from_numpy(unit_embeddings(X, self.E))
        fine = torch.relu(linear(x, torch.from_numpy(self.R), torch.from_numpy(self.b)))
        x_hat = normalize(x + fine, dim=1)
        best = exact_topk(torch.cat([x_hat, x], 1).numpy(), self.labels, k)
        return TopK.of(best.indices, np.exp((best.scores - 1) / self.tau))


@register_method("siamesexml")
class SiameseXML(Method[SiameseXMLConfig]):
    """SiameseXML: a siamese encoder, then one classifier per label that starts at its title (torch)"""

    config_type = SiameseXMLConfig
    predictor_type = SiameseXMLPredictor
    stages = (towers, shortlists, classifiers)
    citation = "Dahiya et al., SiameseXML: Siamese Networks meet Extreme Classifiers with 100M Labels, ICML 2021"

    def check_data(self, data: Dataset) -> None:
        if data.Z is None:
            raise InputError(f"method 'siamesexml' needs label text, which dataset {data.name!r} does not have")

    def fit(self, data: Dataset, run: Run) -> SiameseXMLPredictor:
        beta = self.config.beta
        first = run.stage(towers, data)
        run.stage(shortlists, data)
        second = run.stage(classifiers, data)
        labels = np.hstack([beta * second["W"], (1 - beta) * first["titles"]])
        return SiameseXMLPredictor(first["E"], second["R"], second["b"], labels, self.config.tau)
