"""The sparse ranker with calibration, as ELIAS++ has it, behind any method: all that is known of a label, weighed.

How far may a method's own score be trusted, and how far the words? That differs between rare and frequent labels, short
and long titles, and between datasets. It cannot be seen on the points that both were trained on, which they answer
almost perfectly. So the method is trained a second time, without some of its points, and a small network learns on
these how to rank the labels that are listed for them:

    score_l = softmax_l f(evidence of (x, l)),   loss = -sum_l t_l log score_l

where t_l marks the true labels, and rare ones weigh more. The network then ranks what the method trained on all points
lists. From the authors are the held-out points, and as evidence the two scores and the label's frequency; they fit a
decision tree to single pairs. Ours are the network, which compares the labels of a list with each other, the further
evidence, and the second training: the authors' method never sees the held-out points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from xcbench.data import Dataset, TextColumn, TopK
from xcbench.data.holdout import hold_out
from xcbench.data.matrices import binary_targets
from xcbench.errors import DataError
from xcbench.evaluation import inverse_propensity
from xcbench.kernels.arrays import Floats
from xcbench.plugins import Ranking, Reranker, Rescorer, Run, Trained, load_values, register_reranker, save_values
from xcbench.plugins.stages import derive_seed
from xcbench.shortlist.predictors import rank_shortlist

from ._evidence import Evidence
from .sparse import LABELS_LISTED, SparseRanker, SparseRankerConfig

EVIDENCE_FOLDER = "evidence"
MIN_HELD_OUT = 500
"""Fewer held-out points teach a network nothing that can be relied on: the sparse ranker then ranks alone."""
POINTS_AT_A_TIME = 1 << 12
LISTS_PER_STEP = 64
"""In training."""
LISTS_IN_CACHE = 128
"""In prediction: the hidden layers of more lists would not fit into the processor's cache."""


@dataclass(frozen=True)
class CalibratedConfig:
    """`rare` and the evidence were chosen on slices of train (docs/methods/rerankers.md), the rest at once."""

    share: float = 0.2
    """The share of training points held out for calibration; but at most `most` points."""
    most: int = 5000
    rare: float = 0.5
    """A true label weighs as much as its inverse propensity to this power: 0 aims at P@k, 1 at PSP@k."""
    networks: int = 3
    """How many are trained, from different starts; their outputs are averaged."""
    hidden: int = 32
    epochs: int = 15
    lr: float = 0.003
    sparse: SparseRankerConfig = field(default_factory=SparseRankerConfig)

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share is greater than 0 and less than 1, got {self.share}")
        sizes = (self.most, self.networks, self.hidden, self.epochs)
        if min(sizes) < 1 or self.lr <= 0 or self.rare < 0:
            raise ValueError("most, networks, hidden, epochs are at least 1, lr is positive, rare not negative")


class Network(nn.Module):
    """f: features, brought to one scale, through two hidden layers to one number per pair. There are several such f."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: int, hidden: int, networks: int) -> None:
        super().__init__()
        self.sizes = [hidden, networks]
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.parts = nn.ModuleList(_layers(inputs, hidden) for _ in range(networks))

    def forward(self, evidence: Tensor) -> Tensor:
        """[networks, ...]: the output of each network for evidence [..., inputs]."""
        scaled = (evidence - self.mean) / self.scale
        return torch.stack([part(scaled)[..., 0] for part in self.parts])

    @torch.no_grad()
    def fit_scale(self, evidence: Tensor) -> None:
        """Scale inputs to mean 0 and standard deviation 1 on this evidence [pairs, inputs]."""
        self.mean.copy_(evidence.mean(0))
        self.scale.copy_(evidence.std(0).clamp_(min=1e-3))


def _layers(inputs: int, hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ReLU(True),
        nn.Linear(hidden, hidden),
        nn.ReLU(True),
        nn.Linear(hidden, 1),
    )


class CalibratedRescorer(Rescorer):
    """Evidence and the network that weighs it; without a network, the sparse ranker as it is."""

    def __init__(self, evidence: Evidence, network: Network | None) -> None:
        self.evidence = evidence
        self.network = network

    @torch.no_grad()
    def rescore(self, predictions: TopK, X: sp.csr_array, titles: Sequence[str] | None = None) -> TopK:
        if self.network is None:
            return self.evidence.ranker.rescore(predictions, X)

        scores = np.zeros(predictions.indices.shape, np.float32)
        for rows in _blocks(len(predictions)):
            part = predictions.rows(rows)
            features = torch.from_numpy(self.evidence(part, X[rows], _part(titles, rows)))
            outputs = [self.network(lists).mean(0) for lists in torch.split(features, LISTS_IN_CACHE)]
            used = torch.from_numpy(part.indices >= 0)
            scores[rows] = _softmax(torch.cat(outputs), used).numpy()
        return rank_shortlist(predictions.indices, scores, predictions.k)

    def save(self, folder: Path) -> None:
        network = None
        if self.network is not None:
            network = {"sizes": self.network.sizes, "state": self.network.state_dict()}
        save_values(folder, {"network": network})
        (folder / EVIDENCE_FOLDER).mkdir()
        self.evidence.save(folder / EVIDENCE_FOLDER)

    @classmethod
    def load(cls, folder: Path) -> CalibratedRescorer:
        stored = load_values(folder)["network"]
        network = None
        if stored is not None:
            network = Network(Evidence.COUNT, *stored["sizes"])
            try:
                network.load_state_dict(stored["state"])
            except RuntimeError as error:  # torch's error for other shapes or names
                raise DataError(f"not a stored calibration: {error}", folder) from None
        return cls(Evidence.load(folder / EVIDENCE_FOLDER), network)


@dataclass(frozen=True)
class HeldOutLists:
    """The labels that a method lists for points it was not trained on, for points with a true label among them."""

    predictions: TopK
    X: sp.csr_array
    titles: TextColumn | None
    targets: Floats
    """[n, k]: the weight of each true label; a row adds up to 1."""
    counted: npt.NDArray[np.bool_]
    """[n, k]: whether there is a label whose pair with the point counts as true or as false."""

    def __len__(self) -> int:
        return len(self.predictions)

    def evidence(self, evidence: Evidence) -> Floats:
        """The features of all pairs [n, k, features]."""
        parts = [
            evidence(self.predictions.rows(rows), self.X[rows], _part(self.titles, rows)) for rows in _blocks(len(self))
        ]
        return np.concatenate(parts)


@register_reranker("calibrated")
class Calibrated(Reranker[CalibratedConfig]):
    """ELIAS++'s sparse ranker and calibration: the method trained twice, its evidence weighed on held-out points"""

    config_type = CalibratedConfig
    rescorer_type = CalibratedRescorer
    version = "2"
    citation = "Gupta et al., ELIAS: End-to-End Learning to Index and Search in Large Output Spaces, NeurIPS 2022"

    def fit(self, data: Dataset, run: Run, first: Trained) -> CalibratedRescorer:
        # Before the network: in the meantime a second process may already do the second training.
        evidence = Evidence.of(run.unaugmented, self._ranker, run, first)
        network = None
        for part in self.retraining_data(run):
            run.log(f"calibration: the method is trained again without {len(part.test):,} of its points")
            _, second = first.retrain(part)
            second_evidence = Evidence.of(part, self._ranker, run, second)
            network = self._train_network(part, second_evidence, second, run)
        if network is None:
            run.log(f"calibration takes {MIN_HELD_OUT} held-out points or more: the sparse ranker ranks alone")
        return CalibratedRescorer(evidence, network)

    def retraining_data(self, run: Run) -> Sequence[Dataset]:
        """The data with some training points as its test points; nothing where these would be too few."""
        data = run.unaugmented
        count = self._held_out(data)
        if count < MIN_HELD_OUT:
            return ()
        generator = np.random.default_rng(derive_seed(run.seed, "held out"))
        held_out = generator.permutation(len(data.train))[:count]
        return (hold_out(data, held_out),)

    def estimate_memory(self, data: Dataset) -> int:
        """The sparse ranker's need, and the evidence of the held-out points, which training cuts batches from."""
        lists = self._held_out(data) + 2 * POINTS_AT_A_TIME
        evidence = 4 * Evidence.COUNT * min(LABELS_LISTED, data.label_count) * lists
        return self._ranker.estimate_memory(data) + evidence

    @property
    def _ranker(self) -> SparseRanker:
        return SparseRanker(self.config.sparse)

    def _held_out(self, data: Dataset) -> int:
        """How many training points are held out."""
        count = round(self.config.share * len(data.train))
        return min(count, self.config.most)

    def _train_network(self, data: Dataset, evidence: Evidence, second: Ranking, run: Run) -> Network:
        """Train on `data.test`: training points that neither the second method nor its evidence has seen."""
        c = self.config
        lists = self._held_out_lists(data, second, run)
        torch.manual_seed(derive_seed(run.seed, "calibration"))
        network = Network(Evidence.COUNT, c.hidden, c.networks)
        if len(lists):
            _train(network, lists, lists.evidence(evidence), c, run)
        return network

    def _held_out_lists(self, data: Dataset, second: Ranking, run: Run) -> HeldOutLists:
        points = data.test
        predictions = second.predict(points.X, min(LABELS_LISTED, data.label_count), points.titles)
        counted = _counted(predictions, points.filter)
        is_true = _truth(predictions, binary_targets(points.Y))
        inverse = inverse_propensity(data.label_frequency, len(data.train), data.propensity)
        label_weights = inverse**self.config.rare
        weights = label_weights[predictions.indices].astype(np.float32)
        targets = is_true * counted * weights

        rows = np.flatnonzero(targets.any(axis=1))
        targets = targets[rows]
        run.log(f"calibration: {len(rows):,} of {len(points):,} held-out points list a true label")
        titles = None
        if points.titles is not None:
            titles = points.titles.take(rows)
        return HeldOutLists(
            predictions=predictions.rows(rows),
            X=points.X[rows],
            titles=titles,
            targets=targets / targets.sum(axis=1, keepdims=True),
            counted=counted[rows],
        )


def _train(network: Network, lists: HeldOutLists, evidence: Floats, c: CalibratedConfig, run: Run) -> None:
    """List-wise: the softmax over each list against its true labels."""
    features = torch.from_numpy(evidence)
    targets = torch.from_numpy(lists.targets)
    counted = torch.from_numpy(lists.counted)
    network.fit_scale(features[counted])

    optimiser = torch.optim.AdamW(network.parameters(), c.lr, weight_decay=1e-4)
    steps_per_epoch = math.ceil(len(lists) / LISTS_PER_STEP)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, c.lr, total_steps=c.epochs * steps_per_epoch)
    for _ in run.progress(range(c.epochs), "calibration", c.epochs):
        for batch in torch.split(torch.randperm(len(lists)), LISTS_PER_STEP):
            uncounted = ~counted[batch]
            f = network(features[batch]).masked_fill(uncounted, -torch.inf)
            log_scores = torch.log_softmax(f, 2).masked_fill(uncounted, 0)
            # Summed over the networks: each learns by itself. If only their mean had to fit, they would be one network.
            loss = -(targets[batch] * log_scores).sum((0, 2)).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()


def _softmax(f: Tensor, used: Tensor) -> Tensor:
    """Over the used places of each row; a row without any is zero."""
    masked = f.masked_fill(~used, -torch.inf)
    return torch.softmax(masked, 1).nan_to_num_(0)


def _blocks(points: int) -> Iterator[slice]:
    for start in range(0, points, POINTS_AT_A_TIME):
        yield slice(start, start + POINTS_AT_A_TIME)


def _part(titles: Sequence[str] | None, rows: slice) -> Sequence[str] | None:
    if titles is None:
        return None
    return titles[rows]


def _truth(predictions: TopK, Y: sp.csr_array) -> npt.NDArray[np.bool_]:
    """Whether each predicted label is true."""
    points = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    return _among(predictions, points, Y.indices, Y.shape[1])


def _counted(predictions: TopK, ignored: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether a place is used, and its pair is not among those that count neither way."""
    largest = max(predictions.indices.max(initial=0), ignored[:, 1].max(initial=0))
    label_count = int(largest) + 1
    is_ignored = _among(predictions, ignored[:, 0], ignored[:, 1], label_count)
    return (predictions.indices >= 0) & ~is_ignored


def _among(
    predictions: TopK,
    points: npt.NDArray[np.integer],
    labels: npt.NDArray[np.integer],
    label_count: int,
) -> npt.NDArray[np.bool_]:
    """Whether each predicted pair of point and label is one of the pairs given."""
    predicted = np.arange(len(predictions))[:, None] * label_count + predictions.indices
    pairs = points.astype(np.int64) * label_count + labels
    return np.isin(predicted, pairs) & (predictions.indices >= 0)
