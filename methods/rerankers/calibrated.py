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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from xcbench.data import Dataset, TopK
from xcbench.data.holdout import hold_out
from xcbench.data.matrices import binary_targets
from xcbench.errors import DataError
from xcbench.evaluation import inverse_propensity
from xcbench.plugins import Ranking, Reranker, Rescorer, Run, Trained, load_values, register_reranker, save_values
from xcbench.plugins.stages import derive_seed
from xcbench.shortlist.predictors import ranked

from ._evidence import Evidence
from .sparse import LISTED, SparseRanker, SparseRankerConfig

Floats = npt.NDArray[np.float32]

EVIDENCE = "evidence"
LEAST = 500
"""Fewer held-out points teach a network nothing that can be relied on: the sparse ranker then ranks alone."""
POINTS_AT_A_TIME = 1 << 12
LISTS_AT_A_TIME = 64
"""In a step of training."""
LISTS_IN_CACHE = 128
"""In a step of prediction: what a layer makes of more lists is written to memory and read back."""


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
                nn.Linear(inputs, hidden), nn.ReLU(True), nn.Linear(hidden, hidden), nn.ReLU(True), nn.Linear(hidden, 1)
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
            return self.evidence.ranker.rescore(predictions, X)
        scores = np.zeros(predictions.indices.shape, np.float32)
        for here in _blocks(len(predictions)):
            part = predictions.rows(here)
            known = self.evidence(part, X[here], None if titles is None else titles[here])
            few = torch.split(torch.from_numpy(known), LISTS_IN_CACHE)
            f = torch.cat([self.network(lists).mean(0) for lists in few])
            scores[here] = _softmax(f, torch.from_numpy(part.indices >= 0)).numpy()
        return ranked(predictions.indices, scores, predictions.k)

    def save(self, folder: Path) -> None:
        network = self.network and {"sizes": self.network.sizes, "state": self.network.state_dict()}
        save_values(folder, {"network": network})
        (folder / EVIDENCE).mkdir()
        self.evidence.save(folder / EVIDENCE)

    @classmethod
    def load(cls, folder: Path) -> CalibratedRescorer:
        kept, network = load_values(folder)["network"], None
        if kept is not None:
            network = Network(Evidence.COUNT, *kept["sizes"])
            try:
                network.load_state_dict(kept["state"])
            except RuntimeError as error:  # what torch says of other shapes or names
                raise DataError(f"not a stored calibration: {error}", folder) from None
        return cls(Evidence.load(folder / EVIDENCE), network)


@register_reranker("calibrated")
class Calibrated(Reranker[CalibratedConfig]):
    """ELIAS++'s sparse ranker and calibration: the method trained twice, its evidence weighed on held-out points"""

    config_type = CalibratedConfig
    rescorer_type = CalibratedRescorer
    version = "2"
    citation = "Gupta et al., ELIAS: End-to-End Learning to Index and Search in Large Output Spaces, NeurIPS 2022"

    def estimate_memory(self, data: Dataset) -> int:
        """The sparse ranker's need, and the evidence of the held-out points, which training cuts batches from."""
        lists = self._held_out(data) + 2 * POINTS_AT_A_TIME
        evidence = 4 * Evidence.COUNT * min(LISTED, data.label_count) * lists
        whole: int = self._ranker.estimate_memory(data) + evidence
        return whole

    def retraining_data(self, run: Run) -> Sequence[Dataset]:
        clean, count = run.unaugmented, self._held_out(run.unaugmented)
        if count < LEAST:
            return ()
        draw = np.random.default_rng(derive_seed(run.seed, "held out"))
        return (hold_out(clean, draw.permutation(len(clean.train))[:count]),)

    def fit(self, data: Dataset, run: Run, first: Trained) -> CalibratedRescorer:
        # This comes first: the second training may be under way beside it.
        evidence, network = Evidence.of(data, self._ranker, run, first), None
        for part in self.retraining_data(run):
            run.log(f"calibration: the method is trained again without {len(part.test):,} of its points")
            seen, again = first.retrain(part)
            network = self._network(part, Evidence.of(seen, self._ranker, run, again), again, run)
        if network is None:
            run.log(f"calibration takes {LEAST} held-out points or more: the sparse ranker ranks alone")
        return CalibratedRescorer(evidence, network)

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
        true = _truth(listed, binary_targets(points.Y)) * counts * weights[listed.indices].astype(np.float32)
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
