"""ECLARE (Mittal et al., WWW 2021): a graph of labels in clusters, classifiers, negatives and predictions.

Module I learns token embeddings E on clusters of labels, Module II a shortlister on new clusters, Module III starts the
label classifiers at their neighbourhood in the graph, Module IV trains them on shortlists; GAME spreads what is
predicted along the graph. docs/eclare.md says where this follows the paper, where the authors' code, and what small
data needs beyond both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from xcbench.data import Dataset, Split, TopK
from xcbench.data.matrices import unit_vectors
from xcbench.evaluation.bins import mean_by_frequency
from xcbench.kernels.sparse_rows import SparseRows
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
    DocumentEncoder,
    GraphConvolution,
    LabelBank,
    NeighbourText,
    ResidualBlock,
    Scale,
    TokenEmbeddings,
    weighted_sums,
)
from xcbench.plugins import Ablation, Method, Run, Stage, StageWork, register_method
from xcbench.plugins.contract import Patch
from xcbench.shortlist import BeamShortlister, Game, GameMode, beam_width
from xcbench.shortlist.predictors import BeamPredictor, CascadePredictor, FixedEncoder, as_array, folded
from xcbench.train import (
    Candidates,
    ModuleConfig,
    Points,
    RankAll,
    RankShortlist,
    Training,
    all_classifiers,
    cascade_memory,
    document_side,
    fit_bias,
    learnable,
    official_training,
    scaled_training,
    targets_of,
    train,
)

Floats = npt.NDArray[np.float32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassifierConfig:
    """Section 3.2: w_l = sum_j alpha_lj z^j_l, components mixed by attention."""

    text: bool = True
    """LTE, z1 = E_L(E z_l)."""
    hops: int = 1
    """GALE, z2 = E_G(G E z)_l, and so on for higher powers of G, each with a block of its own."""
    layer: Literal["gale", "gcn", "lightgcn"] = "gale"
    refinement: bool = True
    """z3, one free vector a label, or a cluster in Module II."""
    start: Literal["graph", "text"] = "graph"
    """Where z3 starts: at (G E z)_l, or at E z_l."""
    mixture: Literal["attention", "sum"] = "attention"
    fitted_bias: bool = True
    """A free bias a label; all start where the untrained loss is least. The paper has no biases."""


def _training(lr: float, epochs: int, min_steps: int) -> Training:
    """Blocks and attention, which all labels share, learn slowest: small data is learnt by heart there first."""
    return replace(scaled_training(lr, epochs, min_steps), label_lr_factor=0.3, block_lr_factor=0.1)


@dataclass(frozen=True)
class EclareConfig:
    """Where a default is not the paper's, docs/eclare.md says how it was chosen; the paper's settings are presets."""

    dim: int = 300
    clusters: int | None = None
    """K, cut to the number of labels; by default the power of two nearest to three labels a cluster."""
    cluster_factor: float = 1.0
    """Multiplies K."""
    clusters_by: Literal["graph", "points", "chance"] = "graph"
    """Centroids G c, centroids c, or nothing at all."""
    beam: int | None = None
    """B, in clusters; by default as many as hold `shortlist_length` labels."""
    shortlist_length: int = 150
    negatives: Literal["shortlist", "pagerank"] = "shortlist"
    """Module IV's candidates: from Module II, or by PageRank from a point's true labels."""
    expand: bool = True
    """Whether the neighbours of a training point's candidates are candidates too."""
    game: GameMode = "code"
    """GAME's form, for clusters and for labels: the authors' code's, the paper's, or none."""
    game_power: float = 0.25
    """GAME spreads labels' probabilities raised to this power; the paper has 1. Those of a free E fall steeply."""
    freeze: bool = False
    """Keep E fixed after Module I. The paper does; small data needs an E that learns on."""
    reduction: Literal["mean", "batch"] = "batch"
    embedding_scale: float = 2.0
    """How long E's random start is: a multiple of Kaiming's, which the paper has."""
    graph: LabelGraph = field(default_factory=LabelGraph)
    """Section 3.1. Head labels are also clustered among themselves; `farthest` counts from Module II on."""
    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)
    surrogate: ModuleConfig = field(default_factory=lambda: ModuleConfig(_training(0.01, 4, 300)))
    shortlister: ModuleConfig = field(default_factory=lambda: ModuleConfig(_training(0.01, 4, 300)))
    extreme: ModuleConfig = field(default_factory=lambda: ModuleConfig(_training(0.02, 6, 600)))

    def __post_init__(self) -> None:
        if any(size is not None and size < 1 for size in (self.dim, self.clusters, self.beam, self.shortlist_length)):
            raise ValueError("dim, clusters, beam and shortlist_length are at least 1")
        if not self.cluster_factor > 0:
            raise ValueError(f"cluster_factor is greater than 0, got {self.cluster_factor}")
        if not 0 < self.game_power <= 1:
            raise ValueError(f"game_power is greater than 0 and at most 1, got {self.game_power}")
        if self.classifier.hops < 1:
            raise ValueError(f"classifier.hops is at least 1, got {self.classifier.hops}")


def _paper(dim: int, clusters: int, beam: int, first_lr: float, lr: float) -> Patch:
    """The settings of the official configs."""
    own: dict[str, Any] = {"dim": dim, "clusters": clusters, "beam": beam, "freeze": True, "reduction": "mean"}
    own |= {"classifier.fitted_bias": False, "embedding_scale": 1.0, "game_power": 1.0}
    for name, rate, epochs in (("surrogate", first_lr, 20), ("shortlister", lr, 10), ("extreme", lr, 10)):
        own |= {f"{name}.dropout": 0.2, f"{name}.training": official_training(rate, epochs)}
    return own


class LabelClassifiers(nn.Module):
    """w_l = sum_j alpha_lj z^j_l with z1 = E_L(E z_l), z2 = E_G((G E z)_l) and a free z3_l."""

    def __init__(
        self, text: NeighbourText | None, blocks: Sequence[nn.Module], z3: LabelBank | None, bias: LabelBank | None,
        attention: ComponentAttention | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.text, self.blocks, self.z3, self.bias, self.attention = text, nn.ModuleList(blocks), z3, bias, attention

    def components(self, labels: Longs | None) -> list[Tensor]:
        r = [] if self.text is None else self.text(labels)
        z = [block(r_k) for block, r_k in zip(self.blocks, r, strict=True)]
        return z if self.z3 is None else [*z, self.z3(labels)]

    def forward(self, labels: Longs | None) -> tuple[Tensor, Tensor | None]:
        z = self.components(labels)
        w = sum(z[1:], z[0]) if self.attention is None else self.attention(*z)
        return w, None if self.bias is None else self.bias(labels)

    @torch.no_grad()
    def strengths(self) -> dict[str, Floats]:
        """How much of each classifier its components make up: their weights times their lengths (Figure 9)."""
        orders = [] if self.text is None else self.text.orders
        names = ["LTE" if k == 0 else "GALE" if k == 1 else f"GALE, {k} hops" for k in orders]
        z = self.eval().components(None)
        lengths = torch.stack([torch.linalg.vector_norm(part, dim=1) for part in z], 1)
        parts = lengths if self.attention is None else lengths * self.attention.weights(*z)
        return dict(zip([*names, "refinement"], parts.T.cpu().numpy(), strict=False))


@register_method("eclare")
class Eclare(Method[EclareConfig]):
    """ECLARE: a label graph in clusters, classifiers, negatives and predictions"""

    config_type = EclareConfig
    predictor_type = CascadePredictor
    can_ignore_pairs = True
    citation = "Mittal, Sachdeva, Agrawal, Agarwal, Kar, Varma: ECLARE, WWW 2021"
    ablations: ClassVar[Mapping[str, Ablation]] = {
        "gcn": Ablation("ECLARE-GCN", {"classifier.layer": "gcn"}),
        "lightgcn": Ablation("ECLARE-LightGCN", {"classifier.layer": "lightgcn"}),
        "cooc": Ablation("ECLARE-Cooc", {"graph.counts": "cooccurrence"}),
        "pn": Ablation("ECLARE-PN", {"graph.normalisation": "perron"}),
        "ppr": Ablation("ECLARE-PPR", {"negatives": "pagerank"}),
        "nograph": Ablation(
            "ECLARE-NoGraph", {"clusters_by": "points", "classifier.start": "text", "expand": False, "game": "off"}
        ),
        "nolte": Ablation("ECLARE-NoLTE", {"classifier.text": False}),
        "norefine": Ablation("ECLARE-NoRefine", {"classifier.refinement": False}),
        "sum": Ablation("ECLARE-SUM", {"classifier.mixture": "sum"}),
        "k2": Ablation("ECLARE-k=2", {"classifier.hops": 2}),
        "8k": Ablation("ECLARE-8K", {"cluster_factor": 0.25}),
        "4x": Ablation("ECLARE with four times the clusters", {"cluster_factor": 4.0}),
        "nogame": Ablation("ECLARE without GAME", {"game": "off"}),
        "papergame": Ablation("ECLARE with the paper's GAME", {"game": "paper"}),
        "plainclusters": Ablation("ECLARE, clusters without the graph", {"clusters_by": "points"}),
        "randomclusters": Ablation("ECLARE, clusters by chance", {"clusters_by": "chance"}),
    }
    presets: ClassVar[Mapping[str, Patch]] = {
        "LF-AmazonTitles-131K": _paper(300, 2**15, 50, 0.005, 0.004),
        "LF-WikiSeeAlsoTitles-320K": _paper(300, 2**17, 30, 0.01, 0.008),
        "LF-WikiTitles-500K": _paper(512, 2**17, 20, 0.01, 0.005),
        "LF-AmazonTitles-1.3M": _paper(512, 2**17, 50, 0.005, 0.004),
        # Ours: on its slices these lengths cannot be told from the defaults, which take half as long again.
        "lf-debian-4k": {
            "surrogate.training.min_steps": 200,
            "shortlister.training.min_steps": 200,
            "extreme.training.min_steps": 400,
        },
    }

    def fit(self, data: Dataset, run: Run) -> CascadePredictor:
        stages = self.stages(data, run)
        surrogate, shortlister, extreme = (stages[name] for name in ("surrogate", "shortlister", "extreme"))
        run.report("LMI", shortlister["LMI"])
        run.report("component_weight", mean_by_frequency(extreme["strengths"], data.label_frequency))
        found = self._beam(shortlister)
        kept = self.config.beam or self.config.shortlist_length  # in labels now
        game = Game(self.config.graph.normalise(shortlister["graph"]), kept, self.config.game, self.config.game_power)
        frozen = self.config.freeze
        first, second = (
            FixedEncoder(**stage["encoder"], E=(surrogate if frozen else stage)["E"])
            for stage in (shortlister, extreme)
        )
        return CascadePredictor(first, second, BeamPredictor.of(found, extreme["W"], extreme["bias"], game))

    def stages(self, data: Dataset, run: Run) -> Mapping[str, Stage]:
        c, clean = self.config, run.unaugmented
        if data.Z is None:
            run.log(f"dataset {data.name!r} has no label text: every classifier is a free vector")
        seen = (data,) if clean is data else (data, clean)
        counting = {key: value for key, value in vars(c.graph).items() if key not in ("farthest", "normalisation")}
        made: dict[str, Any] = {"size": (c.dim, c.clusters, c.cluster_factor), "by": c.clusters_by}
        made |= {"reduction": c.reduction, "normalisation": c.graph.normalisation}
        fixed = {"graph": c.graph, "classifier": c.classifier, "freeze": c.freeze}
        learnt = {key: value for key, value in vars(c.classifier).items() if key not in ("refinement", "start")}
        graph = run.stage(
            "graph",
            lambda work: {"graph": c.graph.count(clean.train.Y, work.seed)},
            data=clean,
            config=counting,
            shared=True,
        )
        surrogate = run.stage(
            "surrogate", lambda work: self._surrogate(data, clean, graph, work), data=seen,
            config={**made, "scale": c.embedding_scale, "classifier": learnt, "module": c.surrogate}, after=[graph],
            shared=True,
        )  # fmt: skip
        shortlister = run.stage(
            "shortlister", lambda work: self._shortlister(data, clean, surrogate, work), data=seen,
            config={**made, **fixed, "module": c.shortlister}, after=[surrogate],
        )  # fmt: skip
        listed = {"beam": (c.beam, c.shortlist_length), "game": c.game, "negatives": c.negatives, "expand": c.expand}
        extreme = run.stage(
            "extreme", lambda work: self._extreme(data, surrogate, shortlister, work), data=data,
            config={**listed, **fixed, "module": c.extreme},
            after=[surrogate, shortlister],
        )  # fmt: skip
        return {"graph": graph, "surrogate": surrogate, "shortlister": shortlister, "extreme": extreme}

    def estimate_memory(self, data: Dataset) -> int:
        c, L = self.config, data.label_count
        K = cluster_count(L, c.clusters, c.cluster_factor)
        beam = beam_width(K, L, c.shortlist_length, c.beam) * (1 if c.game == "off" else 2)
        candidates = beam * L // K * (c.graph.top if c.expand else 1)
        return cascade_memory(data, c.dim, K, candidates, beam, c.extreme.training.batch_size, c.freeze)

    def _surrogate(self, data: Dataset, clean: Dataset, graph: Stage, work: StageWork) -> dict[str, Any]:
        """Module I: E, learnt on the task of finding clusters of labels by their text and their neighbours' text."""
        c, split, counts = self.config, learnable(data.train), graph["graph"]
        along = c.graph.normalise(counts) if c.clusters_by == "graph" else None
        clustering = self._clusters(sparse_centroids(clean.train.Y, clean.train.X, graph=along), clean, work.seed)
        points = Points(split.X, meta_targets(targets_of(split), clustering))
        dropout = c.surrogate.dropout
        E = TokenEmbeddings(data.feature_count, c.dim, scale=c.embedding_scale)
        labels = self._meta_labels(E, data.Z, clustering, counts, dropout, surrogate=True)
        task = RankAll(DocumentEncoder(ResidualBlock(c.dim, dropout), E), labels, c.reduction)
        train(task, points, c.surrogate.training, work, "surrogate", fit_bias)
        return {"E": as_array(E.weight)}

    def _shortlister(self, data: Dataset, clean: Dataset, surrogate: Stage, work: StageWork) -> dict[str, Any]:
        """Module II: clusters of labels that are near for E, and classifiers that find them."""
        c, split, E = self.config, learnable(data.train), TokenEmbeddings.of(surrogate["E"])
        Ez = None if data.Z is None else E.embed(SparseRows.of(data.Z)).numpy()
        counts = c.graph.count(clean.train.Y, work.seed, Ez)
        along = c.graph.normalise(counts) if c.clusters_by == "graph" else None
        centroids = dense_centroids(clean.train.Y, unit_vectors(E.embed(SparseRows.of(clean.train.X)).numpy()), along)
        clustering = self._clusters(centroids, clean, work.seed)
        dropout = c.shortlister.dropout
        documents, X = document_side(ResidualBlock(c.dim, dropout), E, split.X, c.freeze)
        points = Points(X, meta_targets(targets_of(split), clustering))
        labels = self._meta_labels(E, data.Z, clustering, counts, dropout)
        task = RankAll(documents, labels, c.reduction)
        train(task, points, c.shortlister.training, work, "shortlister", fit_bias)
        H, bias = all_classifiers(task, clustering.K)
        return {
            "H": H, "bias": bias, "encoder": folded(documents.block), "E": None if c.freeze else as_array(E.weight),
            "graph": counts, "cluster_of": clustering.cluster_of, "LMI": information_lost(clean.train.Y, clustering),
        }  # fmt: skip

    def _extreme(self, data: Dataset, surrogate: Stage, shortlister: Stage, work: StageWork) -> dict[str, Any]:
        """Modules III and IV: classifiers that start at their neighbours' text, trained on shortlists."""
        c, split, G = self.config, learnable(data.train), self.config.graph.normalise(shortlister["graph"])
        E = TokenEmbeddings.of(surrogate["E"] if c.freeze else shortlister["E"])
        dropout = c.extreme.dropout
        documents, X = document_side(ResidualBlock(c.dim, dropout), E, split.X, c.freeze)
        points = Points(X, targets_of(split), self._candidates(E, split, shortlister, G))
        labels = self._labels(E, data.Z, G, dropout)
        task = RankShortlist(documents, labels, c.reduction)
        train(task, points, c.extreme.training, work, "extreme", fit_bias)
        W, bias = all_classifiers(task, data.label_count)
        return {
            "W": W, "bias": bias, "encoder": folded(documents.block), "E": None if c.freeze else as_array(E.weight),
            "strengths": labels.strengths(),
        }  # fmt: skip

    def _clusters(self, centroids: sp.csr_array | Floats, data: Dataset, seed: int) -> Clustering:
        """Balanced 2-means; head labels by themselves."""
        K = cluster_count(data.label_count, self.config.clusters, self.config.cluster_factor)
        if self.config.clusters_by == "chance":
            return random_clusters(data.label_count, K, seed)
        return balanced_clusters(centroids, K, data.label_frequency > self.config.graph.head_threshold, seed)

    def _meta_labels(
        self, E: TokenEmbeddings, Z: sp.csr_array | None, clustering: Clustering, counts: sp.csr_array,
        dropout: float, surrogate: bool = False,
    ) -> LabelClassifiers:  # fmt: skip
        """Clusters as labels, with the text of all their members and the edges between these."""
        G = self.config.graph.normalise(cluster_graph(counts, clustering, self.config.graph.top))
        return self._labels(E, None if Z is None else meta_text(Z, clustering), G, dropout, surrogate)

    def _labels(
        self, E: TokenEmbeddings, Z: sp.csr_array | None, G: sp.csr_array, dropout: float, surrogate: bool = False,
    ) -> LabelClassifiers:  # fmt: skip
        """Classifiers of the labels with text Z and graph G."""
        c, D = self.config.classifier, self.config.dim
        free = Z is None or (c.refinement and not surrogate)
        orders = () if Z is None else range(0 if c.text else 1, c.hops + 1)
        text = None if Z is None else NeighbourText(E, Z, G, orders, frozen=self.config.freeze and not surrogate)
        z3 = LabelBank(G.shape[0], D, self._start(E, Z, G)) if free else None
        attention = ComponentAttention(len(orders) + free, D, dropout) if c.mixture == "attention" else None
        bias = LabelBank(G.shape[0]) if c.fitted_bias else None
        return LabelClassifiers(text, [self._block(k, dropout) for k in orders], z3, bias, attention)

    def _block(self, order: int, dropout: float) -> nn.Module:
        """E_L (order 0) or E_G, or what takes its place."""
        if self.config.classifier.layer == "lightgcn":
            return Scale(self.config.dim)
        if self.config.classifier.layer == "gcn" and order:
            return GraphConvolution(self.config.dim)
        return ResidualBlock(self.config.dim, dropout)

    def _start(self, E: TokenEmbeddings, Z: sp.csr_array | None, G: sp.csr_array) -> Tensor:
        """Module III."""
        if Z is None:
            bound = self.config.dim**-0.5
            return torch.empty(G.shape[0], self.config.dim).uniform_(-bound, bound)
        Ez = E.embed(SparseRows.of(Z))
        return Ez if self.config.classifier.start == "text" else weighted_sums(SparseRows.of(G), Ez)

    def _beam(self, shortlister: Stage) -> BeamShortlister:
        """Module II's clusters behind GAME."""
        c, H = self.config, shortlister["H"]
        clustering = Clustering.of(shortlister["cluster_of"], len(H))
        beam = beam_width(len(H), len(clustering.cluster_of), c.shortlist_length, c.beam)
        G = self.config.graph.normalise(cluster_graph(shortlister["graph"], clustering, c.graph.top))
        return BeamShortlister.of(H, clustering, beam, shortlister["bias"], Game(G, beam, c.game))

    def _candidates(self, E: TokenEmbeddings, split: Split, shortlister: Stage, G: sp.csr_array) -> Candidates:
        """What each training point is held against in Module IV."""
        if self.config.negatives == "pagerank":
            near = personalised_pagerank(G, split.Y, top=min(self.config.shortlist_length, G.shape[0]))
            return Candidates.of_labels(TopK.from_csr(near).indices, G.shape[0])
        found, encode = self._beam(shortlister), FixedEncoder(**shortlister["encoder"], E=as_array(E.weight))
        members = found.clustering.to_csr().T.tocsr()
        members = (members @ G).tocsr() if self.config.expand else members
        return Candidates(found.clusters(encode(split.X)).indices, SparseRows.of(members))
