"""The calibration of ELIAS++ as its authors have it: a decision tree over two scores and a frequency.

On held-out points, a tree learns how often a label is right, given the score of the sparse ranker, the method's own
score and how many training points the label has. The labels are then ranked by

    score = a tree(pair) + (1 - a) ranker(pair)

with a = 0.3 as in the authors' code; a = 1 is the paper's, but a tree of five levels has 32 scores, so most labels of a
list are tied. `calibrated` has our network instead. As there, the method is trained a second time without the points
that are held out, and the one that is kept learns from all points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.tree import DecisionTreeClassifier

from xcbench.data import Dataset, TopK
from xcbench.kernels.arrays import Doubles, Floats, Longs
from xcbench.plugins import Ranking, Reranker, Rescorer, Run, Trained, load_values, register_reranker, save_values
from xcbench.plugins.stages import derive_seed
from xcbench.shortlist.predictors import rank_shortlist

from ._held_out import MIN_HELD_OUT, HeldOutLists, HoldOutConfig, scores_by_frequency
from .sparse import LABELS_LISTED, SparseRanker, SparseRankerConfig, SparseRescorer

INPUTS = 3
RANKER_FOLDER = "ranker"


@dataclass(frozen=True)
class TreeConfig(HoldOutConfig):
    """The tree and its weight are the authors'."""

    depth: int = 5
    weight: float = 0.3
    """a: the rest is the sparse ranker's score."""
    sparse: SparseRankerConfig = field(default_factory=SparseRankerConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth < 1 or not 0 <= self.weight <= 1:
            raise ValueError(f"depth is at least 1 and weight from 0 to 1, got {self.depth} and {self.weight}")


@dataclass(frozen=True)
class Tree:
    """A decision tree as arrays, one entry per node. Node 0 is the root; a leaf leads to itself."""

    inputs: Longs
    """Which input a node looks at."""
    thresholds: Doubles
    """An input up to this leads to the left."""
    left: Longs
    right: Longs
    shares: Floats
    """The share of true pairs among those that reached the node."""
    depth: int

    @classmethod
    def fit(cls, inputs: Floats, is_true: npt.NDArray[np.bool_], depth: int, seed: int) -> Tree:
        """Learn from pairs: inputs [pairs, INPUTS], and whether each is true, [pairs]."""
        fitted = DecisionTreeClassifier(max_depth=depth, random_state=seed).fit(inputs, is_true)
        nodes = fitted.tree_
        itself = np.arange(nodes.node_count)
        is_leaf = nodes.children_left < 0
        counts = nodes.value[:, 0, :]  # of false and true pairs, as far as there are any
        true_counts = counts @ fitted.classes_.astype(np.float64)
        return cls(
            inputs=np.where(is_leaf, 0, nodes.feature),
            thresholds=nodes.threshold.copy(),
            left=np.where(is_leaf, itself, nodes.children_left),
            right=np.where(is_leaf, itself, nodes.children_right),
            shares=(true_counts / counts.sum(1)).astype(np.float32),
            depth=nodes.max_depth,
        )

    def __call__(self, inputs: Floats) -> Floats:
        """The share of true pairs in the leaf of each pair, [...] for inputs [..., INPUTS]."""
        pairs = inputs.reshape(-1, INPUTS)
        rows = np.arange(len(pairs))
        nodes = np.zeros(len(pairs), np.int64)
        for _ in range(self.depth):
            goes_left = pairs[rows, self.inputs[nodes]] <= self.thresholds[nodes]
            nodes = np.where(goes_left, self.left[nodes], self.right[nodes])
        return self.shares[nodes].reshape(inputs.shape[:-1])


class TreeRescorer(Rescorer):
    """The sparse ranker and the tree behind it; without a tree, the ranker alone."""

    def __init__(self, ranker: SparseRescorer, frequency: Floats, weight: float, tree: Tree | None = None) -> None:
        self.ranker = ranker
        self.frequency = frequency
        self.weight = weight
        self.tree = tree
        self.reads_vectors = ranker.reads_vectors

    def rescore(self, predictions: TopK, X: sp.csr_array, titles: Sequence[str] | None = None) -> TopK:
        if self.tree is None:
            return self.ranker.rescore(predictions, X)
        inputs = self.inputs(predictions, X)
        scores = self.weight * self.tree(inputs) + (1 - self.weight) * inputs[:, :, 0]
        return rank_shortlist(predictions.indices, scores.astype(np.float32), predictions.k)

    def inputs(self, predictions: TopK, X: sp.csr_array) -> Floats:
        """Of each listed pair: the ranker's score, the method's own, and the label's share of training points."""
        labels = predictions.indices
        inputs = np.zeros((*labels.shape, INPUTS), np.float32)
        inputs[:, :, 0] = self.ranker.scores(predictions, self.ranker.margins(predictions, X))
        inputs[:, :, 1] = np.where(labels >= 0, predictions.scores, 0)
        inputs[:, :, 2] = self.frequency[labels]
        return inputs

    def save(self, folder: Path) -> None:
        tree: dict[str, Any] | None = None
        if self.tree is not None:
            tree = dict(vars(self.tree))
        save_values(folder, {"frequency": self.frequency, "weight": self.weight, "tree": tree})
        (folder / RANKER_FOLDER).mkdir()
        self.ranker.save(folder / RANKER_FOLDER)

    @classmethod
    def load(cls, folder: Path) -> TreeRescorer:
        values = load_values(folder)
        tree = None
        if values["tree"] is not None:
            tree = Tree(**values["tree"])
        return cls(SparseRescorer.load(folder / RANKER_FOLDER), values["frequency"], values["weight"], tree)


@register_reranker("tree-calibrated")
class TreeCalibrated(Reranker[TreeConfig]):
    """ELIAS++'s calibration as its authors have it: a decision tree over ranker, method and frequency"""

    config_type = TreeConfig
    rescorer_type = TreeRescorer
    citation = "Gupta et al., ELIAS: End-to-End Learning to Index and Search in Large Output Spaces, NeurIPS 2022"

    def fit(self, data: Dataset, run: Run, first: Trained) -> TreeRescorer:
        # Before the tree: in the meantime a second process may already do the second training.
        uncalibrated = self._uncalibrated(run.unaugmented, run, first)
        tree = None
        for part in self.retraining_data(run):
            run.log(f"calibration: the method is trained again without {len(part.test):,} of its points")
            _, second = first.retrain(part)
            lists = HeldOutLists.of(part, second, self.reads_vectors, run)
            if len(lists):
                tree = self._tree(lists, self._uncalibrated(part, run, second), part.label_frequency, run)
        if tree is None:
            run.log(f"calibration takes {MIN_HELD_OUT} held-out points or more: the sparse ranker ranks alone")
        return TreeRescorer(uncalibrated.ranker, uncalibrated.frequency, self.config.weight, tree)

    @property
    def reads_vectors(self) -> bool:
        return self._ranker.reads_vectors

    def retraining_data(self, run: Run) -> Sequence[Dataset]:
        return self.config.split(run)

    def estimate_memory(self, data: Dataset) -> int:
        """The sparse ranker's need, and the inputs of all held-out pairs, which the tree copies and sorts."""
        pairs = min(LABELS_LISTED, data.label_count) * self.config.count(data)
        return self._ranker.estimate_memory(data) + 8 * 4 * INPUTS * pairs

    @property
    def _ranker(self) -> SparseRanker:
        return SparseRanker(self.config.sparse)

    def _uncalibrated(self, data: Dataset, run: Run, method: Ranking) -> TreeRescorer:
        """The sparse ranker behind a method, and what the tree is to read beside it."""
        examples, power = self._ranker.examples(data, run, method)
        ranker = self._ranker.rescorer(data, examples, power, run, method)
        frequency = (data.label_frequency + 1) / max(len(data.train), 1)
        return TreeRescorer(ranker, frequency.astype(np.float32), self.config.weight)

    def _tree(self, lists: HeldOutLists, second: TreeRescorer, label_frequency: Longs, run: Run) -> Tree:
        """Learn from the pairs of held-out points; report Figure 4."""
        inputs = second.inputs(lists.predictions, lists.X)
        counted = lists.counted
        seed = derive_seed(run.seed, "calibration") % 2**32
        tree = Tree.fit(inputs[counted], lists.is_true[counted], self.config.depth, seed)
        scores = {"alone": inputs[:, :, 1], "with the sparse ranker": inputs[:, :, 0], "calibrated": tree(inputs)}
        run.report("true_label_scores", scores_by_frequency(lists, scores, label_frequency))
        return tree
