"""ELIAS (Gupta et al., NeurIPS 2022): an index of labels that is learnt end to end with encoder and classifiers.

Clusters lead to labels by weighted edges. The scores of a cluster and of the edge to a label make the label's path
score; the best paths are the shortlist, and a label's final score is its path score times that of its classifier:

    s_c = min(1, alpha softmax(W_C x)_c)    s_cl = min(1, beta softmax(a_c)_l)    y_l = max over explored c of s_c s_cl
    p_l = y_l sigmoid(<w_l, x> + b_l)

Stage 1 learns encoder, clusters and label classifiers on a fixed partition of the labels. Stage 2 opens the partition:
each cluster keeps edges to the labels that its points have most, and all is learnt together, label classifiers anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from xcbench.costs import StageCost
from xcbench.data import Dataset
from xcbench.data.matrices import binary_targets, unit_rows
from xcbench.kernels.arrays import Ints, Longs
from xcbench.kernels.sparse_product import product
from xcbench.labels import Clustering, balanced_clusters, dense_centroids, sparse_centroids
from xcbench.nn import FreeLabels, pair_scores
from xcbench.plugins import Ablation, Method, Patch, Run, StageWork, Values, register_method, stage
from xcbench.progress import titled
from xcbench.shortlist import IndexShortlister
from xcbench.shortlist.packing import pack, unpack
from xcbench.shortlist.predictors import CascadePredictor, ShortlistPredictor, TitlePredictor, as_array, predictor_of
from xcbench.train import (
    Batch,
    Group,
    GroupedTraining,
    Keeping,
    LabelStart,
    Schedule,
    Training,
    cost_of_ranking_all,
    cost_of_ranking_shortlists,
    free_labels,
    index_memory,
    learnable,
    learnable_rows,
    train,
)
from xcbench.train.encoders import (
    TEXT_SETTINGS,
    Encoder,
    EncoderConfig,
    check_encoder,
    encoder_of,
    parameter_count,
    points_of,
    read_texts,
    with_encoder_groups,
)
from xcbench.train.learned_index import LearnedIndex, ScoredPaths

SMALLEST = 1e-30
"""Logarithms are taken of nothing smaller."""


def stage_training(
    epochs: int,
    min_steps: int,
    encoder_lr: float,
    clusters_lr: float,
    labels_lr: float,
    edges_lr: float | None = None,
    accumulate: int = 1,
) -> GroupedTraining:
    """The authors' groups: encoder, clusters, label classifiers and edges learn at their own rates."""
    groups = {
        "encoder": Group("encoder.*", encoder_lr, weight_decay=0.01),
        "clusters": Group("index.clusters.*", clusters_lr, weight_decay=0.01),
        "labels": Group("labels.*", labels_lr, weight_decay=0.01, accumulate=accumulate),
    }
    if edges_lr is not None:
        groups["edges"] = Group("index.edges", edges_lr, accumulate=accumulate, average=False)
    return GroupedTraining(
        batch_size=256,
        epochs=epochs,
        min_steps=min_steps,
        schedule=Schedule("linear", warmup=0.1),
        groups=groups,
    )


@dataclass(frozen=True)
class IndexConfig:
    """The index. What is None follows from the numbers of labels L and clusters C."""

    clusters: int | None = None
    """C; by default the power of two from which on a cluster has at most 100 labels."""
    beam: int | None = None
    """How many clusters are explored per point; by default 20, as in the paper."""
    length: int | None = None
    """K: how many labels a point is ranked against; by default a quarter of them, but 100 to 2000."""
    alpha: float = 10.0
    beta: float | None = None
    """By default L / C."""
    kappa: int | None = None
    """How many labels a cluster leads to in stage 2; by default 10 L / C."""

    def __post_init__(self) -> None:
        sizes = (self.clusters, self.beam, self.length, self.kappa)
        if any(size is not None and size < 1 for size in sizes):
            raise ValueError("clusters, beam, length and kappa are at least 1")
        if self.alpha <= 0 or (self.beta is not None and self.beta <= 0):
            raise ValueError("alpha and beta are greater than 0")

    def cluster_count(self, L: int) -> int:
        """C."""
        smallest = 2 ** max(0, math.ceil(math.log2(L / 100)))
        return min(L, self.clusters or smallest)

    def explored(self, L: int) -> int:
        """The beam."""
        return min(self.beam or 20, self.cluster_count(L))

    def listed(self, L: int) -> int:
        """K."""
        return min(L, self.length or min(2000, max(100, L // 4)))

    def edge_scale(self, L: int) -> float:
        """Beta."""
        return self.beta or L / self.cluster_count(L)

    def edges_per_cluster(self, L: int) -> int:
        """Kappa."""
        return min(L, self.kappa or math.ceil(10 * L / self.cluster_count(L)))


@dataclass(frozen=True)
class EliasConfig:
    """Training lengths and rates are ours: the authors' are for transformers and millions of points."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    exploration: Literal["parents", "sampled"] = "parents"
    """Explore the parents of all true labels in training, or draw clusters as the authors' code does."""
    recluster: bool = True
    """Cluster labels a second time, after a short training, by words and learnt vectors together."""
    label_start: LabelStart = "zero"
    """Where label classifiers start, in both stages; `random` is what the authors do."""
    learn_index: bool = True
    """False stops after stage 1."""
    warm_up: GroupedTraining = field(default_factory=lambda: stage_training(5, 300, 0.005, 0.005, 0.005))
    fixed: GroupedTraining = field(default_factory=lambda: stage_training(15, 1000, 0.005, 0.005, 0.005))
    fixed_weight: float = 0.01
    """Lambda in stage 1: the weight of the loss of the shortlist."""
    learnt: GroupedTraining = field(default_factory=lambda: stage_training(20, 1500, 0.002, 0.0005, 0.005, 0.01))
    learnt_weight: float = 0.05
    """Lambda in stage 2."""

    def __post_init__(self) -> None:
        if min(self.fixed_weight, self.learnt_weight) < 0:
            raise ValueError("fixed_weight and learnt_weight are not negative")


# Section 3: the model and its loss.


class EliasTask(nn.Module):
    """Encoder, index and label classifiers; the loss is that of classification plus lambda times the shortlist's.

    Both are means over points. Of classification, each of the K listed labels counts equally; of the shortlist, each of
    a point's true labels that were explored. (The authors' mean over a padded matrix depends on the batch.)
    """

    def __init__(self, encoder: nn.Module, index: LearnedIndex, labels: FreeLabels, weight: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.index = index
        self.labels = labels
        self.weight = weight

    def start_epoch(self) -> None:
        """Parents are found once per epoch."""
        self.index.find_parents()

    def loss(self, batch: Batch) -> Tensor:
        x: Tensor = self.encoder(batch.X)
        paths: ScoredPaths = self.index(x, batch.targets)
        W, b = self.labels(paths.labels)
        s = pair_scores(x, W, paths.pairs, b)

        y = paths.scores
        true = paths.positives
        t = paths.targets
        log_y = y[true].clamp(min=SMALLEST).log()
        log_p = logsigmoid(s[true]) + log_y
        log_not_p = ((1 - y) + y * torch.sigmoid(-s)).clamp(min=SMALLEST).log()

        classification = -((1 - t) * log_not_p).sum() - (t[true] * log_p).sum()
        shortlist = -(log_y / paths.positives_of_point).sum()
        points = len(batch.rows)
        return classification / (points * self.index.length) + self.weight * shortlist / points


def _label_classifiers(work: StageWork[EliasConfig]) -> FreeLabels:
    c = work.config
    ranked = c.index.listed(work.data.label_count)
    return free_labels(learnable(work.data.train).Y, _encoder(work).dim, ranked, c.label_start)


# The encoder: it reads rows of X, or titles.


@stage(settings=[f"encoder.{name}" for name in TEXT_SETTINGS], seeded=False)
def texts(work: StageWork[EliasConfig]) -> Values:
    """What the encoder reads beside X: nothing, titles as words or word pieces in their order, or fixed vectors."""
    return read_texts(work.config.encoder, work.data, work.device)


def _encoder(work: StageWork[EliasConfig]) -> Encoder:
    return encoder_of(work.config.encoder, work[texts], work.data.train)


# Stage 1: a fixed partition.

INDEX = ("index.clusters", "index.beam", "index.length", "index.alpha")


@stage(settings=["index.clusters"], data="unaugmented")
def partition(work: StageWork[EliasConfig]) -> Values:
    """Balanced clusters of labels, by the words of their points."""
    points = work.unaugmented.train
    return _clusters(work, sparse_centroids(points.Y, points.X))


@stage(
    settings=["encoder", "exploration", "label_start", "recluster", "warm_up", "fixed_weight", *INDEX],
    data=("data", "unaugmented"),
    after=[texts, partition],
)
def repartition(work: StageWork[EliasConfig]) -> Values:
    """Clusters by words and learnt vectors together, after a short training on the first ones."""
    c = work.config
    if not c.recluster:
        return work[partition]
    task = _partitioned_task(work, work[partition], c.warm_up)
    _train(task, c.warm_up, work)

    points = work.unaugmented.train
    learnt = dense_centroids(points.Y, _encoder(work).vectors(task.encoder, points))
    words = unit_rows(sparse_centroids(points.Y, points.X))
    return _clusters(work, sp.hstack([sp.csr_array(learnt), words], format="csr"))


@stage(settings=["encoder", "exploration", "label_start", "fixed", "fixed_weight", *INDEX], after=[texts, repartition])
def stage1(work: StageWork[EliasConfig]) -> Values:
    """Encoder, clusters and label classifiers, on a partition that stays as it is."""
    c = work.config
    task = _partitioned_task(work, work[repartition], c.fixed)
    _train(task, c.fixed, work)
    return _trained(task, work)


def _clusters(work: StageWork[EliasConfig], centroids: sp.csr_array) -> Values:
    K = work.config.index.cluster_count(centroids.shape[0])
    clustering = balanced_clusters(centroids, K, seed=work.seed)
    return {"cluster_of": clustering.cluster_of, "count": clustering.K}


def _partitioned_task(work: StageWork[EliasConfig], clusters: Values, training: Training) -> EliasTask:
    """A new model in which each cluster leads to its own labels, with weight 1."""
    c = work.config
    clustering = Clustering.of(clusters["cluster_of"], clusters["count"])
    encoder = _encoder(work)
    module = encoder.start(work.seed)
    index = _index(work, clustering.to_csr().T.tocsr(), None, training)
    return EliasTask(module, index, _label_classifiers(work), c.fixed_weight)


# Stage 2: the partition opens.


@stage(settings=["encoder", "index.clusters", "index.kappa"], after=[texts, repartition, stage1], seeded=False)
def adjacency(work: StageWork[EliasConfig]) -> Values:
    """The edges of stage 2: M^T Y, where M has the scores of each point's best clusters, cut to kappa per cluster."""
    c = work.config
    L = work.data.label_count
    found = unpack(work[stage1]["index"])
    assert isinstance(found, IndexShortlister)
    points = work.data.train
    rows = learnable_rows(points)
    encoder = _encoder(work)
    x = encoder.vectors(encoder.restore(work[stage1]["encoder"]).to(work.device), points)
    with titled("clusters of points"):
        M = found.clusters(x[rows]).to_csr(len(found.H))
    Y = binary_targets(points.Y[rows])
    with titled("edges"):
        edges = product(M.T.tocsr(), Y, c.index.edges_per_cluster(L))

    missing = np.setdiff1d(np.arange(L), edges.indices)
    if len(missing):
        work.log(f"{len(missing)} of {L} labels are in no cluster's edges: each is added to its best cluster")
        edges = _with_labels(edges, missing, product(Y[:, missing].T.tocsr(), M, 1), work[repartition]["cluster_of"])
    return {"edges": edges, "unreachable": len(missing)}


def _with_labels(edges: sp.csr_array, labels: Longs, best: sp.csr_array, cluster_of: Ints) -> sp.csr_array:
    """Add an edge to each label: from its best cluster, or, if no point reaches it, from its cluster in stage 1."""
    clusters = cluster_of[labels].astype(np.int64)
    is_reached = np.diff(best.indptr) > 0
    clusters[is_reached] = best.indices
    ones = np.ones(len(labels), np.float32)
    added = sp.csr_array((ones, (clusters, labels)), shape=edges.shape)
    return sp.csr_array(edges + added)


@stage(
    settings=["encoder", "exploration", "label_start", "learnt", "learnt_weight", "index.beta", *INDEX],
    after=[texts, stage1, adjacency],
)
def stage2(work: StageWork[EliasConfig]) -> Values:
    """Edges, clusters, encoder and label classifiers together: edges and label classifiers start anew."""
    c = work.config
    L = work.data.label_count
    encoder = _encoder(work)
    module = encoder.restore(work[stage1]["encoder"])
    index = _index(work, work[adjacency]["edges"], c.index.edge_scale(L), c.learnt)
    found = unpack(work[stage1]["index"])
    assert isinstance(found, IndexShortlister)
    with torch.no_grad():
        index.clusters.weight.copy_(torch.from_numpy(found.H))
        index.clusters.bias.copy_(torch.from_numpy(found.bias))
    task = EliasTask(module, index, _label_classifiers(work), c.learnt_weight)
    _train(task, c.learnt, work)
    return {**_trained(task, work), "edge_weights": _edge_weights(task.index)}


def _edge_weights(index: LearnedIndex) -> Values:
    """Figure 3: the mean weight of a cluster's heaviest edge, of its second and so on."""
    weights = np.zeros(index.is_edge.shape, np.float32)
    weights[index.is_edge.cpu().numpy()] = as_array(index.edge_weights())
    heaviest_first = -np.sort(-weights, axis=1)
    return {"x": list(range(1, weights.shape[1] + 1)), "y": heaviest_first.mean(axis=0).tolist()}


def _index(
    work: StageWork[EliasConfig],
    edges: sp.csr_array,
    beta: float | None,
    training: Training,
) -> LearnedIndex:
    c = work.config
    L = work.data.label_count
    pairs = training.batch_size * c.index.listed(L)
    return LearnedIndex(
        edges,
        _encoder(work).dim,
        c.index.alpha,
        beta,
        c.index.explored(L),
        c.index.listed(L),
        c.exploration,
        all_labels=pairs >= L,
    )


def _train(task: EliasTask, training: GroupedTraining, work: StageWork[EliasConfig]) -> None:
    groups = with_encoder_groups(training, task, work.config.encoder)
    train(task, points_of(_encoder(work), work.data.train), groups, work, work.stage.name)


def _trained(task: EliasTask, work: StageWork[EliasConfig]) -> Values:
    W, bias = task.labels()
    return {
        "encoder": _encoder(work).state(task.encoder),
        "index": pack(task.index.shortlister()),
        "W": as_array(W),
        "bias": as_array(bias),
    }


# The settings of the paper, and those with which the authors' code was run on our data (docs/methods/elias.md).


def _paper(model: str, length: int, fixed: GroupedTraining, learnt: GroupedTraining) -> dict[str, Any]:
    return {
        "encoder.kind": "transformer",
        "encoder.model": model,
        "encoder.pooling": "first",
        "encoder.length": length,
        "label_start": "random",
        "index.beam": 20,
        "index.length": 2000,
        "index.beta": 150,
        "index.kappa": 1000,
        "warm_up": replace(fixed, epochs=5),
        "fixed": fixed,
        "learnt": learnt,
    }


def _with_batches(training: GroupedTraining, size: int, keep: Keeping | None = None) -> GroupedTraining:
    return replace(training, batch_size=size, keep=keep or training.keep)


PRESETS: Mapping[str, Patch] = {
    "LF-AmazonTitles-131K": _paper(
        "distilbert-base-uncased",
        32,
        _with_batches(stage_training(20, 0, 2e-4, 5e-3, 5e-3), 1024),
        _with_batches(stage_training(50, 0, 3e-5, 1e-4, 5e-3, 5e-3, 10), 420, Keeping(8 / 50, 500)),
    ),
    "Amazon-670K": _paper(
        "bert-base-uncased",
        128,
        stage_training(15, 0, 1e-4, 1e-2, 1e-2, accumulate=10),
        _with_batches(stage_training(30, 0, 3e-5, 3e-4, 5e-3, 5e-3, 10), 256, Keeping(6 / 30, 2000)),
    )
    | {"fixed_weight": 0.0},
    "anchor-minilm": {
        "encoder.kind": "transformer",
        "encoder.model": "minilm",
        "encoder.precision": "bfloat16",
        "index.clusters": 64,
        "index.beam": 20,
        "index.length": 2000,
        "index.beta": 150,
        "index.kappa": 686,
        "recluster": False,
        "label_start": "random",
        "fixed": _with_batches(stage_training(6, 0, 1e-4, 5e-3, 5e-3), 32),
        "learnt": _with_batches(stage_training(10, 0, 3e-5, 1e-4, 5e-3, 5e-3), 32),
    },
}


# The method: its variations, and how its parts predict.


class EliasPredictor(CascadePredictor):
    """What a bag of tokens leaves behind. Other encoders leave a `TitlePredictor`."""

    @classmethod
    def load(cls, folder: Path) -> CascadePredictor | TitlePredictor:  # type: ignore[override]
        if TitlePredictor.is_in(folder):
            return TitlePredictor.load(folder)
        return super().load(folder)


@register_method("elias")
class Elias(Method[EliasConfig]):
    """ELIAS: clusters of labels whose edges to labels are learnt with encoder and classifiers"""

    config_type = EliasConfig
    predictor_type = EliasPredictor
    version = "2"
    stages = (texts, partition, repartition, stage1, adjacency, stage2)
    can_ignore_pairs = True
    citation = "Gupta, Chen, Yu, Hsieh, Dhillon: ELIAS, NeurIPS 2022"
    ablations: ClassVar[Mapping[str, Ablation]] = {
        "stage1": Ablation("ELIAS (Stage 1)", {"learn_index": False}),
        "norecluster": Ablation("ELIAS, clustered once", {"recluster": False}),
        "sampled": Ablation("ELIAS, clusters drawn as in the authors' code", {"exploration": "sampled"}),
        "noshortlistloss": Ablation("ELIAS without the loss of the shortlist", {"fixed_weight": 0, "learnt_weight": 0}),
    }
    presets: ClassVar[Mapping[str, Patch]] = PRESETS

    def reads_titles(self) -> bool:
        return self.config.encoder.reads_titles

    def check_data(self, data: Dataset) -> None:
        check_encoder(self.config.encoder)

    def fit(self, data: Dataset, run: Run) -> CascadePredictor | TitlePredictor:
        c = self.config
        known = run.stage(texts, data)
        run.stage(partition, data)
        run.stage(repartition, data)
        model = run.stage(stage1, data)
        if c.learn_index:
            run.report("unreachable_labels", run.stage(adjacency, data)["unreachable"])
            model = run.stage(stage2, data)
            run.report("edge_weights", model["edge_weights"])
        encoder = encoder_of(c.encoder, known, data.train)
        ranker = ShortlistPredictor.of(
            unpack(model["index"]), c.index.listed(data.label_count), model["W"], model["bias"]
        )
        return predictor_of(encoder.fixed(encoder.restore(model["encoder"])), ranker)

    def estimate_costs(self, data: Dataset) -> Mapping[str, StageCost] | None:
        """Not known for a transformer."""
        c = self.config
        L = data.label_count
        encoder_parameters = parameter_count(c.encoder, data)
        if encoder_parameters is None:
            return None
        edges = c.index.cluster_count(L) * c.index.edges_per_cluster(L)
        costs = {
            "stage1": self._cost(c.fixed, encoder_parameters, 0, data),
            "adjacency": StageCost(output=8 * edges),
            "stage2": self._cost(c.learnt, encoder_parameters, edges, data),
        }
        if c.recluster:
            costs["repartition"] = replace(self._cost(c.warm_up, encoder_parameters, 0, data), output=4 * L)
        return costs

    def _cost(self, training: Training, encoder_parameters: int, edges: int, data: Dataset) -> StageCost:
        """Clusters are ranked one and all, labels pair by pair."""
        c = self.config
        L = data.label_count
        dim = c.encoder.dim
        clusters = c.index.cluster_count(L)
        learnt = encoder_parameters + edges
        labels = cost_of_ranking_shortlists(data, training, dim, c.index.listed(L), encoder_parameters=learnt)
        return labels + cost_of_ranking_all(data, training, dim, clusters)

    def estimate_memory(self, data: Dataset) -> int | None:
        """The need of stage 2, in which each cluster has most edges; not known for a transformer."""
        c = self.config
        L = data.label_count
        encoder_parameters = parameter_count(c.encoder, data)
        if encoder_parameters is None:
            return None
        return index_memory(
            data,
            c.encoder.dim,
            encoder_parameters,
            index_parameters=c.index.cluster_count(L) * (c.encoder.dim + c.index.edges_per_cluster(L)),
            pairs=c.index.listed(L),
            batch_size=c.learnt.batch_size,
        )
