"""The sparse ranker with calibration, as ELIAS++ has it, behind any method: all that is known of a label, weighed.

How far may a method's own score be trusted, and how far the words? That differs between rare and frequent labels, short
and long titles, and between datasets. It cannot be seen on the points that both were trained on, which they answer
almost perfectly. So the method is trained a second time, without some of its points, and a small network learns on
these how to rank the labels that are listed for them:

    score_l = softmax_l f(evidence of (x, l)),   loss = -sum_l t_l log score_l

where t_l marks the true labels, and rare ones weigh more. The network then ranks what the method trained on all points
lists. From the authors are the held-out points, and as evidence the two scores and the label's frequency; they fit a
decision tree to single pairs. Ours are the network, which compares the labels of a list with each other, the further
evidence, and the second training: the authors' method never sees the held-out points. Their tree is `tree-calibrated`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from xcbench.data import Dataset, TopK
from xcbench.errors import DataError
from xcbench.evaluation import inverse_propensity
from xcbench.kernels.arrays import Floats
from xcbench.plugins import Ranking, Reranker, Rescorer, Run, Trained, load_values, register_reranker, save_values
from xcbench.plugins.stages import derive_seed
from xcbench.shortlist.predictors import rank_shortlist

from ._evidence import Evidence
from ._held_out import MIN_HELD_OUT, POINTS_AT_A_TIME, HeldOutLists, HoldOutConfig, blocks, part_of
from .sparse import LABELS_LISTED, SparseRanker, SparseRankerConfig

EVIDENCE_FOLDER = "evidence"
LISTS_PER_STEP = 64
"""In training."""
LISTS_IN_CACHE = 128
"""In prediction: the hidden layers of more lists would not fit into the processor's cache."""


@dataclass(frozen=True)
class CalibratedConfig(HoldOutConfig):
    """`rare` and the evidence were chosen on slices of train (docs/methods/rerankers.md), the rest at once."""

    rare: float = 0.5
    """A true label weighs as much as its inverse propensity to this power: 0 aims at P@k, 1 at PSP@k."""
    networks: int = 3
    """How many are trained, from different starts; their outputs are averaged."""
    hidden: int = 32
    epochs: int = 15
    lr: float = 0.003
    sparse: SparseRankerConfig = field(default_factory=SparseRankerConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = (self.networks, self.hidden, self.epochs)
        if min(sizes) < 1 or self.lr <= 0 or self.rare < 0:
            raise ValueError("networks, hidden, epochs are at least 1, lr is positive, rare not negative")


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

    @property
    def reads_vectors(self) -> bool:  # type: ignore[override]
        return self.evidence.ranker.reads_vectors

    @torch.no_grad()
    def rescore(self, predictions: TopK, X: sp.csr_array, titles: Sequence[str] | None = None) -> TopK:
        if self.network is None:
            return self.evidence.ranker.rescore(predictions, X)

        scores = np.zeros(predictions.indices.shape, np.float32)
        for rows in blocks(len(predictions)):
            part = predictions.rows(rows)
            features = torch.from_numpy(self.evidence(part, X[rows], part_of(titles, rows)))
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

    @property
    def reads_vectors(self) -> bool:
        return self._ranker.reads_vectors

    def retraining_data(self, run: Run) -> Sequence[Dataset]:
        return self.config.split(run)

    def estimate_memory(self, data: Dataset) -> int:
        """The sparse ranker's need, and the evidence of the held-out points, which training cuts batches from."""
        lists = self.config.count(data) + 2 * POINTS_AT_A_TIME
        evidence = 4 * Evidence.COUNT * min(LABELS_LISTED, data.label_count) * lists
        return self._ranker.estimate_memory(data) + evidence

    @property
    def _ranker(self) -> SparseRanker:
        return SparseRanker(self.config.sparse)

    def _train_network(self, data: Dataset, evidence: Evidence, second: Ranking, run: Run) -> Network:
        """Train on `data.test`: training points that neither the second method nor its evidence has seen."""
        c = self.config
        lists = HeldOutLists.of(data, second, self.reads_vectors, run)
        torch.manual_seed(derive_seed(run.seed, "calibration"))
        network = Network(Evidence.COUNT, c.hidden, c.networks)
        if len(lists):
            inverse = inverse_propensity(data.label_frequency, len(data.train), data.propensity)
            _train(network, lists, _evidence_of(lists, evidence), inverse**c.rare, c, run)
        return network


def _evidence_of(lists: HeldOutLists, evidence: Evidence) -> Floats:
    """The features of all pairs [n, k, features]."""
    parts = [
        evidence(lists.predictions.rows(rows), lists.X[rows], part_of(lists.titles, rows))
        for rows in blocks(len(lists))
    ]
    return np.concatenate(parts)


def _targets(lists: HeldOutLists, label_weights: npt.NDArray[np.floating]) -> Floats:
    """[n, k]: the weight of each true label; a row adds up to 1."""
    weights = label_weights[lists.predictions.indices].astype(np.float32)
    targets: Floats = lists.is_true * weights
    targets /= targets.sum(axis=1, keepdims=True)
    return targets


def _train(
    network: Network,
    lists: HeldOutLists,
    evidence: Floats,
    label_weights: npt.NDArray[np.floating],
    c: CalibratedConfig,
    run: Run,
) -> None:
    """List-wise: the softmax over each list against its true labels."""
    features = torch.from_numpy(evidence)
    targets = torch.from_numpy(_targets(lists, label_weights))
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
