"""The sparse ranker with calibration, as ELIAS++ has it, behind any method: what is known of a label, weighed as pays.

How far may a method's own score be trusted, and how far the words? That differs between rare and frequent labels, short
and long titles, and from dataset to dataset. It cannot be seen on the points that both were trained on, which they
answer almost perfectly. So the method is trained a second time, without some of its points, and a small network learns
on these how to rank the labels listed for them:

    score_l = softmax_l f(evidence of (x, l)),   loss = -sum_l t_l log score_l

with t_l the true labels, those of rare labels weighing more. The network then ranks what the method trained on all
points lists. Of the authors' are the held-out points, the two scores and the label's frequency as evidence; they fit a
decision tree to single pairs. Ours are the network, which compares the labels of a list with each other, the further
evidence, and the second training: theirs goes without the held-out points for good.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from xcbench.methods.sparse_ranker import LISTED, SparseRanker, SparseRankerConfig, SparseRescorer

from xcbench.bench import Ranking, Reranker, Rescorer, Run, Trained, load_values, register_reranker, save_values
from xcbench.bench.stages import derive_seed
from xcbench.data import Dataset, TopK
from xcbench.data.assemble import unit_rows
from xcbench.data.holdout import hold_out
from xcbench.data.text import TextEncoder
from xcbench.errors import DataError, InputError
from xcbench.evaluate import inverse_propensity
from xcbench.labels.centroids import sparse_centroids
from xcbench.labels.matrices import whole_targets, with_constant
from xcbench.shortlist import ranked
from xcbench.shortlist.sparse_svm import listed_margins

Floats = npt.NDArray[np.float32]

ENCODER = "spelling.json"
RARE_NGRAM = 3
"""Runs of letters that fewer titles have are left out."""
LEAST = 500
"""Fewer held-out points teach a network nothing that can be relied on: the sparse ranker then ranks alone."""
POINTS_AT_A_TIME = 1 << 12
LISTS_AT_A_TIME = 64
FARTHEST = 40.0
"""Where scores' logarithms and margins are cut: beyond, differences say nothing."""


@dataclass(frozen=True)
class CalibratedConfig:
    """`rare` and the evidence were chosen on slices of train (docs/rerankers.md), the rest at once."""

    share: float = 0.2
    """Of the training points, held out for calibration; but at most `most` points."""
    most: int = 5000
    rare: float = 0.5
    """A true label weighs as much as its inverse propensity to this power: 0 aims at P@k, 1 at PSP@k."""
    networks: int = 3
    """As many are trained from different starts, and their outputs averaged."""
    hidden: int = 32
    epochs: int = 15
    lr: float = 0.003
    sparse: SparseRankerConfig = field(default_factory=SparseRankerConfig)

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share is greater than 0 and less than 1, got {self.share}")
        if min(self.most, self.networks, self.hidden, self.epochs) < 1 or self.lr <= 0 or self.rare < 0:
            raise ValueError("most, networks, hidden, epochs are at least 1, lr is positive, rare not negative")


@dataclass(frozen=True)
class Spelling:
    """A second sparse ranker, on runs of letters: it knows what a word is like that no training point has."""

    encoder: TextEncoder
    W: sp.csr_array
    Z: sp.csr_array

    def __call__(self, titles: Sequence[str] | None, labels: npt.NDArray[np.int32]) -> tuple[Floats, Floats]:
        """<w_l, x> and <z_l, x> of every label listed."""
        if titles is None:
            raise InputError("calibration has learnt from titles, and these points have none")
        X = self.encoder.encode(titles)
        return listed_margins(with_constant(X), self.W, labels), listed_margins(X, self.Z, labels)


@dataclass(frozen=True)
class Evidence:
    """What is known of a point and a label that is listed for it: fourteen numbers a pair."""

    COUNT: ClassVar = 14

    ranker: SparseRescorer
    Z: sp.csr_array | None
    C: sp.csr_array
    """Centroids of the labels' points, of unit length."""
    frequency: Floats
    """log((n_l + 1) / N)."""
    spelling: Spelling | None

    @classmethod
    def of(cls, data: Dataset, sparse: SparseRanker, run: Run, first: Ranking) -> Evidence:
        examples, power = sparse.examples(data, run, first)
        ranker = SparseRescorer(sparse.classifiers(data.train.X, data.Z, examples, run), power)
        C = unit_rows(sparse_centroids(whole_targets(data.train.Y), data.train.X))
        frequency = np.log((data.label_frequency + 1) / max(len(data.train), 1)).astype(np.float32)
        return cls(ranker, data.Z, C, frequency, _spelling(data, sparse, examples, run))

    def __call__(self, listed: TopK, X: sp.csr_array, titles: Sequence[str] | None) -> Floats:
        """[n, k, 14]; whatever stands at places where nothing is listed."""
        labels = listed.indices
        tiny = np.finfo(np.float32).tiny
        margin = self.ranker.margins(listed, X)
        p = np.log(np.maximum(np.where(labels >= 0, listed.scores, 0), tiny))
        both = np.log(np.maximum(self.ranker.scores(listed, margin), tiny))
        none = np.zeros_like(p)
        words = np.diff(X.indptr)[:, None]
        label_words = np.zeros(len(self.frequency)) if self.Z is None else np.diff(self.Z.indptr)
        every = (
            p, p - p.max(axis=1, keepdims=True), np.arange(p.shape[1])[None], margin,
            both, both - both.max(axis=1, keepdims=True), _places(both),
            none if self.Z is None else listed_margins(X, self.Z, labels), listed_margins(X, self.C, labels),
            self.frequency[labels], words, label_words[labels],
            *((none, none) if self.spelling is None else self.spelling(titles, labels)),
        )  # fmt: skip
        stacked = np.stack([np.broadcast_to(one, p.shape) for one in every], axis=2).astype(np.float32)
        return np.clip(stacked, -FARTHEST, FARTHEST, out=stacked)


def _spelling(data: Dataset, sparse: SparseRanker, examples: sp.csr_array, run: Run) -> Spelling | None:
    if data.train.titles is None or data.label_titles is None:
        return None
    try:
        encoder = TextEncoder.fit([*data.train.titles, *data.label_titles], tokenizer="ngrams", min_count=RARE_NGRAM)
    except DataError:  # too little text for a single run of letters to come thrice
        return None
    X, Z = encoder.encode(data.train.titles), encoder.encode(data.label_titles)
    # Label titles are no examples here: spelt alike is soon the label itself, or its sibling, and neither counts.
    return Spelling(encoder, sparse.classifiers(X, None, examples[:, : X.shape[0]], run), Z)


class Network(nn.Module):
    """f: evidence, brought to one scale, through two hidden layers to a number a pair; several such."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: int, hidden: int, networks: int) -> None:
        super().__init__()
        self.sizes = [hidden, networks]
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.parts = nn.ModuleList(
            nn.Sequential(
                nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
            )
            for _ in range(networks)
        )

    def forward(self, evidence: Tensor) -> Tensor:
        """[networks, ...]: what each of them says of evidence [..., inputs]."""
        scaled = (evidence - self.mean) / self.scale
        return torch.stack([part(scaled)[..., 0] for part in self.parts])

    @torch.no_grad()
    def fit_scale(self, evidence: Tensor) -> None:
        self.mean.copy_(evidence.mean(0))
        self.scale.copy_(evidence.std(0).clamp_(min=1e-3))


class CalibratedRescorer(Rescorer):
    """Evidence and the network that weighs it; without one, the sparse ranker as it is."""

    def __init__(self, evidence: Evidence, network: Network | None) -> None:
        self.evidence, self.network = evidence, network

    @torch.no_grad()
    def rescore(self, predictions: TopK, X: sp.csr_array, titles: Sequence[str] | None = None) -> TopK:
        if self.network is None:
            return self.evidence.ranker.rescore(predictions, X)  # type: ignore[no-any-return]
        scores = np.zeros(predictions.indices.shape, np.float32)
        for here in _blocks(len(predictions)):
            part = predictions.rows(here)
            known = self.evidence(part, X[here], None if titles is None else titles[here])
            f = self.network(torch.from_numpy(known)).mean(0)
            scores[here] = _softmax(f, torch.from_numpy(part.indices >= 0)).numpy()
        return ranked(predictions.indices, scores, predictions.k)

    def save(self, folder: Path) -> None:
        e, network = self.evidence, self.network and {"sizes": self.network.sizes, "state": self.network.state_dict()}
        known = {"W": e.ranker.W, "power": e.ranker.power, "Z": e.Z, "C": e.C, "frequency": e.frequency}
        spelt = e.spelling and {"W": e.spelling.W, "Z": e.spelling.Z}
        save_values(folder, {**known, "spelling": spelt, "network": network})
        if e.spelling is not None:
            (folder / ENCODER).write_text(json.dumps(e.spelling.encoder.to_dict(), ensure_ascii=False), "utf-8")

    @classmethod
    def load(cls, folder: Path) -> CalibratedRescorer:
        values, network, spelling = load_values(folder), None, None
        if values["network"] is not None:
            network = Network(Evidence.COUNT, *values["network"]["sizes"])
            try:
                network.load_state_dict(values["network"]["state"])
            except RuntimeError as error:  # what torch says of other shapes or names
                raise DataError(f"not a stored calibration: {error}", folder) from None
        if values["spelling"] is not None:
            encoder = TextEncoder.from_dict(json.loads((folder / ENCODER).read_text("utf-8")))
            spelling = Spelling(encoder, **values["spelling"])
        known = SparseRescorer(values["W"], values["power"]), values["Z"], values["C"], values["frequency"]
        return cls(Evidence(*known, spelling), network)


@register_reranker("calibrated")
class Calibrated(Reranker[CalibratedConfig]):
    """ELIAS++'s sparse ranker and calibration: the method trained twice, its evidence weighed on held-out points"""

    config_type = CalibratedConfig
    rescorer_type = CalibratedRescorer
    citation = "Gupta et al., ELIAS: End-to-End Learning to Index and Search in Large Output Spaces, NeurIPS 2022"

    def estimate_memory(self, data: Dataset) -> int:
        """The sparse ranker's need, and the evidence of the held-out points, which training cuts batches from."""
        lists = self._held_out(data) + 2 * POINTS_AT_A_TIME
        evidence = 4 * Evidence.COUNT * min(LISTED, data.label_count) * lists
        whole: int = self._ranker.estimate_memory(data) + evidence
        return whole

    def trains_again_on(self, run: Run) -> Sequence[Dataset]:
        clean, count = run.unaugmented, self._held_out(run.unaugmented)
        if count < LEAST:
            return ()
        draw = np.random.default_rng(derive_seed(run.seed, "held out"))
        return (hold_out(clean, draw.permutation(len(clean.train))[:count]),)

    def fit(self, data: Dataset, run: Run, first: Trained) -> CalibratedRescorer:
        network = None
        for part in self.trains_again_on(run):
            run.log(f"calibration: the method is trained again without {len(part.test):,} of its points")
            seen, again = first.again(part)
            network = self._network(part, Evidence.of(seen, self._ranker, run, again), again, run)
        if network is None:
            run.log(f"calibration takes {LEAST} held-out points or more: the sparse ranker ranks alone")
        return CalibratedRescorer(Evidence.of(data, self._ranker, run, first), network)

    @property
    def _ranker(self) -> SparseRanker:
        return SparseRanker(self.config.sparse)

    def _held_out(self, data: Dataset) -> int:
        return min(round(self.config.share * len(data.train)), self.config.most)

    def _network(self, data: Dataset, evidence: Evidence, first: Ranking, run: Run) -> Network:
        """Trained on `data.test`: training points that neither `first` nor the evidence has seen."""
        points, c = data.test, self.config
        listed = first.predict(points.X, min(LISTED, data.label_count), points.titles)
        counts = _counting(listed, points.filter)
        weights = inverse_propensity(data.label_frequency, len(data.train), data.propensity) ** c.rare
        true = _truth(listed, whole_targets(points.Y)) * counts * weights[listed.indices].astype(np.float32)
        taught = np.flatnonzero(true.any(axis=1))
        run.log(f"calibration: {len(taught):,} of {len(true):,} held-out points list a true label")
        titles = None if points.titles is None else points.titles.take(taught)
        listed, X, true, counts = listed.rows(taught), points.X[taught], true[taught], counts[taught]
        torch.manual_seed(derive_seed(run.seed, "calibration"))
        network = Network(Evidence.COUNT, c.hidden, c.networks)
        if len(taught):
            known = np.concatenate(
                [evidence(listed.rows(here), X[here], titles and titles[here]) for here in _blocks(len(taught))]
            )
            targets = true / true.sum(axis=1, keepdims=True)
            _train(network, torch.from_numpy(known), torch.from_numpy(targets), torch.from_numpy(counts), c, run)
        return network


def _train(network: Network, evidence: Tensor, targets: Tensor, counts: Tensor, c: CalibratedConfig, run: Run) -> None:
    network.fit_scale(evidence[counts])
    optimiser = torch.optim.AdamW(network.parameters(), c.lr, weight_decay=1e-4)
    steps = c.epochs * -(-len(evidence) // LISTS_AT_A_TIME)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, c.lr, total_steps=steps)
    for _ in run.progress(range(c.epochs), "calibration", c.epochs):
        for lists in torch.split(torch.randperm(len(evidence)), LISTS_AT_A_TIME):
            f = network(evidence[lists]).masked_fill(~counts[lists], -torch.inf)
            log_scores = torch.log_softmax(f, 2).masked_fill(~counts[lists], 0)
            # Summed over the networks: each learns by itself. Were only their mean to fit, they would all be one.
            loss = -(targets[lists] * log_scores).sum((0, 2)).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()


def _softmax(f: Tensor, listed: Tensor) -> Tensor:
    """Over what is listed; a point without any label has nothing but zeros."""
    return torch.softmax(f.masked_fill(~listed, -torch.inf), 1).nan_to_num_(0)


def _places(scores: Floats) -> npt.NDArray[np.int64]:
    """0 for the best of each row, and so on."""
    order = np.argsort(-scores, axis=1, kind="stable")
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(scores.shape[1])[None], axis=1)
    return places


def _blocks(points: int) -> Iterator[slice]:
    for start in range(0, points, POINTS_AT_A_TIME):
        yield slice(start, start + POINTS_AT_A_TIME)


def _truth(listed: TopK, Y: sp.csr_array) -> npt.NDArray[np.bool_]:
    """Whether each listed label is true."""
    return _among(listed, np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), Y.indices, Y.shape[1])


def _counting(listed: TopK, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether there is a label, and not one of a pair that counts neither way."""
    width = int(max(listed.indices.max(initial=0), pairs[:, 1].max(initial=0))) + 1
    return (listed.indices >= 0) & ~_among(listed, pairs[:, 0], pairs[:, 1], width)


def _among(
    listed: TopK, points: npt.NDArray[np.integer], labels: npt.NDArray[np.integer], width: int
) -> npt.NDArray[np.bool_]:
    own = np.arange(len(listed))[:, None] * width + listed.indices
    return np.isin(own, points.astype(np.int64) * width + labels) & (listed.indices >= 0)
