"""DECAF (Mittal et al., WSDM 2021): classifiers made of label text and a free vector, behind a beam of clusters.

Module I learns token embeddings E on clusters of labels, Module II a shortlister on new clusters, Module III starts the
label classifiers at their text, Module IV trains them on the shortlists. docs/decaf.md says where this follows the
paper, where the authors' code, and what small data needs beyond both.
"""

from __future__ import annotations

import dataclasses
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

from xcbench.data import Dataset, Split
from xcbench.data.word_vectors import learn_vectors, read_vectors, vectors_digest
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.labels.centroids import dense_centroids, sparse_centroids
from xcbench.labels.clustering import balanced_clusters, cluster_count
from xcbench.labels.meta_labels import meta_targets, meta_text
from xcbench.labels.partition import Clustering
from xcbench.nn import DocumentEncoder, Factored, GatedBlock, GatedSum, LabelBank, LabelText, TokenEmbeddings
from xcbench.plugins import Ablation, Method, Run, Stage, StageWork, register_method
from xcbench.plugins.contract import Patch
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
    ModuleConfig,
    Points,
    RankAll,
    RankShortlist,
    all_classifiers,
    cascade_memory,
    document_side,
    encode,
    fit_bias,
    learnable,
    official_training,
    scaled_training,
    targets_of,
    train,
)

Floats = npt.NDArray[np.float32]
Parts = Literal["text+free", "text", "free"]

RECALL_ON = 10_000
"""How many training points are asked for the shortlists' recall."""


@dataclass(frozen=True)
class DecafConfig:
    """Where a default is not the paper's, docs/decaf.md says how it was chosen; the paper's settings are presets."""

    dim: int = 300
    clusters: int | None = None
    """K, cut to the number of labels; by default the power of two nearest to three labels a cluster."""
    cluster_factor: float = 1.0
    """Multiplies K."""
    beam: int | None = None
    """B, in clusters; by default as many as hold `shortlist_length` labels."""
    shortlist_length: int = 600
    shortlist: Literal["clusters", "hnsw", "parabel"] = "clusters"
    force_positives: bool = False
    """Whether true labels that a training point's shortlist misses join it."""
    embeddings: Literal["surrogate", "pretrained"] = "surrogate"
    """Where E comes from: Module I, or text alone (then E stays fixed)."""
    embedding_scale: float = 4.0
    """How long the rows of E are at the start: a multiple of Kaiming's, which the paper has."""
    vectors: str | None = None
    """A file of pre-trained vectors (npy, a row per feature); without one they are learnt on the training text."""
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
        if self.dim < 1 or self.shortlist_length < 1 or min(self.beam or 1, self.clusters or 1) < 1:
            raise ValueError("dim, beam, clusters and shortlist_length are at least 1")
        if not self.cluster_factor > 0:
            raise ValueError(f"cluster_factor is greater than 0, got {self.cluster_factor}")


def _paper(dim: int, clusters: int, beam: int, lr: float, dropout: float = 0.2) -> Patch:
    """The authors' settings; Modules II and IV learn at 0.8 times the rate of Module I."""
    patch: dict[str, Any] = {"dim": dim, "clusters": clusters, "beam": beam}
    patch |= {"reduction": "mean", "fitted_bias": False, "embedding_scale": 1.0}
    for module, epochs, rate in (("surrogate", 20, lr), ("shortlister", 10, 0.8 * lr), ("extreme", 10, 0.8 * lr)):
        patch |= {
            f"{module}.dropout": 0.5 if module == "surrogate" else dropout,
            f"{module}.training": official_training(rate, epochs),
        }
    return patch


class LabelClassifiers(nn.Module):
    """w_l = sigmoid(alpha) (.) z2_l + sigmoid(beta) (.) z1_l with z1_l = E_L(E z_l); or one of the two parts alone."""

    def __init__(
        self, text: LabelText | None, E_L: GatedBlock | None, z2: LabelBank | None, bias: LabelBank | None
    ) -> None:
        super().__init__()
        self.text, self.E_L, self.z2, self.bias = text, E_L, z2, bias
        self.combine = None if text is None or z2 is None else GatedSum(z2.weight.shape[1])

    def forward(self, labels: npt.NDArray[np.int64] | None) -> tuple[Tensor | Factored, Tensor | None]:
        bias = None if self.bias is None else self.bias(labels)
        if self.text is None or self.E_L is None:
            assert self.z2 is not None
            return self.z2(labels), bias
        if self.combine is None or self.z2 is None:
            return self.E_L.factored(self.text(labels)), bias
        return self.combine(self.z2(labels), self.E_L, self.text(labels)), bias


@register_method("decaf")
class Decaf(Method[DecafConfig]):
    """DECAF: label text and free vectors in the classifiers, learnt shortlists"""

    config_type = DecafConfig
    predictor_type = CascadePredictor
    can_ignore_pairs = True
    citation = "Mittal, Dahiya, Agrawal, Saini, Agarwal, Kar, Varma: DECAF, WSDM 2021"
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
        # Ours: on its slices this length cannot be told from the default, which takes a quarter longer.
        "lf-debian-4k": {"extreme.training.min_steps": 400},
    }

    def fit(self, data: Dataset, run: Run) -> CascadePredictor:
        stages = self.stages(data, run)
        surrogate, shortlister, extreme = (stages[name] for name in ("surrogate", "shortlister", "extreme"))
        first, second = (
            FixedEncoder(**stage["encoder"], E=surrogate["E"] if stage["E"] is None else stage["E"])
            for stage in (shortlister, extreme)
        )
        found, W, bias = self._found(shortlister), extreme["W"], extreme["bias"]
        if isinstance(found, BeamShortlister):
            recall, size = shortlister["recall"], found.label_count / found.clustering.K
            run.report("shortlist_recall", recall)
            run.report("shortlist_recall_by_length", {"x": [size * beam for beam in recall["x"]], "y": recall["y"]})
            return CascadePredictor(first, second, BeamPredictor.of(found, W, bias))
        return CascadePredictor(first, second, ShortlistPredictor.of(found, self.config.shortlist_length, W, bias))

    def stages(self, data: Dataset, run: Run) -> Mapping[str, Stage]:
        c, clean = self.config, run.unaugmented
        if data.Z is None:
            run.log(f"dataset {data.name!r} has no label text: every classifier is a free vector")
        elif blank := int((np.diff(data.Z.indptr) == 0).sum()):
            run.log(f"{blank} of {data.label_count} labels have no text: their free vectors start at zero")
        seen = (data,) if clean is data else (data, clean)
        fan_out = {"clusters": c.clusters, "cluster_factor": c.cluster_factor}
        loss = {"reduction": c.reduction, "fitted_bias": c.fitted_bias}
        label_side = {"freeze": c.freeze, "classifier": c.classifier, **loss}
        if c.embeddings == "pretrained":
            origin: dict[str, Any] = {"vectors": c.vectors and vectors_digest(Path(c.vectors))}
        else:
            origin = {"module": c.surrogate, **fan_out, **loss}
        surrogate = run.stage(
            "surrogate", lambda work: self._surrogate(data, clean, work),
            data=seen, config={"size": (c.dim, c.embedding_scale), "embeddings": c.embeddings, **origin}, shared=True,
        )  # fmt: skip
        learnt = {"module": c.shortlister, **fan_out, **label_side} if c.shortlist == "clusters" else {}
        shortlister = run.stage(
            "shortlister", lambda work: self._shortlister(data, clean, surrogate, work),
            data=seen, config={"shortlist": c.shortlist, **learnt}, after=[surrogate],
        )  # fmt: skip
        own: dict[str, Any] = {"module": c.extreme, "free_start": c.free_start, "force_positives": c.force_positives}
        own |= {"beam": c.beam, "shortlist_length": c.shortlist_length}
        extreme = run.stage(
            "extreme", lambda work: self._extreme(data, surrogate, shortlister, work),
            data=data, config={**own, **label_side}, after=[surrogate, shortlister],
        )  # fmt: skip
        return {"surrogate": surrogate, "shortlister": shortlister, "extreme": extreme}

    def estimate_memory(self, data: Dataset) -> int:
        c, L = self.config, data.label_count
        K = cluster_count(L, c.clusters, c.cluster_factor)
        beam = beam_width(K, L, c.shortlist_length, c.beam)
        return cascade_memory(data, c.dim, K, beam * L // K, beam, c.extreme.training.batch_size, c.freeze)

    def _surrogate(self, data: Dataset, clean: Dataset, work: StageWork) -> dict[str, Any]:
        """Module I: E, learnt on the task of finding clusters of labels by their text."""
        c, points = self.config, learnable(data.train)
        dropout = c.surrogate.dropout
        block = GatedBlock(c.dim, dropout)
        if c.embeddings == "pretrained":
            return {"E": _pretrained(c, data, work.seed), "encoder": folded(block)}
        E = TokenEmbeddings(data.feature_count, c.dim, scale=c.embedding_scale)
        clustering = self._clusters(sparse_centroids(clean.train.Y, clean.train.X), work.seed)
        targets = meta_targets(targets_of(points), clustering)
        U = None if data.Z is None else meta_text(data.Z, clustering)
        labels = self._labels(E, U, clustering.K, dropout, "text")
        if not c.fitted_bias:
            labels.bias = None
        task = RankAll(DocumentEncoder(block, E), labels, c.reduction)
        self._train("surrogate", task, Points(points.X, targets), work)
        return {"E": as_array(E.weight), "encoder": folded(block)}

    def _shortlister(self, data: Dataset, clean: Dataset, surrogate: Stage, work: StageWork) -> dict[str, Any]:
        """Module II: clusters of labels that are near for E, and classifiers that find them."""
        c, points = self.config, learnable(data.train)
        if c.shortlist != "clusters":
            return self._replaced_shortlister(points, surrogate, work)
        E = TokenEmbeddings.of(surrogate["E"])
        centroids = dense_centroids(clean.train.Y, E.embed(SparseRows.of(clean.train.X)).numpy())
        clustering = self._clusters(centroids, work.seed)
        targets = meta_targets(targets_of(points), clustering)
        U = None if data.Z is None else meta_text(data.Z, clustering)
        dropout = c.shortlister.dropout
        labels = self._labels(E, U, clustering.K, dropout, c.classifier, frozen=c.freeze)
        documents, X = document_side(GatedBlock(c.dim, dropout), E, points.X, c.freeze)
        task = RankAll(documents, labels, c.reduction)
        self._train("shortlister", task, Points(X, targets), work)
        H, bias = all_classifiers(task, clustering.K)
        found = BeamShortlister.of(H, clustering, clustering.K, bias)
        return {
            "found": pack(found), "recall": _recall(found, encode(task, X[:RECALL_ON]), points.Y[:RECALL_ON]),
            "E": None if c.freeze else as_array(E.weight), "encoder": folded(documents.block),
        }  # fmt: skip

    def _replaced_shortlister(self, points: Split, surrogate: Stage, work: StageWork) -> dict[str, Any]:
        """Table 5: nearest label centroids, or a Parabel tree, among the documents as Module I sees them."""
        x = FixedEncoder(**surrogate["encoder"], E=surrogate["E"])(points.X)
        found: Shortlister
        if self.config.shortlist == "hnsw":
            found = HNSWShortlister.of(dense_centroids(points.Y, x))
        else:
            found = TreeShortlister.fit(x, points.Y, seed=work.seed)
        return {"found": pack(found), "recall": None, "E": None, "encoder": surrogate["encoder"]}

    def _extreme(self, data: Dataset, surrogate: Stage, shortlister: Stage, work: StageWork) -> dict[str, Any]:
        """Modules III and IV: classifiers that start at the text of their labels, trained on shortlists."""
        c, points, L = self.config, learnable(data.train), data.label_count
        E = TokenEmbeddings.of(surrogate["E"] if shortlister["E"] is None else shortlister["E"])
        first = FixedEncoder(**shortlister["encoder"], E=as_array(E.weight))
        candidates = self._candidates(self._found(shortlister), first(points.X))
        dropout = c.extreme.dropout
        labels = self._labels(E, data.Z, L, dropout, c.classifier, c.free_start, c.freeze)
        documents, X = document_side(GatedBlock(c.dim, dropout), E, points.X, c.freeze)
        task = RankShortlist(documents, labels, c.reduction)
        self._train("extreme", task, Points(X, targets_of(points), candidates), work)
        W, bias = all_classifiers(task, L)
        return {
            "W": W, "bias": bias, "E": None if c.freeze else as_array(E.weight), "encoder": folded(documents.block)
        }  # fmt: skip

    def _clusters(self, centroids: sp.csr_array | Floats, seed: int) -> Clustering:
        K = cluster_count(centroids.shape[0], self.config.clusters, self.config.cluster_factor)
        return balanced_clusters(centroids, K, seed=seed)

    def _found(self, stage: Stage) -> Shortlister:
        """The trained shortlister, with a beam as asked for: B is chosen after Module II."""
        found, c = unpack(stage["found"]), self.config
        if not isinstance(found, BeamShortlister):
            return found
        beam = beam_width(found.clustering.K, found.label_count, c.shortlist_length, c.beam)
        return dataclasses.replace(found, beam=beam)

    def _candidates(self, found: Shortlister, x: Floats) -> Candidates:
        """What each training point is trained against."""
        L, positives = found.label_count, self.config.force_positives
        if isinstance(found, BeamShortlister):
            clusters, members = found.clusters(x).indices, SparseRows.of(found.clustering.to_csr().T.tocsr())
            return Candidates(clusters, members, positives)
        labels = found.shortlist(x, min(self.config.shortlist_length, L)).indices
        return Candidates.of_labels(labels, L, positives)

    def _labels(
        self, E: TokenEmbeddings, Z: sp.csr_array | None, count: int, dropout: float, parts: Parts,
        start: Literal["text", "random"] = "text", frozen: bool = False,
    ) -> LabelClassifiers:  # fmt: skip
        """Classifiers of `count` labels whose text is Z."""
        D, text, block, z2 = self.config.dim, None, None, None
        if Z is not None and parts != "free":
            text, block = LabelText(E, Z, frozen), GatedBlock(D, dropout)
        if Z is None or parts != "text":
            drawn = torch.empty(count, D).uniform_(-(D**-0.5), D**-0.5)
            z2 = LabelBank(count, D, drawn if Z is None or start == "random" else E.embed(SparseRows.of(Z)))
        return LabelClassifiers(text, block, z2, LabelBank(count))

    def _train(self, name: str, task: RankAll | RankShortlist, points: Points, work: StageWork) -> None:
        module: ModuleConfig = getattr(self.config, name)
        train(task, points, module.training, work, name, fit_bias if self.config.fitted_bias else None)


def _pretrained(c: DecafConfig, data: Dataset, seed: int) -> Floats:
    if c.vectors is not None:
        return read_vectors(Path(c.vectors), (data.feature_count, c.dim))
    texts = data.train.X if data.Z is None else sp.vstack([data.train.X, data.Z], format="csr")
    # As long as the rows of an E that starts at random: activations keep their size.
    return c.embedding_scale * math.sqrt(2) * learn_vectors(texts, c.dim, seed)


def _recall(found: BeamShortlister, x: Floats, Y: sp.csr_array) -> dict[str, list[float]]:
    """Figure 6: which share of the true labels a beam's clusters hold, in percent, on training points."""
    K = found.clustering.K
    beams = [beam for beam in (1, 2, 5, 10, 20, 50, 100, 200, 500) if beam <= K]
    wide = BeamShortlister.of(found.H, found.clustering, beams[-1], found.bias)
    recall = 100 * beam_recall(wide.clusters(x), found.clustering, Y, beams)
    return {"x": [float(beam) for beam in beams], "y": recall.tolist()}
