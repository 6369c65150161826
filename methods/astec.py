"""Astec (Dahiya et al., WSDM 2021): DeepXML for short texts, without label text; DECAF's base, and Gandalf's.

Module I learns token embeddings on clusters of labels. From then on documents are the constant f = ReLU(E x); nearest
label centroids and nearest training points make the shortlists (Module II), on which a free vector a label and a new
residual block are trained (Modules III and IV). The re-ranker, a second network of the same kind, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from xcbench.data import Dataset, TopK
from xcbench.data.matrices import pattern
from xcbench.data.word_vectors import learn_vectors
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.labels.centroids import dense_centroids, sparse_centroids
from xcbench.labels.clustering import balanced_clusters, cluster_count
from xcbench.labels.meta_labels import meta_targets
from xcbench.labels.normalise import by_row
from xcbench.labels.walk import random_walk_graph
from xcbench.nn import FreeLabels, SpectralWeight, TokenEmbeddings
from xcbench.nn.blocks import embedded
from xcbench.nn.dropout import first_point, relu_dropout
from xcbench.plugins import Method, Predictor, Run, Stage, StageWork, load_values, register_method, save_values
from xcbench.plugins.contract import Patch
from xcbench.shortlist import HNSWShortlister, blend, by_best
from xcbench.shortlist.beam import sigmoid
from xcbench.shortlist.packing import pack, unpack
from xcbench.shortlist.predictors import as_array, listed_logits
from xcbench.shortlist.predictors.cascade import embed
from xcbench.train import (
    Candidates,
    Points,
    RankAll,
    RankShortlist,
    Schedule,
    Training,
    all_classifiers,
    cascade_memory,
    learnable,
    log_odds,
    scaled_training,
    targets_of,
    train,
)

Floats = npt.NDArray[np.float32]

NO_WALK_ABOVE = 5000
"""Labels with more points than this make walks meaningless; then the clusters come from the centroids alone."""

POINTS_AT_ONCE = 4096
"""How many training points' shortlists are made at a time: each passes through several lists of candidates."""


@dataclass(frozen=True)
class AstecConfig:
    """Training lengths and the start of biases are ours for small data, as in DECAF; the presets are the authors'."""

    dim: int = 300
    dropout: float = 0.5
    start: Literal["random", "words"] = "words"
    """Where E starts: at random, or at vectors learnt on the training text (the authors' fastText)."""
    clusters: int | None = None
    """By default as many as DECAF has."""
    surrogate: Training = field(default_factory=lambda: scaled_training(0.01, 10, 400))
    extreme: Training = field(default_factory=lambda: scaled_training(0.005, 10, 600))
    reduction: Literal["mean", "batch"] = "batch"
    """Of Module I; Module IV always sums over a point's candidates."""
    prior_bias: bool = True
    """Start biases at the log odds of a pair being true, else near 0."""
    shortlist_length: int = 500
    random_negatives: int = 200
    centroid_weight: float = 0.925
    """What nearest centroids count in a shortlist against the votes of nearest points."""
    beta: float = 0.6
    """What the classifier counts in the final score against the shortlist."""
    top: int = 200
    """How many labels of a shortlist are classified in prediction."""

    def __post_init__(self) -> None:
        if min(self.dim, self.shortlist_length, self.top) < 1 or self.random_negatives < 0:
            raise ValueError("dim, shortlist_length and top are at least 1, random_negatives at least 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is at least 0 and below 1, got {self.dropout}")
        if not (0 <= self.beta <= 1 and 0 <= self.centroid_weight <= 1):
            raise ValueError("beta and centroid_weight lie between 0 and 1")


class AstecResidual(nn.Module):
    """Astec's fine representation: f + drop(ReLU(W f + b)), with W spectrally normed."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.W = SpectralWeight(torch.eye(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.dropout = dropout

    def forward(self, f: Tensor) -> Tensor:
        return f + relu_dropout(linear(f, self.W(), self.bias), self.dropout, self.training, first_point())


class AstecEncoder(nn.Module):
    """Astec's document side: coarse f = drop(ReLU(E x)), then the residual; or the latter alone on constant f."""

    def __init__(self, dim: int, dropout: float, E: TokenEmbeddings | None = None) -> None:
        super().__init__()
        self.E, self.fine = E, AstecResidual(dim, dropout)

    def forward(self, X: SparseRows | Tensor) -> Tensor:
        if self.E is not None:
            X = relu_dropout(embedded(X, self.E), self.fine.dropout, self.training, first_point())
        return self.fine(embedded(X, None))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Neighbours:
    """Nearest label centroids, and the labels of nearest training points, as one shortlist."""

    centroids: HNSWShortlister
    points: HNSWShortlister
    centroid_weight: float

    def labels(self, f: Floats, k: int) -> npt.NDArray[np.int32]:
        """The labels alone of many points, a part of them at a time."""
        found = np.empty((len(f), min(k, self.centroids.label_count)), np.int32)
        for first in range(0, len(f), POINTS_AT_ONCE):
            part = slice(first, first + POINTS_AT_ONCE)
            found[part] = self.shortlist(f[part], k).indices
        return found

    def shortlist(self, f: Floats, k: int) -> TopK:
        k = min(k, self.centroids.label_count)
        near, voted = self.centroids.shortlist(f, k), by_best(self.points.shortlist(f, k))
        return blend([near, voted], k, [self.centroid_weight, 1 - self.centroid_weight])


class AstecPredictor(Predictor):
    """score = beta clf + (1 - beta) near, both divided by the best of the point."""

    def __init__(self, arrays: Mapping[str, Floats], neighbours: Neighbours, beta: float, top: int) -> None:
        self.arrays, self.neighbours, self.beta, self.top = arrays, neighbours, beta, top

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        f = coarse(X, self.arrays["E"])
        near = self.neighbours.shortlist(f, self.top)
        likely = sigmoid(listed_logits(self.fine(f), self.arrays["W"], near.indices, self.arrays["bias"]))
        judged = TopK.of(near.indices, likely)
        return blend([by_best(judged), by_best(near)], k, [self.beta, 1 - self.beta])

    def fine(self, f: Floats) -> Floats:
        """f + ReLU(R f + b)."""
        x: Floats = f + np.maximum(f @ self.arrays["R"].T + self.arrays["b"], 0)
        return x

    def save(self, folder: Path) -> None:
        near = self.neighbours
        packed = {"centroids": pack(near.centroids), "points": pack(near.points)}
        numbers = {"centroid_weight": near.centroid_weight, "beta": self.beta, "top": self.top}
        save_values(folder, {"arrays": dict(self.arrays), **packed, **numbers})

    @classmethod
    def load(cls, folder: Path) -> AstecPredictor:
        values = load_values(folder)
        return cls(values["arrays"], _neighbours(values, values["centroid_weight"]), values["beta"], values["top"])


def _paper(lr: float, extreme_lr: float, halve: int, top: int, beta: float) -> Patch:
    """The authors' settings, but for several centroids of a head label (their 300 on the two largest sets)."""
    return {
        "dim": 300, "clusters": 65536, "reduction": "mean", "prior_bias": False, "top": top, "beta": beta,
        "surrogate": Training(lr, 255, 20, schedule=Schedule("halving", at=(14 / 20,))),
        "extreme": Training(extreme_lr, 255, 15, schedule=Schedule("halving", at=(halve / 15,))),
    }  # fmt: skip


@register_method("astec")
class Astec(Method[AstecConfig]):
    """Astec: nearest neighbours in a learnt space, then a free vector a label"""

    config_type = AstecConfig
    predictor_type = AstecPredictor
    can_ignore_pairs = True
    citation = "Dahiya, Saini, Mittal, Shaw, Dave, Soni, Jain, Agarwal, Varma: DeepXML, WSDM 2021"
    presets: ClassVar[Mapping[str, Patch]] = {
        "LF-AmazonTitles-131K": _paper(0.03, 0.001, 14, 200, 0.1),
        "LF-WikiSeeAlsoTitles-320K": _paper(0.005, 0.002, 14, 200, 0.1),
        "LF-WikiTitles-500K": _paper(0.005, 0.0005, 10, 300, 0.6),
        "LF-AmazonTitles-1.3M": _paper(0.003, 0.0005, 14, 350, 0.6),
    }

    def fit(self, data: Dataset, run: Run) -> AstecPredictor:
        stages, c = self.stages(data, run), self.config
        extreme = stages["extreme"]
        arrays = {"E": stages["surrogate"]["E"], **{name: extreme[name] for name in ("R", "b", "W", "bias")}}
        return AstecPredictor(arrays, _neighbours(stages["neighbours"], c.centroid_weight), c.beta, c.top)

    def stages(self, data: Dataset, run: Run) -> Mapping[str, Stage]:
        c, clean = self.config, run.unaugmented
        seen = (data,) if clean is data else (data, clean)
        loss = {"dropout": c.dropout, "prior_bias": c.prior_bias}
        first = {"dim": c.dim, "start": c.start, "clusters": c.clusters, "reduction": c.reduction}
        surrogate = run.stage(
            "surrogate", lambda work: self._surrogate(data, clean, work),
            data=seen, config={**first, **loss, "training": c.surrogate}, shared=True,
        )  # fmt: skip
        neighbours = run.stage(
            "neighbours", lambda _: _index(data, surrogate["E"]), data=data, after=[surrogate], seeded=False
        )
        lists = {
            "centroid_weight": c.centroid_weight, "length": c.shortlist_length, "random": c.random_negatives
        }  # fmt: skip
        extreme = run.stage(
            "extreme", lambda work: self._extreme(data, surrogate, neighbours, work),
            data=data, config={**lists, **loss, "training": c.extreme}, after=[surrogate, neighbours],
        )  # fmt: skip
        return {"surrogate": surrogate, "neighbours": neighbours, "extreme": extreme}

    def estimate_memory(self, data: Dataset) -> int:
        c, K = self.config, cluster_count(data.label_count, self.config.clusters)
        length = min(c.shortlist_length, data.label_count)
        modules = cascade_memory(data, c.dim, K, length + c.random_negatives, length, c.extreme.batch_size, frozen=True)
        indices = 2 * (len(data.train) + data.label_count) * 4 * (c.dim + 100)  # vectors and links, also as a stage
        return modules + indices + 60 * min(POINTS_AT_ONCE, len(data.train)) * length

    def _surrogate(self, data: Dataset, clean: Dataset, work: StageWork) -> dict[str, Any]:
        """Module I: E, learnt by finding clusters of labels that share points or neighbours."""
        c, points = self.config, learnable(data.train)
        walk = None
        if clean.label_frequency.max() <= NO_WALK_ABOVE:
            walk = by_row(random_walk_graph(clean.train.Y, 50, 0.2, None, 10, work.seed))
        centroids = sparse_centroids(clean.train.Y, clean.train.X, graph=walk)
        clustering = balanced_clusters(centroids, cluster_count(data.label_count, c.clusters), seed=work.seed)
        E = TokenEmbeddings(data.feature_count, c.dim, lazy=True)
        if c.start == "words":
            with torch.no_grad():  # as long as the rows of an E that starts at random
                E.weight.copy_(torch.from_numpy(math.sqrt(2) * learn_vectors(clean.train.X, c.dim, work.seed)))
        targets = meta_targets(targets_of(points), clustering)
        labels = self._labels(clustering.K, targets.nnz / max(1, math.prod(targets.shape)))
        task = RankAll(AstecEncoder(c.dim, c.dropout, E), labels, c.reduction)
        train(task, Points(points.X, targets), c.surrogate, work, "surrogate")
        return {"E": as_array(E.weight)}

    def _extreme(self, data: Dataset, surrogate: Stage, neighbours: Stage, work: StageWork) -> dict[str, Any]:
        """Modules III and IV: free vectors from nothing, on nearest labels, positives and random ones."""
        c, points, L = self.config, learnable(data.train), data.label_count
        f = coarse(points.X, surrogate["E"])
        listed = _neighbours(neighbours, c.centroid_weight).labels(f, c.shortlist_length)
        candidates = Candidates.of_labels(listed, L, with_positives=True, random=c.random_negatives)
        encoder = AstecEncoder(c.dim, c.dropout)
        labels = self._labels(L, points.Y.nnz / (len(points) * min(L, c.shortlist_length + c.random_negatives)))
        task = RankShortlist(encoder, labels, "batch")
        train(task, Points(f, targets_of(points), candidates), c.extreme, work, "extreme")
        W, bias = all_classifiers(task, L)
        return {"R": as_array(encoder.fine.W()), "b": as_array(encoder.fine.bias), "W": W, "bias": bias}

    def _labels(self, count: int, share: float) -> FreeLabels:
        labels = FreeLabels(count, self.config.dim)
        if self.config.prior_bias and labels.bias is not None:
            with torch.no_grad():
                labels.bias.weight.add_(log_odds(share))
        return labels


def coarse(X: sp.csr_array, E: Floats) -> Floats:
    """f = ReLU(E x)."""
    return torch.relu(embed(X, E)).numpy()


def _index(data: Dataset, E: Floats) -> dict[str, Any]:
    """Module II: where labels and training points lie. (Neighbour votes use 100 points, as efSearch has it.)"""
    f, Y = coarse(data.train.X, E), data.train.Y
    centroids = HNSWShortlister.of(dense_centroids(Y, f), M=100, ef_construction=300, ef_search=400)
    owners = pattern(Y)
    points = HNSWShortlister.of(f, owners, neighbours=100, vote="sum", M=50, ef_construction=50, ef_search=100)
    return {"centroids": pack(centroids), "points": pack(points)}


def _neighbours(packed: Mapping[str, Any], centroid_weight: float) -> Neighbours:
    centroids, points = unpack(packed["centroids"]), unpack(packed["points"])
    assert isinstance(centroids, HNSWShortlister)
    assert isinstance(points, HNSWShortlister)
    return Neighbours(centroids, points, centroid_weight)
