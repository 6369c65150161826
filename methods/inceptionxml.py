"""InceptionXML (Kharbanda et al., SIGIR 2023) and InceptionXML-LF: convolutions over the words of a title.

A title is its words in their order. The encoder (`xcbench/nn/inception.py`) turns it into one vector; a head and one
free vector per label do the rest, over all labels. InceptionXML+ ranks only the labels of the likeliest clusters, and
finds these in the same step by a second head on the same encoder. InceptionXML-LF, which Gandalf's paper uses, is
InceptionXML+ with ECLARE's label classifiers. docs/methods/inceptionxml.md says what is the authors' and what is ours.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from xcbench.data import Dataset, TopK
from xcbench.data.text import TextEncoder
from xcbench.data.word_vectors import learn_vectors, read_word_vectors, vectors_digest
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats, Ints
from xcbench.kernels.csr import MixedRows, SparseRows
from xcbench.labels import Clustering, balanced_clusters, cluster_count, meta_targets, sparse_centroids
from xcbench.labels.label_graph import LabelGraph
from xcbench.nn import (
    ComponentAttention,
    ComponentClassifiers,
    FreeLabels,
    InceptionEncoder,
    LabelBank,
    NeighbourText,
    PointNorm,
    ResidualBlock,
    SpectralWeight,
    TokenEmbeddings,
    bce_over_all,
    bce_over_shortlists,
    inception_size,
    weighted_sums,
)
from xcbench.nn.dropout import dropout
from xcbench.plugins import (
    Ablation,
    AnyRange,
    IntRange,
    LogRange,
    Method,
    Patch,
    Predictor,
    Range,
    Run,
    SavedByArguments,
    StageWork,
    Values,
    register_method,
    stage,
)
from xcbench.plugins.stages import IDENTITY
from xcbench.shortlist import BeamShortlister, ExactShortlister, beam_width
from xcbench.shortlist.beam import sigmoid
from xcbench.shortlist.predictors import BeamPredictor, as_array
from xcbench.train import (
    Batch,
    Candidates,
    Points,
    RankAll,
    Schedule,
    Task,
    Training,
    all_classifiers,
    cut_shortlists,
    learnable,
    log_odds,
    scaled_training,
    targets_of,
    train,
)

POINTS_AT_ONCE = 1024
"""How many titles are encoded at a time: each passes through tables of 32 x 300 numbers."""


def _file_digest(path: str | None) -> str | None:
    """What identifies a file of word vectors: its content."""
    if path is None:
        return None
    return vectors_digest(Path(path))


@dataclass(frozen=True)
class ClusterConfig:
    """InceptionXML+: clusters of labels, found by a head of their own, whose labels are a point's candidates."""

    count: int | None = None
    """K, cut to the number of labels; by default the power of two nearest to three labels per cluster."""
    beam: int | None = None
    """How many clusters a point keeps; by default as many as hold `shortlist_length` labels."""
    shortlist_length: int = 550
    weight: float = 1.0
    """Of the clusters' loss; the labels' loss has 1."""
    detached: float = 0.4
    """For this share of the training, from its start, only the clusters' loss trains the encoder."""

    def __post_init__(self) -> None:
        sizes = (self.count, self.beam, self.shortlist_length)
        if any(size is not None and size < 1 for size in sizes):
            raise ValueError("count, beam and shortlist_length are at least 1")
        if not 0 <= self.detached <= 1 or self.weight < 0:
            raise ValueError("detached is between 0 and 1, weight is not negative")


@dataclass(frozen=True)
class InceptionConfig:
    """Defaults for small data; docs/methods/inceptionxml.md says how they were chosen. Presets have the authors'."""

    word_dim: int = 300
    """The length of a word vector: a multiple of 4, at least 64."""
    length: int = 32
    """S: a longer title is cut."""
    stop_words: Literal["none", "english"] = "english"
    start: Literal["random", "words"] = "words"
    """Where word vectors start: at random, or learnt on the training text."""
    vectors: str | None = field(default=None, metadata={IDENTITY: _file_digest})
    """A text file of word vectors (GloVe's or word2vec's form); words that it lacks start at random."""
    encoder_dropout: float = 0.25
    """Of words, and between the layers of encoder and heads."""
    dropout: float = 0.5
    """Of the vector that meets the classifiers."""
    rank: Literal["all", "clusters"] = "all"
    """Rank all labels, or those of the likeliest clusters (InceptionXML+)."""
    clusters: ClusterConfig = field(default_factory=ClusterConfig)
    reduction: Literal["mean", "batch"] = "batch"
    bias: Literal["prior", "zero", "none"] = "prior"
    """Biases of the label classifiers start at the log odds of a true pair, or at 0, or there are none."""
    training: Training = field(default_factory=lambda: scaled_training(0.015, 15, 450))

    def __post_init__(self) -> None:
        if self.word_dim < 64 or self.word_dim % 4:
            raise ValueError(f"word_dim is 64 or more, in steps of 4, got {self.word_dim}")
        if self.length < 1:
            raise ValueError(f"length is at least 1, got {self.length}")
        if not (0 <= self.dropout < 1 and 0 <= self.encoder_dropout < 1):
            raise ValueError("dropout and encoder_dropout are at least 0 and below 1")


# Words: sequences of ids, and where their vectors start.


@stage(settings=("stop_words",), data="unaugmented", seeded=False)
def vocabulary(work: StageWork[InceptionConfig]) -> Values:
    """The words of training and label text."""
    return TextEncoder.fit(_texts(work.unaugmented), stop_words=work.config.stop_words).to_values()


@stage(settings=("length",), after=[vocabulary], seeded=False)
def words(work: StageWork[InceptionConfig]) -> Values:
    """The words of each training title in their order."""
    encoder = TextEncoder.from_dict(work[vocabulary])
    return {"train": encoder.sequences(work.data.train.titles or (), work.config.length)}


@stage(settings=("word_dim", "start", "vectors"), data="unaugmented", after=[vocabulary], shared=True)
def word_vectors(work: StageWork[InceptionConfig]) -> Values:
    """Where E starts. All vectors are about as long as the authors' random ones, which lie in +-0.25."""
    c = work.config
    encoder = TextEncoder.from_dict(work[vocabulary])
    E = work.generator().uniform(-0.25, 0.25, (encoder.feature_count, c.word_dim)).astype(np.float32)
    if c.vectors is not None:
        known, vectors = read_word_vectors(Path(c.vectors), encoder.vocabulary, c.word_dim)
        E[known] = vectors
        work.log(f"{len(known)} of {len(E)} words have a vector in {c.vectors}")
    elif c.start == "words":
        texts = encoder.encode(list(_texts(work.unaugmented)))
        E = 0.25 * math.sqrt(c.word_dim / 3) * learn_vectors(texts, c.word_dim, work.seed)
    return {"E": E}


def _texts(data: Dataset) -> itertools.chain[str]:
    return itertools.chain(data.train.titles or (), data.label_titles or ())


# The network: one encoder, and one head per ranking.


class PlainHead(nn.Module):
    """x = drop(h + BN(GELU(W drop(h) + b))): the head over all labels."""

    def __init__(self, dim: int, inner_dropout: float, last_dropout: float) -> None:
        super().__init__()
        self.W = nn.Parameter(nn.init.xavier_uniform_(torch.empty(dim, dim)))
        self.b = nn.Parameter(torch.zeros(dim))
        self.norm = PointNorm(dim)
        self.inner_dropout = inner_dropout
        self.last_dropout = last_dropout

    def forward(self, h: Tensor) -> Tensor:
        hidden = linear(dropout(h, self.inner_dropout, self.training), self.W, self.b)
        x = h + self.norm(gelu(hidden))
        return dropout(x, self.last_dropout, self.training)


class SpectralHead(nn.Module):
    """x = drop(h + GELU(W drop(h) + b)) with W spectrally normed: the two heads of InceptionXML+."""

    def __init__(self, dim: int, inner_dropout: float, last_dropout: float) -> None:
        super().__init__()
        self.W = SpectralWeight(nn.init.xavier_uniform_(torch.empty(dim, dim)))
        self.b = nn.Parameter(torch.zeros(dim))
        self.inner_dropout = inner_dropout
        self.last_dropout = last_dropout

    def forward(self, h: Tensor) -> Tensor:
        hidden = linear(dropout(h, self.inner_dropout, self.training), self.W(), self.b)
        return dropout(h + gelu(hidden), self.last_dropout, self.training)


class TitleNetwork(nn.Module):
    """From titles to what meets the label classifiers and, in InceptionXML+, to what meets those of the clusters."""

    def __init__(self, c: InceptionConfig, E: TokenEmbeddings) -> None:
        super().__init__()
        dim = inception_size(c.word_dim)
        self.encoder = InceptionEncoder(E, c.length, c.encoder_dropout)
        self.label_head: nn.Module
        self.cluster_head: nn.Module | None = None
        if c.rank == "all":
            self.label_head = PlainHead(dim, c.encoder_dropout, c.dropout)
        else:
            self.label_head = SpectralHead(dim, c.encoder_dropout, c.dropout)
            self.cluster_head = SpectralHead(dim, c.encoder_dropout, c.dropout)

    def forward(self, titles: SparseRows | MixedRows) -> Tensor:
        """What meets the label classifiers."""
        x: Tensor = self.label_head(self.encoder(titles))
        return x


def network_of(c: InceptionConfig, E: Floats) -> TitleNetwork:
    return TitleNetwork(c, TokenEmbeddings.of(E))


# InceptionXML+: clusters and the labels in them, ranked in the same step.


class RankTogether(Task):
    """One-vs-all over all clusters, and over the labels of each point's likeliest and true clusters.

    Parameters
    ----------
    network
        Has two heads.
    labels
        The label classifiers.
    clustering
        Which label is in which cluster.
    density
        The share of true pairs among all of points and clusters.
    c
        The settings.
    detached_steps
        For so many steps, the labels' loss does not train the encoder.
    """

    steps: Tensor

    def __init__(
        self,
        network: TitleNetwork,
        labels: nn.Module,
        clustering: Clustering,
        density: float,
        c: InceptionConfig,
        detached_steps: int,
    ) -> None:
        super().__init__(network, labels, c.reduction)
        self.network = network
        self.clusters = free_labels(c, clustering.K, inception_size(c.word_dim), density, "clusters")
        self.clustering = clustering
        self.members = SparseRows.of(clustering.to_csr().T.tocsr())
        self.beam = beam_of(c, len(clustering.cluster_of), clustering.K)
        self.cluster_weight = c.clusters.weight
        self.detached_steps = detached_steps
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def loss(self, batch: Batch) -> Tensor:
        """The labels' loss and the clusters' loss, weighted."""
        network = self.network
        assert network.cluster_head is not None
        h = network.encoder(batch.X)
        u = network.cluster_head(h)
        H, cluster_bias = self.clusters(None)
        assert cluster_bias is not None
        targets = SparseRows.of(meta_targets(batch.targets.to_scipy(), self.clustering))
        cluster_loss = bce_over_all(u, H, targets, cluster_bias, self.reduction)

        groups = self.likeliest(u, H, cluster_bias, targets)
        rows = np.arange(len(groups))
        shortlists = cut_shortlists(rows, Candidates(groups, self.members), batch.targets)
        if self._labels_are_detached():
            h = h.detach()
        W, bias = self.classifiers(shortlists.labels)
        x = network.label_head(h)
        label_loss = bce_over_shortlists(x, W, shortlists, bias, self.reduction)
        return label_loss + self.cluster_weight * cluster_loss

    @torch.no_grad()
    def likeliest(self, u: Tensor, H: Tensor, bias: Tensor, targets: SparseRows) -> Ints:
        """The `beam` best clusters of each point, by sigma(<h_m, u>) and 1 more where the cluster is true."""
        scores = torch.sigmoid(u @ H.T + bias)
        rows = np.repeat(np.arange(len(targets)), np.diff(targets.indptr))
        is_true = targets.data >= 0.5
        true_rows = torch.from_numpy(rows[is_true]).to(scores.device)
        true_clusters = torch.from_numpy(targets.indices[is_true]).to(scores.device, torch.int64)
        scores[true_rows, true_clusters] += 1
        best = scores.topk(self.beam, sorted=False).indices
        return best.cpu().numpy().astype(np.int32)

    def _labels_are_detached(self) -> bool:
        if self.training:
            self.steps += 1
        return int(self.steps) <= self.detached_steps


def beam_of(c: InceptionConfig, L: int, K: int) -> int:
    return beam_width(K, L, c.clusters.shortlist_length, c.clusters.beam)


def free_labels(c: InceptionConfig, count: int, dim: int, density: float, what: str = "labels") -> FreeLabels:
    """One free vector per label or cluster; clusters always have a bias."""
    start = nn.init.xavier_uniform_(torch.empty(count, dim))
    has_bias = what == "clusters" or c.bias != "none"
    labels = FreeLabels(count, dim, start, has_bias)
    if labels.bias is not None and c.bias == "prior":
        nn.init.constant_(labels.bias.weight, log_odds(density))
    return labels


def _density(targets: sp.csr_array) -> float:
    """The share of true pairs."""
    return float(targets.nnz / max(1, math.prod(targets.shape)))


TRAINED = (
    "word_dim",
    "length",
    "encoder_dropout",
    "dropout",
    "rank",
    "clusters",
    "reduction",
    "bias",
    "training",
)
"""The settings that training reads."""


@stage(settings=TRAINED, data=("data", "unaugmented"), after=[words, word_vectors])
def network(work: StageWork[InceptionConfig]) -> Values:
    """Encoder, heads and one free vector per label."""
    c = work.config
    title_network = network_of(c, work[word_vectors]["E"])
    density = candidate_density(c, work.unaugmented)
    labels = free_labels(c, work.data.label_count, inception_size(c.word_dim), density)
    return trained(work, title_network, labels)


def trained(
    work: StageWork[Any],
    title_network: TitleNetwork,
    labels: nn.Module,
    graph: sp.csr_array | None = None,
) -> Values:
    """What prediction needs of a trained network. With a graph, clusters are of centroids smoothed along it."""
    c: InceptionConfig = work.config
    train_points = learnable(replace(work.data.train, X=work[words]["train"]))
    points = Points(train_points.X, targets_of(train_points), split=train_points, ordered=True)
    if c.rank == "all":
        plain_task = RankAll(title_network, labels, c.reduction)
        train(plain_task, points, c.training, work, "network")
        W, bias = all_classifiers(plain_task, work.data.label_count)
        return {"tensors": _tensors(title_network), "W": W, "bias": bias, "clusters": None}

    original = work.unaugmented
    K = cluster_count(original.label_count, c.clusters.count)
    centroids = sparse_centroids(original.train.Y, original.train.X, graph=graph)
    clustering = balanced_clusters(centroids, K, seed=work.seed)
    density = _density(meta_targets(learnable(original.train).Y, clustering))
    detached_steps = round(c.clusters.detached * c.training.step_count(points))
    task = RankTogether(title_network, labels, clustering, density, c, detached_steps)
    train(task, points, c.training, work, "network")
    W, bias = all_classifiers(task, work.data.label_count)
    H, cluster_bias = task.clusters(None)
    assert cluster_bias is not None
    clusters = {
        "H": as_array(H),
        "bias": as_array(cluster_bias),
        "cluster_of": clustering.cluster_of,
        "beam": task.beam,
    }
    return {"tensors": _tensors(title_network), "W": W, "bias": bias, "clusters": clusters}


def candidate_density(c: InceptionConfig, data: Dataset) -> float:
    """The share of true pairs among those that are ranked."""
    candidates = data.label_count
    if c.rank == "clusters":
        K = cluster_count(data.label_count, c.clusters.count)
        candidates = beam_of(c, data.label_count, K) * data.label_count // K
    return float(data.train.Y.nnz / max(1, len(data.train) * candidates))


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in module.state_dict().items()}


# InceptionXML-LF: label classifiers of text, neighbours' text and a free vector, mixed by ECLARE's attention.


@dataclass(frozen=True)
class InceptionLFConfig(InceptionConfig):
    """As InceptionXML+, with the label graph and the dropout of ECLARE's blocks and attention."""

    rank: Literal["all", "clusters"] = "clusters"
    training: Training = field(default_factory=lambda: scaled_training(0.005, 10, 300))
    graph: LabelGraph = field(default_factory=LabelGraph)
    label_dropout: float = 0.2
    """In the blocks of label text and in the attention."""


class Bridge(nn.Module):
    """B (block(r)): an embedding block of word vectors, then a map to the encoder's dimension. The map is ours.

    Its columns start orthogonal and equally long: inner products of label texts start as those of their word vectors.
    """

    def __init__(self, word_dim: int, dim: int, rate: float) -> None:
        super().__init__()
        self.block = ResidualBlock(word_dim, rate)
        self.B = nn.Parameter(BRIDGE_LENGTH * nn.init.orthogonal_(torch.empty(dim, word_dim)))

    def forward(self, r: Tensor) -> Tensor:
        return linear(self.block(r), self.B)


BRIDGE_LENGTH = 0.2
"""Vectors are shortened by it: label classifiers then start about as long as free ones would."""


@stage(
    settings=("graph.counts", "graph.walk_length", "graph.restart", "graph.head_threshold", "graph.top"),
    data="unaugmented",
    shared=True,
)
def label_graph(work: StageWork[InceptionLFConfig]) -> Values:
    """G^c: how often a random walk from one label visits another."""
    return {"graph": work.config.graph.count(work.unaugmented.train.Y, work.seed)}


@stage(
    settings=(*TRAINED, "label_dropout", "graph.normalisation"),
    data=("data", "unaugmented"),
    after=[vocabulary, words, word_vectors, label_graph],
)
def label_network(work: StageWork[InceptionLFConfig]) -> Values:
    """Encoder, heads and label classifiers. Points and labels share the word vectors."""
    c = work.config
    title_network = network_of(c, work[word_vectors]["E"])
    G = c.graph.normalise(work[label_graph]["graph"])
    Z = TextEncoder.from_dict(work[vocabulary]).encode(work.data.label_titles or ())
    labels = text_labels(c, title_network.encoder.E, Z, G, candidate_density(c, work.unaugmented))
    return trained(work, title_network, labels, G)


def text_labels(
    c: InceptionLFConfig,
    E: TokenEmbeddings,
    Z: sp.csr_array,
    G: sp.csr_array,
    density: float,
) -> ComponentClassifiers:
    """LTE, GALE and a refinement vector that starts where GALE's map puts the neighbours' text, as in ECLARE."""
    dim = inception_size(c.word_dim)
    lte = Bridge(c.word_dim, dim, c.label_dropout)
    gale = Bridge(c.word_dim, dim, c.label_dropout)
    near = weighted_sums(SparseRows.of(G), E.embed(SparseRows.of(Z)))
    refinement = LabelBank(len(near), dim, linear(near, gale.B))
    bias = None
    if c.bias != "none":
        start = log_odds(density) if c.bias == "prior" else 0.0
        bias = LabelBank(len(near), start=torch.full((len(near),), start))
    attention = ComponentAttention(3, dim, c.label_dropout)
    return ComponentClassifiers(NeighbourText(E, Z, G, (0, 1)), [lte, gale], refinement, bias, attention)


# Prediction.


@dataclass(frozen=True)
class TitleRanker:
    """A trained network and the search behind it, on whatever device both live."""

    network: TitleNetwork
    search: Any
    """Among all labels, or in the labels of the likeliest clusters."""

    @torch.no_grad()
    def predict(self, titles: sp.csr_array, k: int) -> TopK:
        """The k best labels of titles as words in their order."""
        starts = range(0, max(titles.shape[0], 1), POINTS_AT_ONCE)  # at least one part, also where there are no titles
        parts = [self._predict_part(SparseRows.of(titles[start : start + POINTS_AT_ONCE]), k) for start in starts]
        indices = np.concatenate([part.indices for part in parts])
        scores = np.concatenate([part.scores for part in parts])
        return TopK(indices, scores)

    def _predict_part(self, titles: SparseRows, k: int) -> TopK:
        h = self.network.encoder(titles)
        x = self.network.label_head(h)
        if self.network.cluster_head is None:
            best: TopK = self.search.shortlist(x, k)
            return TopK.of(best.indices, sigmoid(best.scores))
        return self.search.predict(self.network.cluster_head(h), x, k)  # type: ignore[no-any-return]

    def to(self, device: str) -> TitleRanker:
        """A copy on a device."""
        return TitleRanker(copy.deepcopy(self.network).to(device), self.search.to(device))


class InceptionPredictor(SavedByArguments, Predictor):
    """Scores sigma(label), or sigma(cluster) sigma(label) for the labels of the likeliest clusters.

    Parameters
    ----------
    words
        The vocabulary.
    sizes
        `word_dim`, `length` and `rank` of the config.
    tensors
        Of the network.
    W, bias
        One classifier per label.
    clusters
        H, bias, cluster_of and beam; None where all labels are ranked.
    """

    def __init__(
        self,
        words: Values,
        sizes: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        W: Floats,
        bias: Floats,
        clusters: Values | None,
    ) -> None:
        self.words = words
        self.sizes = sizes
        self.tensors = tensors
        self.W = W
        self.bias = bias
        self.clusters = clusters
        self.encoder = TextEncoder.from_dict(words)

        trained_network = network_of(InceptionConfig(**sizes), as_array(tensors["encoder.E.weight"]))
        trained_network.load_state_dict(tensors)
        self.ranker = TitleRanker(trained_network.eval(), self._search())

    def _search(self) -> ExactShortlister | BeamPredictor:
        if self.clusters is None:
            return ExactShortlister.of(self.W, self.bias)
        H = self.clusters["H"]
        clustering = Clustering.of(self.clusters["cluster_of"], len(H))
        beam = BeamShortlister.of(H, clustering, self.clusters["beam"], self.clusters["bias"])
        return BeamPredictor.of(beam, self.W, self.bias)

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        raise InputError("InceptionXML reads the words of a title in their order, which rows of X do not have")

    def predict_titles(self, titles: Sequence[str], k: int) -> TopK:
        return self.ranker.predict(self.sequences(titles), k)

    def sequences(self, titles: Sequence[str]) -> sp.csr_array:
        """The words of titles in their order, as far as they are known."""
        return self.encoder.sequences(titles, self.sizes["length"])

    def to(self, device: str) -> InceptionPredictor | InceptionOnDevice:
        if torch.device(device).type == "cpu":
            return self
        return InceptionOnDevice(self, device)


class InceptionOnDevice:
    """The same, with network and classifiers on a device."""

    def __init__(self, source: InceptionPredictor, device: str) -> None:
        self.source = source
        self.ranker = source.ranker.to(device)

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return self.source.predict(X, k)

    def predict_titles(self, titles: Sequence[str], k: int) -> TopK:
        return self.ranker.predict(self.source.sequences(titles), k)

    def save(self, folder: Path) -> None:
        self.source.save(folder)


def predictor_of(c: InceptionConfig, known: Values, parts: Values) -> InceptionPredictor:
    sizes = {"word_dim": c.word_dim, "length": c.length, "rank": c.rank}
    return InceptionPredictor(known, sizes, parts["tensors"], parts["W"], parts["bias"], parts["clusters"])


def memory_of(c: InceptionConfig, data: Dataset) -> int:
    """Bytes that training adds: tables with gradient and moments, and what a step keeps for its backward pass."""
    dim = inception_size(c.word_dim)
    tables = 4 * (data.feature_count * c.word_dim + data.label_count * dim)
    batch = min(c.training.batch_size, len(data.train))
    # Per point 32 x D numbers about 12 times over, and 10 label tables, as measured for the other methods.
    step = 4 * (12 * batch * 32 * c.word_dim + 10 * dim * (data.label_count + batch))
    return 4 * tables + step


def _official(clusters: int, dropout: float = 0.5) -> dict[str, Any]:
    """The authors' settings. They start at GloVe's vectors; without a file of these, ours are learnt on the text."""
    schedule = Schedule("onecycle", warmup=0.3, div=10, final_div=1e4)
    return {
        "dropout": dropout,
        "reduction": "mean",
        "bias": "zero",
        "clusters.count": clusters,
        "clusters.beam": 800,
        "clusters.detached": 10 / 45,
        "training": Training(0.005, 128, 45, schedule=schedule),
    }


OFFICIAL: Mapping[str, dict[str, Any]] = {
    "LF-AmazonTitles-131K": _official(2**14),
    "LF-WikiSeeAlsoTitles-320K": _official(2**15),
    "LF-WikiTitles-500K": _official(2**16, dropout=0.4),
    "LF-AmazonTitles-1.3M": _official(2**17),
}


@register_method("inceptionxml")
class InceptionXML(Method[InceptionConfig]):
    """InceptionXML: convolutions over the words of a title, one free vector per label"""

    config_type = InceptionConfig
    predictor_type = InceptionPredictor
    stages = (vocabulary, words, word_vectors, network)
    can_ignore_pairs = True
    can_mix_points = True
    needs_titles = True
    citation = "Kharbanda, Banerjee, Gupta, Palrecha, Babbar: InceptionXML, SIGIR 2023"
    search_space: ClassVar[Mapping[str, AnyRange]] = {
        "encoder_dropout": Range(0.0, 0.5),
        "dropout": Range(0.2, 0.7),
        "training.lr": LogRange(0.002, 0.05),
        "training.epochs": IntRange(5, 30),
    }
    ablations: ClassVar[Mapping[str, Ablation]] = {
        "plus": Ablation("InceptionXML+", {"rank": "clusters"}),
    }
    presets: ClassVar[Mapping[str, Patch]] = OFFICIAL

    def fit(self, data: Dataset, run: Run) -> InceptionPredictor:
        return predictor_of(self.config, run.stage(vocabulary, data), run.stage(network, data))

    def estimate_memory(self, data: Dataset) -> int:
        return memory_of(self.config, data)


def _official_lf(preset: Mapping[str, Any]) -> dict[str, Any]:
    """There is no official InceptionXML-LF: InceptionXML+ as its authors train it, without biases, as ECLARE is."""
    return {**preset, "bias": "none"}


@register_method("inceptionxml-lf")
class InceptionXMLLF(Method[InceptionLFConfig]):
    """InceptionXML-LF: InceptionXML+ with ECLARE's label classifiers (text, graph, free vectors)"""

    config_type = InceptionLFConfig
    predictor_type = InceptionPredictor
    stages = (vocabulary, words, word_vectors, label_graph, label_network)
    can_ignore_pairs = True
    can_mix_points = True
    needs_titles = True
    citation = "Kharbanda, Gupta, Schultheis, Banerjee, Hsieh, Babbar: Gandalf, KDD 2024"
    presets: ClassVar[Mapping[str, Patch]] = {name: _official_lf(preset) for name, preset in OFFICIAL.items()}

    def check_data(self, data: Dataset) -> None:
        if data.label_titles is None:
            raise InputError(f"method 'inceptionxml-lf' needs label titles, which dataset {data.name!r} does not have")

    def fit(self, data: Dataset, run: Run) -> InceptionPredictor:
        return predictor_of(self.config, run.stage(vocabulary, data), run.stage(label_network, data))

    def estimate_memory(self, data: Dataset) -> int:
        return memory_of(self.config, data)
