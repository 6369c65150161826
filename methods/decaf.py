"""DECAF (Mittal et al., WSDM 2021): classifiers made of label text and a free vector, behind a beam of clusters.

Module I learns token embeddings E on clusters of labels, Module II a shortlister on new clusters, Module III starts the
label classifiers at their text, Module IV trains them on the shortlists. docs/methods/decaf.md says where this follows
the paper, where the authors' code, and what small data needs beyond both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from xcbench.costs import StageCost
from xcbench.data import Dataset, Split
from xcbench.data.word_vectors import learn_vectors, read_vectors, vectors_digest
from xcbench.kernels.arrays import Floats, Longs
from xcbench.kernels.csr import SparseRows
from xcbench.labels.centroids import dense_centroids, sparse_centroids
from xcbench.labels.clustering import balanced_clusters, cluster_count
from xcbench.labels.meta_labels import meta_targets, meta_text
from xcbench.labels.partition import Clustering
from xcbench.nn import DocumentEncoder, Factored, GatedBlock, GatedSum, LabelBank, LabelText, TokenEmbeddings
from xcbench.plugins import (
    Ablation,
    AnyRange,
    IntRange,
    LogRange,
    Method,
    Patch,
    Range,
    Run,
    StageWork,
    Values,
    register_method,
    stage,
)
from xcbench.plugins.stages import IDENTITY
from xcbench.progress import titled
from xcbench.shortlist import BeamShortlister, HNSWShortlister, Shortlister, TreeShortlister, beam_width
from xcbench.shortlist.packing import pack, unpack
from xcbench.shortlist.predictors import (
    BeamPredictor,
    CascadePredictor,
    FixedEncoder,
    ShortlistPredictor,
    as_array,
    folded,
)
from xcbench.shortlist.recall import beam_recall
from xcbench.train import (
    Candidates,
    CascadeMemory,
    LabelSide,
    ModuleConfig,
    Points,
    RankAll,
    RankShortlist,
    all_classifiers,
    cascade_memory,
    cost_of_ranking_all,
    cost_of_ranking_shortlists,
    document_side,
    encode,
    fit_bias,
    learnable,
    official_training,
    scaled_training,
    targets_of,
    train,
)

Parts = Literal["text+free", "text", "free"]

RECALL_POINTS = 10_000
"""How many training points are used to measure the recall of the shortlists."""


def _file_digest(path: str | None) -> str | None:
    """What identifies a file of word vectors: its content."""
    if path is None:
        return None
    return vectors_digest(Path(path))


@dataclass(frozen=True)
class DecafConfig:
    """Where a default is not the paper's, docs/methods/decaf.md says how it was chosen; presets have the paper's."""

    dim: int = 300
    clusters: int | None = None
    """K, cut to the number of labels; by default the power of two nearest to three labels per cluster."""
    cluster_factor: float = 1.0
    """Multiplies K."""
    beam: int | None = None
    """B, in clusters; by default as many as hold `shortlist_length` labels."""
    shortlist_length: int = 600
    shortlist: Literal["clusters", "hnsw", "parabel"] = "clusters"
    force_positives: bool = False
    """Whether true labels that a training point's shortlist misses are added to it."""
    embeddings: Literal["surrogate", "pretrained"] = "surrogate"
    """Where E comes from: Module I, or text alone (then E stays fixed)."""
    embedding_scale: float = 4.0
    """Length of E's rows at the start: a multiple of Kaiming's, which the paper has."""
    vectors: str | None = field(default=None, metadata={IDENTITY: _file_digest})
    """A file of pre-trained vectors (npy, one row per feature); without one they are learnt on the training text."""
    freeze: bool = False
    """Keep E fixed in Modules II and IV."""
    classifier: Parts = "text+free"
    """What the classifiers of Modules II and IV are made of: z1 (text), z2 (free), or both."""
    free_start: Literal["text", "random"] = "text"
    reduction: Literal["mean", "batch"] = "batch"
    fitted_bias: bool = True
    """Start biases where the untrained loss is least, and have them in Module I too; else at 0, and none there."""
    surrogate: ModuleConfig = field(default_factory=lambda: ModuleConfig(scaled_training(0.01, 8, 300)))
    shortlister: ModuleConfig = field(default_factory=lambda: ModuleConfig(scaled_training(0.01, 8, 300)))
    extreme: ModuleConfig = field(default_factory=lambda: ModuleConfig(scaled_training(0.02, 12, 600)))

    def __post_init__(self) -> None:
        sizes = (self.dim, self.clusters, self.beam, self.shortlist_length)
        if any(size is not None and size < 1 for size in sizes):
            raise ValueError("dim, beam, clusters and shortlist_length are at least 1")
        if not self.cluster_factor > 0:
            raise ValueError(f"cluster_factor is greater than 0, got {self.cluster_factor}")


# Section 3: label classifiers of text and free vectors.


class LabelClassifiers(nn.Module):
    """w_l = sigmoid(alpha) (.) z2_l + sigmoid(beta) (.) z1_l with z1_l = E_L(E z_l); or one of the two parts alone."""

    def __init__(
        self,
        text: LabelText | None,
        E_L: GatedBlock | None,
        z2: LabelBank | None,
        bias: LabelBank | None,
    ) -> None:
        super().__init__()
        self.text = text
        self.E_L = E_L
        self.z2 = z2
        self.bias = bias
        self.combine = None
        if text is not None and z2 is not None:
            self.combine = GatedSum(z2.weight.shape[1])

    def forward(self, labels: Longs | None) -> tuple[Tensor | Factored, Tensor | None]:
        """Classifiers and biases of the labels given; None means all labels."""
        bias = None if self.bias is None else self.bias(labels)
        return self._classifiers(labels), bias

    def _classifiers(self, labels: Longs | None) -> Tensor | Factored:
        if self.text is None or self.E_L is None:
            assert self.z2 is not None
            free: Tensor = self.z2(labels)
            return free
        if self.combine is None or self.z2 is None:
            return self.E_L.factored(self.text(labels))
        combined: Factored = self.combine(self.z2(labels), self.E_L, self.text(labels))
        return combined


def label_classifiers(
    E: TokenEmbeddings,
    Z: sp.csr_array | None,
    count: int,
    dropout: float,
    parts: Parts,
    start: Literal["text", "random"] = "text",
    frozen: bool = False,
) -> LabelClassifiers:
    """Classifiers of `count` labels whose text is Z.

    Module III: free vectors start at the text of their labels, or at random.
    """
    dim = E.weight.shape[1]
    text = None
    block = None
    z2 = None
    if Z is not None and parts != "free":
        text = LabelText(E, Z, frozen)
        block = GatedBlock(dim, dropout)
    if Z is None or parts != "text":
        bound = dim**-0.5
        drawn = torch.empty(count, dim).uniform_(-bound, bound)
        if Z is None or start == "random":
            z2 = LabelBank(count, dim, drawn)
        else:
            z2 = LabelBank(count, dim, E.embed(SparseRows.of(Z)))
    return LabelClassifiers(text, block, z2, LabelBank(count))


def label_clusters(c: DecafConfig, centroids: sp.csr_array | Floats, seed: int) -> Clustering:
    """Clusters of equal size, by 2-means of the labels' centroids."""
    K = cluster_count(centroids.shape[0], c.clusters, c.cluster_factor)
    return balanced_clusters(centroids, K, seed=seed)


def _cluster_text(Z: sp.csr_array | None, clustering: Clustering) -> sp.csr_array | None:
    if Z is None:
        return None
    return meta_text(Z, clustering)


# Training in four modules.

CLUSTERS = ("clusters", "cluster_factor")
LOSS = ("reduction", "fitted_bias")


def _train(
    c: DecafConfig,
    module: ModuleConfig,
    task: RankAll | RankShortlist,
    points: Points,
    work: StageWork[DecafConfig],
) -> None:
    start = fit_bias if c.fitted_bias else None
    train(task, points, module.training, work, work.stage.name, start)


@stage(
    settings=("dim", "embedding_scale", "embeddings", "vectors", "surrogate", *CLUSTERS, *LOSS),
    data=("data", "unaugmented"),
    shared=True,
)
def surrogate(work: StageWork[DecafConfig]) -> Values:
    """Module I: E, learnt on the task of finding clusters of labels by their text."""
    c = work.config
    data = work.data
    original = work.unaugmented
    dropout = c.surrogate.dropout
    block = GatedBlock(c.dim, dropout)
    if c.embeddings == "pretrained":
        return {"E": _pretrained(c, original, work.seed), "encoder": folded(block)}

    E = TokenEmbeddings(data.feature_count, c.dim, scale=c.embedding_scale)
    clustering = label_clusters(c, sparse_centroids(original.train.Y, original.train.X), work.seed)
    points = learnable(data.train)
    targets = meta_targets(targets_of(points), clustering)
    labels = label_classifiers(E, _cluster_text(data.Z, clustering), clustering.K, dropout, "text")
    if not c.fitted_bias:
        labels.bias = None
    task = RankAll(DocumentEncoder(block, E), labels, c.reduction)
    _train(c, c.surrogate, task, Points(points.X, targets, split=points), work)
    return {"E": as_array(E.weight), "encoder": folded(block)}


@stage(
    settings=("dim", "shortlist", "shortlister", "freeze", "classifier", *CLUSTERS, *LOSS),
    data=("data", "unaugmented"),
    after=[surrogate],
)
def shortlister(work: StageWork[DecafConfig]) -> Values:
    """Module II: clusters of labels that are near for E, and classifiers that find them."""
    c = work.config
    original = work.unaugmented
    points = learnable(work.data.train)
    if c.shortlist != "clusters":
        return _other_shortlister(c, learnable(original.train), work[surrogate], work.seed)

    E = TokenEmbeddings.of(work[surrogate]["E"])
    document_vectors = E.embed(SparseRows.of(original.train.X)).numpy()
    clustering = label_clusters(c, dense_centroids(original.train.Y, document_vectors), work.seed)
    targets = meta_targets(targets_of(points), clustering)
    dropout = c.shortlister.dropout
    U = _cluster_text(work.data.Z, clustering)
    labels = label_classifiers(E, U, clustering.K, dropout, c.classifier, frozen=c.freeze)
    documents, X = document_side(GatedBlock(c.dim, dropout), E, points.X, c.freeze)
    task = RankAll(documents, labels, c.reduction)
    _train(c, c.shortlister, task, Points(X, targets, split=points), work)

    H, bias = all_classifiers(task, clustering.K)
    beam = BeamShortlister.of(H, clustering, clustering.K, bias)
    measured = learnable(original.train)
    _, X_measured = document_side(documents.block, E, measured.X[:RECALL_POINTS], c.freeze)
    return {
        "found": pack(beam),
        "recall": _recall(beam, encode(task, X_measured), measured.Y[:RECALL_POINTS]),
        "E": None if c.freeze else as_array(E.weight),
        "encoder": folded(documents.block),
    }


def _other_shortlister(c: DecafConfig, points: Split, module1: Values, seed: int) -> Values:
    """Table 5: nearest label centroids, or a Parabel tree, on the documents as Module I encodes them."""
    x = FixedEncoder(**module1["encoder"], E=module1["E"])(points.X)
    found: Shortlister
    if c.shortlist == "hnsw":
        found = HNSWShortlister.of(dense_centroids(points.Y, x))
    else:
        found = TreeShortlister.fit(x, points.Y, seed=seed)
    return {"found": pack(found), "recall": None, "E": None, "encoder": module1["encoder"]}


@stage(
    settings=(
        "dim",
        "beam",
        "shortlist_length",
        "force_positives",
        "free_start",
        "freeze",
        "classifier",
        "extreme",
        *LOSS,
    ),
    after=[surrogate, shortlister],
)
def extreme(work: StageWork[DecafConfig]) -> Values:
    """Modules III and IV: classifiers that start at the text of their labels, trained on shortlists."""
    c = work.config
    data = work.data
    L = data.label_count
    module2 = work[shortlister]
    points = learnable(data.train)
    E = TokenEmbeddings.of(work[surrogate]["E"] if module2["E"] is None else module2["E"])
    first_encoder = FixedEncoder(**module2["encoder"], E=as_array(E.weight))
    x = first_encoder.to(work.device)(points.X)
    candidates = training_candidates(c, trained_shortlister(c, module2), x, work.device)

    dropout = c.extreme.dropout
    labels = label_classifiers(E, data.Z, L, dropout, c.classifier, c.free_start, c.freeze)
    documents, X = document_side(GatedBlock(c.dim, dropout), E, points.X, c.freeze)
    task = RankShortlist(documents, labels, c.reduction)
    _train(c, c.extreme, task, Points(X, targets_of(points), candidates, points), work)

    W, bias = all_classifiers(task, L)
    return {
        "W": W,
        "bias": bias,
        "E": None if c.freeze else as_array(E.weight),
        "encoder": folded(documents.block),
    }


def trained_shortlister(c: DecafConfig, module2: Values) -> Shortlister:
    """Module II's shortlister, with the beam of the config: B is chosen after Module II."""
    found = unpack(module2["found"])
    if not isinstance(found, BeamShortlister):
        return found
    beam = beam_width(found.clustering.K, found.label_count, c.shortlist_length, c.beam)
    return dataclasses.replace(found, beam=beam)


def training_candidates(c: DecafConfig, found: Shortlister, x: Floats, device: str) -> Candidates:
    """The labels against which each training point is ranked in Module IV."""
    if isinstance(found, BeamShortlister):
        members = SparseRows.of(found.clustering.to_csr().T.tocsr())
        with titled("shortlists"):
            clusters = found.to(device).clusters(x)
        return Candidates(clusters.indices, members, c.force_positives)
    with titled("shortlists"):
        labels = found.shortlist(x, min(c.shortlist_length, found.label_count)).indices
    return Candidates.of_labels(labels, found.label_count, c.force_positives)


def _pretrained(c: DecafConfig, data: Dataset, seed: int) -> Floats:
    """E without Module I: vectors from a file, or learnt on the text of points and labels."""
    if c.vectors is not None:
        return read_vectors(Path(c.vectors), (data.feature_count, c.dim))
    texts = data.train.X
    if data.Z is not None:
        texts = sp.vstack([texts, data.Z], format="csr")
    # As long as the rows of an E that starts at random: activations keep their size.
    return c.embedding_scale * math.sqrt(2) * learn_vectors(texts, c.dim, seed)


def _recall(found: BeamShortlister, x: Floats, Y: sp.csr_array) -> dict[str, list[float]]:
    """Figure 6: the share of true labels in the clusters of a beam, in percent, on training points."""
    K = found.clustering.K
    beams = [beam for beam in (1, 2, 5, 10, 20, 50, 100, 200, 500) if beam <= K]
    widest = BeamShortlister.of(found.H, found.clustering, beams[-1], found.bias)
    recall = 100 * beam_recall(widest.clusters(x), found.clustering, Y, beams)
    return {"x": [float(beam) for beam in beams], "y": recall.tolist()}


# The method: its variations, the paper's settings, and how its parts predict.


def _paper(dim: int, clusters: int, beam: int, lr: float, dropout: float = 0.2) -> Patch:
    """The authors' settings; Modules II and IV learn at 0.8 times the rate of Module I."""
    return {
        "dim": dim,
        "clusters": clusters,
        "beam": beam,
        "reduction": "mean",
        "fitted_bias": False,
        "embedding_scale": 1.0,
        "surrogate.dropout": 0.5,
        "surrogate.training": official_training(lr, 20),
        "shortlister.dropout": dropout,
        "shortlister.training": official_training(0.8 * lr, 10),
        "extreme.dropout": dropout,
        "extreme.training": official_training(0.8 * lr, 10),
    }


@register_method("decaf")
class Decaf(Method[DecafConfig]):
    """DECAF: label text and free vectors in the classifiers, learnt shortlists"""

    config_type = DecafConfig
    predictor_type = CascadePredictor
    stages = (surrogate, shortlister, extreme)
    can_ignore_pairs = True
    can_mix_points = True
    citation = "Mittal, Dahiya, Agrawal, Saini, Agarwal, Kar, Varma: DECAF, WSDM 2021"
    search_space: ClassVar[Mapping[str, AnyRange]] = {
        "embedding_scale": LogRange(1.0, 8.0),
        "surrogate.training.lr": LogRange(0.002, 0.05),
        "shortlister.training.lr": LogRange(0.002, 0.05),
        "extreme.training.lr": LogRange(0.002, 0.1),
        "extreme.training.epochs": IntRange(4, 24),
        "extreme.dropout": Range(0.2, 0.7),
    }
    ablations: ClassVar[Mapping[str, Ablation]] = {
        "fft": Ablation("DECAF-FFT", {"embeddings": "pretrained", "freeze": True}),
        "8k": Ablation("DECAF-8K", {"cluster_factor": 0.25}),
        "noinit": Ablation("DECAF-no-init", {"free_start": "random"}),
        "z1": Ablation("DECAF-z1", {"classifier": "text"}),
        "z2": Ablation("DECAF-z2", {"classifier": "free"}),
        "lite": Ablation("DECAF-lite", {"freeze": True}),
        "hnsw": Ablation("DECAF + HNSW Shortlist", {"shortlist": "hnsw"}),
        "parabel": Ablation("DECAF + Parabel Shortlist", {"shortlist": "parabel"}),
        "positives": Ablation("DECAF + positives in shortlists", {"force_positives": True}),
    }
    presets: ClassVar[Mapping[str, Patch]] = {
        "LF-AmazonTitles-131K": _paper(300, 2**15, 200, 0.01),
        "LF-WikiSeeAlsoTitles-320K": _paper(300, 2**17, 160, 0.01),
        "LF-WikiTitles-500K": _paper(512, 2**17, 100, 0.005),
        "LF-AmazonTitles-1.3M": _paper(512, 2**17, 100, 0.01, dropout=0.5),
        # Ours: on its slices not significantly different from the default, which takes a quarter longer.
        "lf-debian-4k": {"extreme.training.min_steps": 400},
    }

    def fit(self, data: Dataset, run: Run) -> CascadePredictor:
        _log_missing_text(data, run)
        module1 = run.stage(surrogate, data)
        module2 = run.stage(shortlister, data)
        module4 = run.stage(extreme, data)

        first = FixedEncoder(**module2["encoder"], E=module1["E"] if module2["E"] is None else module2["E"])
        second = FixedEncoder(**module4["encoder"], E=module1["E"] if module4["E"] is None else module4["E"])
        found = trained_shortlister(self.config, module2)
        if not isinstance(found, BeamShortlister):
            length = self.config.shortlist_length
            listed = ShortlistPredictor.of(found, length, module4["W"], module4["bias"])
            return CascadePredictor(first, second, listed)

        recall = module2["recall"]
        labels_per_cluster = found.label_count / found.clustering.K
        lengths = [labels_per_cluster * beam for beam in recall["x"]]
        run.report("shortlist_recall", recall)
        run.report("shortlist_recall_by_length", {"x": lengths, "y": recall["y"]})
        return CascadePredictor(first, second, BeamPredictor.of(found, module4["W"], module4["bias"]))

    def estimate_memory(self, data: Dataset) -> int:
        return self._memory(data).total

    def estimate_device_memory(self, data: Dataset) -> int:
        return self._memory(data).on_device

    def estimate_costs(self, data: Dataset) -> Mapping[str, StageCost]:
        c = self.config
        K = self._cluster_count(data)
        E = data.feature_count * c.dim
        learns = 0 if c.freeze else E
        side = _label_side(c.classifier, data)
        first = StageCost(output=4 * E)
        if c.embeddings == "surrogate":
            text = _label_side("text", data)
            first = cost_of_ranking_all(data, c.surrogate.training, c.dim, K, text, E, keeps_classifiers=False)
        second = StageCost(output=4 * learns)
        if c.shortlist == "clusters":
            second = cost_of_ranking_all(data, c.shortlister.training, c.dim, K, side, learns)
        candidates = self._beam(data) * data.label_count // K
        last = cost_of_ranking_shortlists(data, c.extreme.training, c.dim, candidates, side, learns)
        return {"surrogate": first, "shortlister": second, "extreme": last}

    def _memory(self, data: Dataset) -> CascadeMemory:
        c = self.config
        L = data.label_count
        K = self._cluster_count(data)
        beam = self._beam(data)
        return cascade_memory(data, c.dim, K, beam * L // K, beam, c.extreme.training.batch_size, c.freeze)

    def _cluster_count(self, data: Dataset) -> int:
        return cluster_count(data.label_count, self.config.clusters, self.config.cluster_factor)

    def _beam(self, data: Dataset) -> int:
        c = self.config
        return beam_width(self._cluster_count(data), data.label_count, c.shortlist_length, c.beam)


def _label_side(parts: Parts, data: Dataset) -> LabelSide:
    """What `label_classifiers` makes of these parts."""
    if data.Z is None or parts == "free":
        return LabelSide(maps=0)
    return LabelSide(maps=1, factored=True, free=parts != "text")


def _log_missing_text(data: Dataset, run: Run) -> None:
    if data.Z is None:
        run.log(f"dataset {data.name!r} has no label text: every classifier is a free vector")
        return
    without_text = int((np.diff(data.Z.indptr) == 0).sum())
    if without_text:
        run.log(f"{without_text} of {data.label_count} labels have no text: their free vectors start at zero")
