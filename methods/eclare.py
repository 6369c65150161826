"""ECLARE (Mittal et al., WWW 2021): a graph of labels in clusters, classifiers, negatives and predictions.

Module I learns token embeddings E on clusters of labels, Module II a shortlister on new clusters, Module III starts the
label classifiers at their neighbourhood in the graph, Module IV trains them on shortlists; GAME spreads predictions
along the graph. docs/methods/eclare.md says where this follows the paper, where the authors' code, and what small data
needs beyond both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from xcbench.costs import StageCost
from xcbench.data import Dataset, Split, TopK
from xcbench.data.matrices import unit_vectors
from xcbench.evaluation.bins import mean_by_frequency
from xcbench.kernels.arrays import Floats
from xcbench.kernels.csr import SparseRows
from xcbench.labels import (
    Clustering,
    balanced_clusters,
    cluster_count,
    cluster_graph,
    dense_centroids,
    meta_targets,
    meta_text,
    personalised_pagerank,
    random_clusters,
    sparse_centroids,
)
from xcbench.labels.information import information_lost
from xcbench.labels.label_graph import LabelGraph
from xcbench.nn import (
    ComponentAttention,
    ComponentClassifiers,
    DocumentEncoder,
    GraphConvolution,
    LabelBank,
    NeighbourText,
    ResidualBlock,
    Scale,
    TokenEmbeddings,
    weighted_sums,
)
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
from xcbench.progress import titled
from xcbench.shortlist import BeamShortlister, Game, GameConfig, beam_width
from xcbench.shortlist.predictors import BeamPredictor, CascadePredictor, FixedEncoder, as_array, folded
from xcbench.train import (
    Candidates,
    CascadeMemory,
    LabelSide,
    ModuleConfig,
    Points,
    RankAll,
    RankShortlist,
    Training,
    all_classifiers,
    cascade_memory,
    cost_of_ranking_all,
    cost_of_ranking_shortlists,
    document_side,
    fit_bias,
    learnable,
    official_training,
    scaled_training,
    targets_of,
    train,
)


@dataclass(frozen=True)
class ClassifierConfig:
    """Section 3.2: w_l = sum_j alpha_lj z^j_l, components mixed by attention."""

    text: bool = True
    """LTE, z1 = E_L(E z_l)."""
    hops: int = 1
    """GALE, z2 = E_G(G E z)_l, and so on for higher powers of G, each with a block of its own."""
    layer: Literal["gale", "gcn", "lightgcn"] = "gale"
    refinement: bool = True
    """z3, one free vector per label, or per cluster in Module II."""
    start: Literal["graph", "text"] = "graph"
    """Where z3 starts: at (G E z)_l, or at E z_l."""
    mixture: Literal["attention", "sum"] = "attention"
    fitted_bias: bool = True
    """A free bias per label; all start where the untrained loss is least. The paper has no biases."""


def _training(lr: float, epochs: int, min_steps: int) -> Training:
    """Blocks and attention, which all labels share, learn slowest: on small data they overfit first."""
    return replace(scaled_training(lr, epochs, min_steps), label_lr_factor=0.3, block_lr_factor=0.1)


@dataclass(frozen=True)
class EclareConfig:
    """Where a default is not the paper's, docs/methods/eclare.md says how it was chosen; presets have the paper's."""

    dim: int = 300
    clusters: int | None = None
    """K, cut to the number of labels; by default the power of two nearest to three labels per cluster."""
    cluster_factor: float = 1.0
    """Multiplies K."""
    clusters_by: Literal["graph", "points", "chance"] = "graph"
    """Clusters of centroids smoothed along the graph (G c), of plain centroids (c), or random ones."""
    beam: int | None = None
    """B, in clusters; by default as many as hold `shortlist_length` labels."""
    shortlist_length: int = 150
    negatives: Literal["shortlist", "pagerank"] = "shortlist"
    """Module IV's candidates: from Module II, or by PageRank from a point's true labels."""
    expand: bool = True
    """Whether the neighbours of a training point's candidates are candidates too."""
    game: GameConfig = field(default_factory=lambda: GameConfig(power=0.25))
    """Mode of GAME for clusters and labels; power for labels only. With a learning E, probabilities fall steeply."""
    freeze: bool = False
    """Keep E fixed after Module I. The paper does; small data needs an E that keeps learning."""
    reduction: Literal["mean", "batch"] = "batch"
    embedding_scale: float = 2.0
    """Length of E's random start: a multiple of Kaiming's, which the paper has."""
    graph: LabelGraph = field(default_factory=LabelGraph)
    """Section 3.1. Head labels are also clustered among themselves; `farthest` counts from Module II on."""
    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)
    surrogate: ModuleConfig = field(default_factory=lambda: ModuleConfig(_training(0.01, 4, 300)))
    shortlister: ModuleConfig = field(default_factory=lambda: ModuleConfig(_training(0.01, 4, 300)))
    extreme: ModuleConfig = field(default_factory=lambda: ModuleConfig(_training(0.02, 6, 600)))

    def __post_init__(self) -> None:
        sizes = (self.dim, self.clusters, self.beam, self.shortlist_length)
        if any(size is not None and size < 1 for size in sizes):
            raise ValueError("dim, clusters, beam and shortlist_length are at least 1")
        if not self.cluster_factor > 0:
            raise ValueError(f"cluster_factor is greater than 0, got {self.cluster_factor}")
        if self.classifier.hops < 1:
            raise ValueError(f"classifier.hops is at least 1, got {self.classifier.hops}")


# Section 3.1: the label graph.

COUNTS = (
    "graph.counts",
    "graph.walk_length",
    "graph.restart",
    "graph.head_threshold",
    "graph.top",
)
"""The settings of G^c before there are label vectors."""


@stage(settings=COUNTS, data="unaugmented", shared=True)
def graph(work: StageWork[EclareConfig]) -> Values:
    """G^c: how often a random walk from one label visits another."""
    return {"graph": work.config.graph.count(work.unaugmented.train.Y, work.seed)}


# Section 3.2: label classifiers.


def label_classifiers(
    c: EclareConfig,
    E: TokenEmbeddings,
    Z: sp.csr_array | None,
    G: sp.csr_array,
    dropout: float,
    in_surrogate: bool = False,
) -> ComponentClassifiers:
    """Classifiers of the labels (or clusters) with text Z and graph G. Module I has no refinement vectors."""
    count = G.shape[0]
    bias = LabelBank(count) if c.classifier.fitted_bias else None
    if Z is None:
        free = LabelBank(count, c.dim, _random_start(count, c.dim))
        return ComponentClassifiers(None, [], free, bias, _attention(c, 1, dropout))

    first_order = 0 if c.classifier.text else 1
    orders = range(first_order, c.classifier.hops + 1)
    frozen = not in_surrogate and c.freeze
    text = NeighbourText(E, Z, G, orders, frozen)
    z3 = None
    components = len(orders)
    if not in_surrogate and c.classifier.refinement:
        z3 = LabelBank(count, c.dim, _refinement_start(c, E, Z, G))
        components += 1

    attention = _attention(c, components, dropout)
    blocks = [_embedding_block(c, order, dropout) for order in orders]
    return ComponentClassifiers(text, blocks, z3, bias, attention)


def _attention(c: EclareConfig, components: int, dropout: float) -> ComponentAttention | None:
    """What mixes the components; None where they are summed up."""
    if c.classifier.mixture == "sum":
        return None
    return ComponentAttention(components, c.dim, dropout)


def _embedding_block(c: EclareConfig, order: int, dropout: float) -> nn.Module:
    """E_L (order 0) or E_G (order 1 and higher), or what replaces it."""
    if c.classifier.layer == "lightgcn":
        return Scale(c.dim)
    if c.classifier.layer == "gcn" and order > 0:
        return GraphConvolution(c.dim)
    return ResidualBlock(c.dim, dropout)


def _refinement_start(c: EclareConfig, E: TokenEmbeddings, Z: sp.csr_array, G: sp.csr_array) -> Tensor:
    """Module III: refinement vectors start at the text of the label's neighbours."""
    Ez = E.embed(SparseRows.of(Z))
    if c.classifier.start == "text":
        return Ez
    return weighted_sums(SparseRows.of(G), Ez)


def _random_start(count: int, dim: int) -> Tensor:
    bound = dim**-0.5
    return torch.empty(count, dim).uniform_(-bound, bound)


# Section 3.3: clusters of labels (meta-labels), their classifiers, and the beam over them.


def label_clusters(c: EclareConfig, centroids: sp.csr_array | Floats, data: Dataset, seed: int) -> Clustering:
    """Balanced 2-means; head labels are clustered among themselves."""
    K = cluster_count(data.label_count, c.clusters, c.cluster_factor)
    if c.clusters_by == "chance":
        return random_clusters(data.label_count, K, seed)
    heads = data.label_frequency > c.graph.head_threshold
    return balanced_clusters(centroids, K, heads, seed)


def _smoothing_graph(c: EclareConfig, counts: sp.csr_array) -> sp.csr_array | None:
    """The graph along which centroids are smoothed, if they are."""
    if c.clusters_by != "graph":
        return None
    return c.graph.normalise(counts)


def _cluster_classifiers(
    c: EclareConfig,
    E: TokenEmbeddings,
    Z: sp.csr_array | None,
    clustering: Clustering,
    counts: sp.csr_array,
    dropout: float,
    in_surrogate: bool = False,
) -> ComponentClassifiers:
    """Clusters as labels, with the text of all their members and the edges between these."""
    G = c.graph.normalise(cluster_graph(counts, clustering, c.graph.top))
    U = None if Z is None else meta_text(Z, clustering)
    return label_classifiers(c, E, U, G, dropout, in_surrogate)


def cluster_beam(c: EclareConfig, shortlister: Values) -> BeamShortlister:
    """Module II's clusters, reranked by GAME."""
    H = shortlister["H"]
    K = len(H)
    clustering = Clustering.of(shortlister["cluster_of"], K)
    beam = beam_width(K, len(clustering.cluster_of), c.shortlist_length, c.beam)
    G = c.graph.normalise(cluster_graph(shortlister["graph"], clustering, c.graph.top))
    return BeamShortlister.of(H, clustering, beam, shortlister["bias"], Game(G, beam, c.game.mode))


def training_candidates(
    c: EclareConfig,
    E: TokenEmbeddings,
    points: Split,
    shortlister: Values,
    G: sp.csr_array,
    device: str = "cpu",
) -> Candidates:
    """The labels against which each training point is ranked in Module IV."""
    label_count = G.shape[0]
    if c.negatives == "pagerank":
        near = personalised_pagerank(G, points.Y, top=min(c.shortlist_length, label_count))
        return Candidates.of_labels(TopK.from_csr(near).indices, label_count)

    beam = cluster_beam(c, shortlister)
    encoder = FixedEncoder(**shortlister["encoder"], E=as_array(E.weight)).to(device)
    members = beam.clustering.to_csr().T.tocsr()
    if c.expand:
        members = (members @ G).tocsr()
    x = encoder(points.X)
    with titled("shortlists"):
        clusters = beam.to(device).clusters(x)
    return Candidates(clusters.indices, SparseRows.of(members))


# Section 3.5: training in four modules.

CLUSTERS = ("clusters", "cluster_factor", "clusters_by")
COMPONENTS = ("classifier.text", "classifier.hops", "classifier.layer", "classifier.mixture", "classifier.fitted_bias")
"""All settings of the classifiers but those of the refinement vectors, which Module I does not have."""


@stage(
    settings=(
        "dim",
        "embedding_scale",
        "reduction",
        "graph.normalisation",
        "graph.head_threshold",
        "graph.top",
        "surrogate",
        *CLUSTERS,
        *COMPONENTS,
    ),
    data=("data", "unaugmented"),
    after=[graph],
    shared=True,
)
def surrogate(work: StageWork[EclareConfig]) -> Values:
    """Module I: E, learnt on the task of finding clusters of labels by their text and their neighbours' text."""
    c = work.config
    original = work.unaugmented
    counts = work[graph]["graph"]
    centroids = sparse_centroids(original.train.Y, original.train.X, graph=_smoothing_graph(c, counts))
    clustering = label_clusters(c, centroids, original, work.seed)

    train_points = learnable(work.data.train)
    targets = meta_targets(targets_of(train_points), clustering)
    points = Points(train_points.X, targets, split=train_points)
    dropout = c.surrogate.dropout
    E = TokenEmbeddings(work.data.feature_count, c.dim, scale=c.embedding_scale)
    labels = _cluster_classifiers(c, E, work.data.Z, clustering, counts, dropout, in_surrogate=True)
    documents = DocumentEncoder(ResidualBlock(c.dim, dropout), E)
    task = RankAll(documents, labels, c.reduction)
    train(task, points, c.surrogate.training, work, "surrogate", fit_bias)
    return {"E": as_array(E.weight)}


@stage(
    settings=("dim", "freeze", "reduction", "graph", "classifier", "shortlister", *CLUSTERS),
    data=("data", "unaugmented"),
    after=[surrogate],
)
def shortlister(work: StageWork[EclareConfig]) -> Values:
    """Module II: clusters of labels that are near for E, and classifiers that find them."""
    c = work.config
    original = work.unaugmented
    Z = work.data.Z
    train_points = learnable(work.data.train)
    E = TokenEmbeddings.of(work[surrogate]["E"])

    Ez = None if Z is None else E.embed(SparseRows.of(Z)).numpy()
    counts = c.graph.count(original.train.Y, work.seed, Ez)
    document_vectors = unit_vectors(E.embed(SparseRows.of(original.train.X)).numpy())
    centroids = dense_centroids(original.train.Y, document_vectors, _smoothing_graph(c, counts))
    clustering = label_clusters(c, centroids, original, work.seed)

    dropout = c.shortlister.dropout
    documents, X = document_side(ResidualBlock(c.dim, dropout), E, train_points.X, c.freeze)
    targets = meta_targets(targets_of(train_points), clustering)
    points = Points(X, targets, split=train_points)
    labels = _cluster_classifiers(c, E, Z, clustering, counts, dropout)
    task = RankAll(documents, labels, c.reduction)
    train(task, points, c.shortlister.training, work, "shortlister", fit_bias)

    H, bias = all_classifiers(task, clustering.K)
    return {
        "H": H,
        "bias": bias,
        "encoder": folded(documents.block),
        "E": None if c.freeze else as_array(E.weight),
        "graph": counts,
        "cluster_of": clustering.cluster_of,
        "LMI": information_lost(original.train.Y, clustering),
    }


@stage(
    settings=(
        "dim",
        "freeze",
        "reduction",
        "beam",
        "shortlist_length",
        "game.mode",
        "negatives",
        "expand",
        "graph.normalisation",
        "graph.top",
        "classifier",
        "extreme",
    ),
    after=[surrogate, shortlister],
)
def extreme(work: StageWork[EclareConfig]) -> Values:
    """Modules III and IV: classifiers that start at their neighbours' text, trained on shortlists."""
    c = work.config
    data = work.data
    found = work[shortlister]
    train_points = learnable(data.train)
    G = c.graph.normalise(found["graph"])
    E = TokenEmbeddings.of(work[surrogate]["E"] if c.freeze else found["E"])

    dropout = c.extreme.dropout
    documents, X = document_side(ResidualBlock(c.dim, dropout), E, train_points.X, c.freeze)
    candidates = training_candidates(c, E, train_points, found, G, work.device)
    points = Points(X, targets_of(train_points), candidates, train_points)
    labels = label_classifiers(c, E, data.Z, G, dropout)
    task = RankShortlist(documents, labels, c.reduction)
    train(task, points, c.extreme.training, work, "extreme", fit_bias)

    W, bias = all_classifiers(task, data.label_count)
    return {
        "W": W,
        "bias": bias,
        "encoder": folded(documents.block),
        "E": None if c.freeze else as_array(E.weight),
        "strengths": labels.strengths(data.label_count),
    }


# The method: its variations, the paper's settings, and how its parts predict (section 3.4).


def _paper(dim: int, clusters: int, beam: int, first_lr: float, lr: float) -> Patch:
    """The settings of the official configs."""
    patch: dict[str, Any] = {
        "dim": dim,
        "clusters": clusters,
        "beam": beam,
        "freeze": True,
        "reduction": "mean",
        "classifier.fitted_bias": False,
        "embedding_scale": 1.0,
        "game.power": 1.0,
    }
    for module, rate, epochs in (("surrogate", first_lr, 20), ("shortlister", lr, 10), ("extreme", lr, 10)):
        patch[f"{module}.dropout"] = 0.2
        patch[f"{module}.training"] = official_training(rate, epochs)
    return patch


@register_method("eclare")
class Eclare(Method[EclareConfig]):
    """ECLARE: a label graph in clusters, classifiers, negatives and predictions"""

    config_type = EclareConfig
    predictor_type = CascadePredictor
    stages = (graph, surrogate, shortlister, extreme)
    can_ignore_pairs = True
    can_mix_points = True
    citation = "Mittal, Sachdeva, Agrawal, Agarwal, Kar, Varma: ECLARE, WWW 2021"
    search_space: ClassVar[Mapping[str, AnyRange]] = {
        "embedding_scale": LogRange(1.0, 8.0),
        "surrogate.training.lr": LogRange(0.002, 0.05),
        "shortlister.training.lr": LogRange(0.002, 0.05),
        "extreme.training.lr": LogRange(0.002, 0.1),
        "extreme.training.epochs": IntRange(3, 16),
        "extreme.dropout": Range(0.2, 0.7),
        "game.power": Range(0.05, 1.0),
    }
    ablations: ClassVar[Mapping[str, Ablation]] = {
        "gcn": Ablation("ECLARE-GCN", {"classifier.layer": "gcn"}),
        "lightgcn": Ablation("ECLARE-LightGCN", {"classifier.layer": "lightgcn"}),
        "cooc": Ablation("ECLARE-Cooc", {"graph.counts": "cooccurrence"}),
        "pn": Ablation("ECLARE-PN", {"graph.normalisation": "perron"}),
        "ppr": Ablation("ECLARE-PPR", {"negatives": "pagerank"}),
        "nograph": Ablation(
            "ECLARE-NoGraph",
            {"clusters_by": "points", "classifier.start": "text", "expand": False, "game.mode": "off"},
        ),
        "nolte": Ablation("ECLARE-NoLTE", {"classifier.text": False}),
        "norefine": Ablation("ECLARE-NoRefine", {"classifier.refinement": False}),
        "sum": Ablation("ECLARE-SUM", {"classifier.mixture": "sum"}),
        "k2": Ablation("ECLARE-k=2", {"classifier.hops": 2}),
        "8k": Ablation("ECLARE-8K", {"cluster_factor": 0.25}),
        "4x": Ablation("ECLARE with four times the clusters", {"cluster_factor": 4.0}),
        "nogame": Ablation("ECLARE without GAME", {"game.mode": "off"}),
        "papergame": Ablation("ECLARE with the paper's GAME", {"game.mode": "paper"}),
        "plainclusters": Ablation("ECLARE, clusters without the graph", {"clusters_by": "points"}),
        "randomclusters": Ablation("ECLARE, clusters by chance", {"clusters_by": "chance"}),
    }
    presets: ClassVar[Mapping[str, Patch]] = {
        "LF-AmazonTitles-131K": _paper(300, 2**15, 50, 0.005, 0.004),
        "LF-WikiSeeAlsoTitles-320K": _paper(300, 2**17, 30, 0.01, 0.008),
        "LF-WikiTitles-500K": _paper(512, 2**17, 20, 0.01, 0.005),
        "LF-AmazonTitles-1.3M": _paper(512, 2**17, 50, 0.005, 0.004),
        # Ours: on its slices not significantly different from the defaults, which take half as long again.
        "lf-debian-4k": {
            "surrogate.training.min_steps": 200,
            "shortlister.training.min_steps": 200,
            "extreme.training.min_steps": 400,
        },
    }

    def fit(self, data: Dataset, run: Run) -> CascadePredictor:
        c = self.config
        if data.Z is None:
            run.log(f"dataset {data.name!r} has no label text: every classifier is a free vector")

        module1 = run.stage(surrogate, data)
        module2 = run.stage(shortlister, data)
        module4 = run.stage(extreme, data)
        run.report("LMI", module2["LMI"])
        run.report("component_weight", mean_by_frequency(module4["strengths"], run.unaugmented.label_frequency))

        # Section 3.4: a beam over clusters, the labels in them, and GAME (xcbench/shortlist/game.py) over both.
        beam_in_labels = c.beam or c.shortlist_length
        G = c.graph.normalise(module2["graph"])
        game = Game(G, beam_in_labels, c.game.mode, c.game.power)
        predictor = BeamPredictor.of(cluster_beam(c, module2), module4["W"], module4["bias"], game)
        first = FixedEncoder(**module2["encoder"], E=(module1 if c.freeze else module2)["E"])
        second = FixedEncoder(**module4["encoder"], E=(module1 if c.freeze else module4)["E"])
        return CascadePredictor(first, second, predictor)

    def estimate_memory(self, data: Dataset) -> int:
        return self._memory(data).total

    def estimate_device_memory(self, data: Dataset) -> int:
        return self._memory(data).on_device

    def estimate_costs(self, data: Dataset) -> Mapping[str, StageCost]:
        c = self.config
        K = cluster_count(data.label_count, c.clusters, c.cluster_factor)
        E = data.feature_count * c.dim
        learns = 0 if c.freeze else E
        # The maps of text and neighbours, and what attention multiplies: two and a half D x D products per label.
        maps = 0.0 if data.Z is None else 2.5
        side = LabelSide(maps, free=data.Z is None or c.classifier.refinement)
        without_vectors = LabelSide(maps, free=data.Z is None)
        counts = StageCost(output=12 * data.label_count * (c.graph.top + 1))
        first = cost_of_ranking_all(data, c.surrogate.training, c.dim, K, without_vectors, E, keeps_classifiers=False)
        second = cost_of_ranking_all(data, c.shortlister.training, c.dim, K, side, learns)
        # Neighbours of candidates, and the clusters that GAME adds, are mostly among the candidates already.
        candidates = beam_width(K, data.label_count, c.shortlist_length, c.beam) * data.label_count // K
        return {
            "graph": counts,
            "surrogate": first,
            "shortlister": replace(second, output=second.output + counts.output),
            "extreme": cost_of_ranking_shortlists(data, c.extreme.training, c.dim, candidates, side, learns),
        }

    def _candidates(self, data: Dataset) -> tuple[int, int]:
        """How many clusters and how many labels a training point has at most in its shortlist."""
        c = self.config
        L = data.label_count
        K = cluster_count(L, c.clusters, c.cluster_factor)
        beam = beam_width(K, L, c.shortlist_length, c.beam)
        if c.game.mode != "off":
            beam *= 2
        candidates = beam * L // K
        if c.expand:
            candidates *= c.graph.top
        return beam, candidates

    def _memory(self, data: Dataset) -> CascadeMemory:
        c = self.config
        K = cluster_count(data.label_count, c.clusters, c.cluster_factor)
        beam, candidates = self._candidates(data)
        return cascade_memory(data, c.dim, K, candidates, beam, c.extreme.training.batch_size, c.freeze)
