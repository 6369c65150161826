"""Astec (Dahiya et al., WSDM 2021): DeepXML for short texts, without label text; the base of DECAF and Gandalf.

Module I learns token embeddings on clusters of labels. From then on documents are the constant f = ReLU(E x); nearest
label centroids and nearest training points make the shortlists (Module II), on which one free vector per label and a
new residual block are trained (Modules III and IV). The re-ranker, a second network of the same kind, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from xcbench.costs import StageCost
from xcbench.data import Dataset, TopK
from xcbench.data.matrices import binary_targets
from xcbench.data.word_vectors import learn_vectors
from xcbench.kernels.arrays import Floats, Ints
from xcbench.kernels.csr import SparseRows
from xcbench.labels.centroids import dense_centroids, sparse_centroids
from xcbench.labels.clustering import balanced_clusters, cluster_count
from xcbench.labels.meta_labels import meta_targets
from xcbench.labels.normalise import by_row
from xcbench.labels.walk import random_walk_graph
from xcbench.nn import FreeLabels, SpectralWeight, TokenEmbeddings, weighted_sums
from xcbench.nn.blocks import embedded
from xcbench.nn.dropout import first_point, relu_dropout
from xcbench.plugins import (
    AnyRange,
    IntRange,
    LogRange,
    Method,
    Patch,
    Predictor,
    Range,
    Run,
    StageWork,
    Values,
    load_values,
    register_method,
    save_values,
    stage,
)
from xcbench.progress import counted
from xcbench.shortlist import HNSWShortlister, blend, build_at_once, divide_by_best
from xcbench.shortlist.beam import sigmoid
from xcbench.shortlist.packing import pack, unpack
from xcbench.shortlist.predictors import as_array, shortlist_logits
from xcbench.shortlist.predictors.cascade import embed, predict_in_parts
from xcbench.train import (
    FREE_COPIES,
    Candidates,
    CascadeMemory,
    Points,
    RankAll,
    RankShortlist,
    Schedule,
    Training,
    all_classifiers,
    cascade_memory,
    cost_of_ranking_all,
    cost_of_ranking_shortlists,
    learnable,
    log_odds,
    scaled_training,
    targets_of,
    train,
)

NO_WALK_ABOVE = 5000
"""Labels with more points than this make walks meaningless; then the clusters come from the centroids alone."""

POINTS_AT_ONCE = 4096
"""How many training points are shortlisted at a time: each passes through several lists of candidates."""


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
    """Weight of nearest centroids in a shortlist; the votes of nearest points have the rest."""
    beta: float = 0.6
    """Weight of the classifier in the final score; the shortlist has the rest."""
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
    """The fine representation: f + drop(ReLU(W f + b)), with W spectrally normed."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.W = SpectralWeight(torch.eye(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.dropout = dropout

    def forward(self, f: Tensor) -> Tensor:
        fine = linear(f, self.W(), self.bias)
        return f + relu_dropout(fine, self.dropout, self.training, first_point())


class AstecEncoder(nn.Module):
    """Documents: the coarse f = drop(ReLU(E x)), then the residual; without E, the residual alone on constant f."""

    def __init__(self, dim: int, dropout: float, E: TokenEmbeddings | None = None) -> None:
        super().__init__()
        self.E = E
        self.fine = AstecResidual(dim, dropout)

    def forward(self, X: SparseRows | Tensor) -> Tensor:
        if self.E is not None:
            X = relu_dropout(embedded(X, self.E), self.fine.dropout, self.training, first_point())
        fine: Tensor = self.fine(embedded(X, None))
        return fine


@dataclass(frozen=True)
class Neighbours:
    """Nearest label centroids, and the labels of nearest training points, as one shortlist."""

    centroids: HNSWShortlister
    points: HNSWShortlister
    centroid_weight: float

    @classmethod
    def of(cls, packed: Values, centroid_weight: float) -> Neighbours:
        """From the output of Module II."""
        centroids = unpack(packed["centroids"])
        points = unpack(packed["points"])
        assert isinstance(centroids, HNSWShortlister)
        assert isinstance(points, HNSWShortlister)
        return cls(centroids, points, centroid_weight)

    def shortlist(self, f: Floats, k: int) -> TopK:
        k = min(k, self.centroids.label_count)
        near = self.centroids.shortlist(f, k)
        voted = divide_by_best(self.points.shortlist(f, k))
        return blend([near, voted], k, [self.centroid_weight, 1 - self.centroid_weight])

    def labels(self, f: Floats, k: int) -> Ints:
        """The labels alone, of many points, some of them at a time."""
        found = np.empty((len(f), min(k, self.centroids.label_count)), np.int32)
        for first in counted(range(0, len(f), POINTS_AT_ONCE), "shortlists"):
            part = slice(first, first + POINTS_AT_ONCE)
            found[part] = self.shortlist(f[part], k).indices
        return found


class AstecPredictor(Predictor):
    """score = beta clf + (1 - beta) near, both divided by the point's best."""

    def __init__(self, arrays: Mapping[str, Floats], neighbours: Neighbours, beta: float, top: int) -> None:
        self.arrays = arrays
        self.neighbours = neighbours
        self.beta = beta
        self.top = top

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return predict_in_parts(X, lambda part: self._predict_part(part, k))

    def _predict_part(self, X: sp.csr_array, k: int) -> TopK:
        f = coarse(X, self.arrays["E"])
        near = self.neighbours.shortlist(f, self.top)
        return self.combined(near, self.logits(f, near.indices), k)

    def logits(self, f: Floats, labels: Ints) -> Floats:
        """The classifiers' logits of the labels in each point's shortlist."""
        return shortlist_logits(self.fine(f), self.arrays["W"], labels, self.arrays["bias"])

    def fine(self, f: Floats) -> Floats:
        """f + ReLU(R f + b)."""
        x: Floats = f + np.maximum(f @ self.arrays["R"].T + self.arrays["b"], 0)
        return x

    def combined(self, near: TopK, logits: Floats, k: int) -> TopK:
        """The k best labels by both scores."""
        classified = TopK.of(near.indices, sigmoid(logits))
        return blend([divide_by_best(classified), divide_by_best(near)], k, [self.beta, 1 - self.beta])

    def to(self, device: str) -> AstecPredictor | AstecOnDevice:
        if torch.device(device).type == "cpu":
            return self
        return AstecOnDevice(self, device)

    def save(self, folder: Path) -> None:
        values = {
            "arrays": dict(self.arrays),
            "centroids": pack(self.neighbours.centroids),
            "points": pack(self.neighbours.points),
            "centroid_weight": self.neighbours.centroid_weight,
            "beta": self.beta,
            "top": self.top,
        }
        save_values(folder, values)

    @classmethod
    def load(cls, folder: Path) -> AstecPredictor:
        values = load_values(folder)
        neighbours = Neighbours.of(values, values["centroid_weight"])
        return cls(values["arrays"], neighbours, values["beta"], values["top"])


class AstecOnDevice:
    """The same, with encoder and classifiers on a device. The nearest neighbours are searched on the CPU."""

    def __init__(self, source: AstecPredictor, device: str) -> None:
        self.source = source
        self.tables = {name: torch.from_numpy(array).to(device) for name, array in source.arrays.items()}

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return predict_in_parts(X, lambda part: self._predict_part(part, k))

    @torch.no_grad()
    def _predict_part(self, X: sp.csr_array, k: int) -> TopK:
        f = torch.relu(weighted_sums(SparseRows.of(X), self.tables["E"]))
        fine = f + torch.relu(linear(f, self.tables["R"], self.tables["b"]))
        near = self.source.neighbours.shortlist(f.cpu().numpy(), self.source.top)
        logits = shortlist_logits(fine, self.tables["W"], near.indices, self.tables["bias"])
        return self.source.combined(near, logits, k)

    def save(self, folder: Path) -> None:
        self.source.save(folder)


def coarse(X: sp.csr_array, E: Floats) -> Floats:
    """f = ReLU(E x)."""
    return torch.relu(embed(X, E)).numpy()


@stage(
    settings=("dim", "dropout", "start", "clusters", "reduction", "prior_bias", "surrogate"),
    data=("data", "unaugmented"),
    shared=True,
)
def surrogate(work: StageWork[AstecConfig]) -> Values:
    """Module I: E, learnt by finding clusters of labels that share points or neighbours."""
    c = work.config
    original = work.unaugmented
    points = learnable(work.data.train)
    walk = None
    if original.label_frequency.max() <= NO_WALK_ABOVE:
        counts = random_walk_graph(original.train.Y, 50, 0.2, head_threshold=None, top=10, seed=work.seed)
        walk = by_row(counts)
    centroids = sparse_centroids(original.train.Y, original.train.X, graph=walk)
    K = cluster_count(work.data.label_count, c.clusters)
    clustering = balanced_clusters(centroids, K, seed=work.seed)
    original_targets = meta_targets(targets_of(learnable(original.train)), clustering)

    E = TokenEmbeddings(work.data.feature_count, c.dim, lazy=True)
    if c.start == "words":
        # As long as the rows of an E that starts at random.
        vectors = math.sqrt(2) * learn_vectors(original.train.X, c.dim, work.seed)
        with torch.no_grad():
            E.weight.copy_(torch.from_numpy(vectors))

    targets = meta_targets(targets_of(points), clustering)
    labels = _free_labels(c, clustering.K, binary_targets(original_targets).nnz, math.prod(original_targets.shape))
    task = RankAll(AstecEncoder(c.dim, c.dropout, E), labels, c.reduction)
    train(task, Points(points.X, targets, split=points), c.surrogate, work, "surrogate")
    return {"E": as_array(E.weight)}


@stage(data="unaugmented", after=[surrogate], seeded=False)
def neighbours(work: StageWork[AstecConfig]) -> Values:
    """Module II: where labels and training points lie. (100 points vote, which is the authors' efSearch.)"""
    original = work.unaugmented.train
    f = coarse(original.X, work[surrogate]["E"])
    Y = original.Y
    label_vectors = dense_centroids(Y, f)
    votes = binary_targets(Y)

    def of_labels() -> HNSWShortlister:
        return HNSWShortlister.of(label_vectors, M=100, ef_construction=300, ef_search=400)

    def of_points() -> HNSWShortlister:
        return HNSWShortlister.of(f, votes, 100, "sum", M=50, ef_construction=50, ef_search=100)

    centroids, points = build_at_once(of_labels, of_points)
    return {"centroids": pack(centroids), "points": pack(points)}


@stage(
    settings=("dim", "dropout", "prior_bias", "centroid_weight", "shortlist_length", "random_negatives", "extreme"),
    data=("data", "unaugmented"),
    after=[surrogate, neighbours],
)
def extreme(work: StageWork[AstecConfig]) -> Values:
    """Modules III and IV: free vectors from a random start, on nearest labels, positives and random ones."""
    c = work.config
    L = work.data.label_count
    points = learnable(work.data.train)
    f = coarse(points.X, work[surrogate]["E"])
    listed = Neighbours.of(work[neighbours], c.centroid_weight).labels(f, c.shortlist_length)
    candidates = Candidates.of_labels(listed, L, with_positives=True, random=c.random_negatives)

    encoder = AstecEncoder(c.dim, c.dropout)
    candidates_per_point = min(L, c.shortlist_length + c.random_negatives)
    original = learnable(work.unaugmented.train)
    labels = _free_labels(c, L, binary_targets(original.Y).nnz, len(original) * candidates_per_point)
    task = RankShortlist(encoder, labels, "batch")
    train(task, Points(f, targets_of(points), candidates, points), c.extreme, work, "extreme")
    W, bias = all_classifiers(task, L)
    return {"R": as_array(encoder.fine.W()), "b": as_array(encoder.fine.bias), "W": W, "bias": bias}


def _free_labels(c: AstecConfig, count: int, true_pairs: int, all_pairs: int) -> FreeLabels:
    labels = FreeLabels(count, c.dim)
    if c.prior_bias and labels.bias is not None:
        with torch.no_grad():
            labels.bias.weight.add_(log_odds(true_pairs / max(1, all_pairs)))
    return labels


def _paper(lr: float, extreme_lr: float, halve: int, top: int, beta: float) -> Patch:
    """The authors' settings, but for several centroids of a head label (their 300 on the two largest sets)."""
    return {
        "dim": 300,
        "clusters": 65536,
        "reduction": "mean",
        "prior_bias": False,
        "top": top,
        "beta": beta,
        "surrogate": Training(lr, 255, 20, schedule=Schedule("halving", at=(14 / 20,))),
        "extreme": Training(extreme_lr, 255, 15, schedule=Schedule("halving", at=(halve / 15,))),
    }


@register_method("astec")
class Astec(Method[AstecConfig]):
    """Astec: nearest neighbours in a learnt space, then one free vector per label"""

    config_type = AstecConfig
    predictor_type = AstecPredictor
    stages = (surrogate, neighbours, extreme)
    can_ignore_pairs = True
    can_mix_points = True
    citation = "Dahiya, Saini, Mittal, Shaw, Dave, Soni, Jain, Agarwal, Varma: DeepXML, WSDM 2021"
    search_space: ClassVar[Mapping[str, AnyRange]] = {
        "dropout": Range(0.2, 0.7),
        "surrogate.lr": LogRange(0.001, 0.05),
        "surrogate.epochs": IntRange(4, 20),
        "extreme.lr": LogRange(0.0005, 0.02),
        "extreme.epochs": IntRange(4, 20),
        "beta": Range(0.1, 0.9),
    }
    presets: ClassVar[Mapping[str, Patch]] = {
        "LF-AmazonTitles-131K": _paper(0.03, 0.001, 14, 200, 0.1),
        "LF-WikiSeeAlsoTitles-320K": _paper(0.005, 0.002, 14, 200, 0.1),
        "LF-WikiTitles-500K": _paper(0.005, 0.0005, 10, 300, 0.6),
        "LF-AmazonTitles-1.3M": _paper(0.003, 0.0005, 14, 350, 0.6),
    }

    def fit(self, data: Dataset, run: Run) -> AstecPredictor:
        c = self.config
        module1 = run.stage(surrogate, data)
        module2 = run.stage(neighbours, data)
        module4 = run.stage(extreme, data)
        arrays: dict[str, Any] = {"E": module1["E"]}
        for name in ("R", "b", "W", "bias"):
            arrays[name] = module4[name]
        return AstecPredictor(arrays, Neighbours.of(module2, c.centroid_weight), c.beta, c.top)

    def estimate_memory(self, data: Dataset) -> int:
        c = self.config
        length = min(c.shortlist_length, data.label_count)
        # Vectors and links, in memory and once more as a stage's output.
        indices = 2 * (len(data.train) + data.label_count) * 4 * (c.dim + 100)
        lists = 60 * min(POINTS_AT_ONCE, len(data.train)) * length
        return self._module_memory(data).total + indices + lists

    def estimate_costs(self, data: Dataset) -> Mapping[str, StageCost]:
        c = self.config
        L = data.label_count
        K = cluster_count(L, c.clusters)
        E = data.feature_count * c.dim
        # A vector, and up to 2 M links, which are 200 for centroids and 100 for points.
        indices = L * 4 * (c.dim + 200) + len(data.train) * 4 * (c.dim + 100)
        owners = 8 * (data.train.Y.nnz + L)
        candidates = c.shortlist_length + c.random_negatives
        return {
            "surrogate": cost_of_ranking_all(
                data, c.surrogate, c.dim, K, encoder_parameters=E, keeps_classifiers=False
            ),
            "neighbours": StageCost(output=indices + owners),
            "extreme": cost_of_ranking_shortlists(data, c.extreme, c.dim, candidates),
        }

    def estimate_device_memory(self, data: Dataset) -> int:
        return self._module_memory(data).on_device

    def _module_memory(self, data: Dataset) -> CascadeMemory:
        c = self.config
        K = cluster_count(data.label_count, c.clusters)
        length = min(c.shortlist_length, data.label_count)
        candidates = length + c.random_negatives
        batch = c.extreme.batch_size
        return cascade_memory(data, c.dim, K, candidates, length, batch, frozen=True, copies=FREE_COPIES)
