"""Gandalf (Kharbanda et al., KDD 2024): label titles as training points, whose targets are label co-occurrences.

With C = Y^T Y, the title z_j of label j becomes a point with the soft targets t_ji = P(i | j) = C_ij / C_jj, as far as
these are above delta; t_jj is 1. The training set D becomes G = D u {(z_j, t_j)}. Models and predictions stay the same.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, Split
from xcbench.data.matrices import binary_targets
from xcbench.data.points import take_points
from xcbench.kernels.arrays import Floats
from xcbench.labels.graph import conditional_probabilities
from xcbench.labels.walk import random_walk_graph
from xcbench.plugins import Augmentation, Run, register_augmentation

from ._label_points import label_points, labels_with_text, with_points

CITATION = (
    "Kharbanda et al., Learning label-label correlations in Extreme Multi-label Classification via Label Features"
)


@dataclass(frozen=True)
class GandalfConfig:
    """The paper's settings. `most_labels` and `by_labels` are ours, for points with very many labels."""

    delta: float = 0.1
    """Only targets above this are kept."""
    graph: Literal["cooccurrence", "walk"] = "cooccurrence"
    """What the targets are made of: C, or how often ECLARE's random walks from j visit i (Table 7)."""
    share: float = 1.0
    """The share of label titles that become points (Figure 3)."""
    drawn: Literal["uniform", "tail"] = "uniform"
    """Which ones, if not all: any, or those with the fewest points."""
    most_labels: int | None = None
    """Points with more labels than this do not count in C; by default all do."""
    by_labels: bool = False
    """Whether a point counts 1 over its number of labels in C, instead of 1."""

    def __post_init__(self) -> None:
        if self.delta < 0:
            raise ValueError(f"delta is not negative, got {self.delta}")
        if not 0 < self.share <= 1:
            raise ValueError(f"share is greater than 0 and at most 1, got {self.share}")
        if self.most_labels is not None and self.most_labels < 1:
            raise ValueError(f"most_labels is at least 1, got {self.most_labels}")
        if self.by_labels and self.graph == "walk":
            raise ValueError("by_labels weighs co-occurrences, and walks count none")


def gandalf_targets(Y: sp.csr_array, c: GandalfConfig, seed: int) -> sp.csr_array:
    """[L, L]: row j has the targets of label j's title."""
    weights = _point_weights(Y, c)
    if c.graph == "cooccurrence":
        return conditional_probabilities(Y, c.delta, point_weights=weights)
    if weights is not None:
        Y = Y[np.flatnonzero(weights)]
    visits = random_walk_graph(Y, seed=seed)
    return _above(_by_diagonal(visits), c.delta)


def _point_weights(Y: sp.csr_array, c: GandalfConfig) -> Floats | None:
    """How much each point counts; None where all count alike."""
    if c.most_labels is None and not c.by_labels:
        return None
    labels = np.diff(binary_targets(Y).indptr)
    weights = np.ones(len(labels), np.float32)
    if c.by_labels:
        weights /= np.maximum(labels, 1)
    if c.most_labels is not None:
        weights[labels > c.most_labels] = 0
    return weights


def _by_diagonal(visits: sp.csr_array) -> sp.csr_array:
    """Rows divided by their diagonal, which every row has, and cut to 1."""
    scale = sp.diags_array(1 / visits.diagonal(), format="csr")
    shares: sp.csr_array = (scale @ visits).tocsr().astype(np.float32)
    np.minimum(shares.data, 1, out=shares.data)
    return shares


def _above(targets: sp.csr_array, delta: float) -> sp.csr_array:
    """The entries above delta, and the diagonal."""
    rows = np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr))
    kept: sp.csr_array = targets.copy()
    kept.data[(targets.data <= delta) & (targets.indices != rows)] = 0
    kept.eliminate_zeros()
    return kept


def drawn_labels(data: Dataset, c: GandalfConfig, name: str, seed: int) -> npt.NDArray[np.int64]:
    """The labels whose titles become points, ascending.

    Parameters
    ----------
    data
        The data before any augmentation.
    c
        Says how many, and which.
    name
        What the augmentation is called.
    seed
        Of the draw.
    """
    labels = labels_with_text(data, name)
    count = max(1, round(c.share * len(labels)))
    if c.drawn == "tail":
        order = np.argsort(data.label_frequency[labels], kind="stable")
    else:
        order = np.random.default_rng(seed).permutation(len(labels))
    return np.sort(labels[order[:count]])


@register_augmentation("gandalf")
class Gandalf(Augmentation[GandalfConfig]):
    """Label titles as training points with co-occurrence probabilities as soft targets (Gandalf's G = Z u D)"""

    config_type = GandalfConfig
    citation = CITATION

    def apply(self, data: Dataset, run: Run) -> Dataset:
        return with_points(data, self.points(run))

    def points(self, run: Run) -> Split:
        """The label titles and their targets, which come from the data before any augmentation."""
        original = run.unaugmented
        labels = drawn_labels(original, self.config, self.name, run.seed)
        targets = gandalf_targets(original.train.Y, self.config, run.seed)
        points = label_points(original, labels, targets)
        run.log(f"{self.name}: {len(points):,} label titles with {points.Y.nnz / len(points):.1f} targets each")
        return points


@register_augmentation("gandalf-only")
class GandalfOnly(Gandalf):
    """Gandalf's label points alone, without the training set (its Z)"""

    def apply(self, data: Dataset, run: Run) -> Dataset:
        return dataclasses.replace(data, train=self.points(run))


@register_augmentation("gandalf-sample")
class GandalfSample(Gandalf):
    """As many points as the training set has, drawn from it and from Gandalf's label points (its U(G, N))"""

    def apply(self, data: Dataset, run: Run) -> Dataset:
        both = with_points(data, self.points(run)).train
        generator = np.random.default_rng([run.seed, 1])
        drawn = generator.choice(len(both), len(data.train), replace=False)
        return dataclasses.replace(data, train=take_points(both, np.sort(drawn)))
