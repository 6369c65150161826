"""Training points held out for calibration: a method that is trained a second time without them lists labels for them.

How far a method's score may be trusted, and how far the words, cannot be seen on the points that both were trained on,
which they answer almost perfectly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, TextColumn, TopK
from xcbench.data.holdout import hold_out
from xcbench.data.matrices import binary_targets
from xcbench.evaluation import frequency_bins
from xcbench.kernels.arrays import Floats, Longs
from xcbench.plugins import Ranking, Run
from xcbench.plugins.stages import derive_seed

from .sparse import LABELS_LISTED

MIN_HELD_OUT = 500
"""Fewer held-out points teach nothing that can be relied on: the sparse ranker then ranks alone."""
POINTS_AT_A_TIME = 1 << 12
DECILES = 10


@dataclass(frozen=True)
class HoldOutConfig:
    """Which training points are held out."""

    share: float = 0.2
    """The share of training points held out for calibration; but at most `most` points."""
    most: int = 5000

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share is greater than 0 and less than 1, got {self.share}")
        if self.most < 1:
            raise ValueError(f"most is at least 1, got {self.most}")

    def count(self, data: Dataset) -> int:
        """How many training points are held out."""
        return min(round(self.share * len(data.train)), self.most)

    def split(self, run: Run) -> Sequence[Dataset]:
        """The data with some training points as its test points; nothing where these would be too few."""
        data = run.unaugmented
        count = self.count(data)
        if count < MIN_HELD_OUT:
            return ()
        generator = np.random.default_rng(derive_seed(run.seed, "held out"))
        held_out = generator.permutation(len(data.train))[:count]
        return (hold_out(data, held_out),)


@dataclass(frozen=True)
class HeldOutLists:
    """The labels that a method lists for points it was not trained on, for points with a true label among them."""

    predictions: TopK
    X: sp.csr_array
    """As the ranker reads it."""
    titles: TextColumn | None
    is_true: npt.NDArray[np.bool_]
    """[n, k]: whether the label is one of the point's true ones, and counts."""
    counted: npt.NDArray[np.bool_]
    """[n, k]: whether there is a label whose pair with the point counts as true or as false."""

    def __len__(self) -> int:
        return len(self.predictions)

    @classmethod
    def of(cls, data: Dataset, second: Ranking, with_vectors: bool, run: Run) -> HeldOutLists:
        """Of `data.test`: training points that the second method has not seen."""
        points = data.test
        predictions = second.predict(points.X, min(LABELS_LISTED, data.label_count), points.titles)
        counted = _counted(predictions, points.filter)
        is_true = _truth(predictions, binary_targets(points.Y)) & counted

        rows = np.flatnonzero(is_true.any(axis=1))
        run.log(f"calibration: {len(rows):,} of {len(points):,} held-out points list a true label")
        X = points.X[rows]
        titles = None
        if points.titles is not None:
            titles = points.titles.take(rows)
        if with_vectors:
            X = second.with_vectors(X, titles)
        return cls(predictions.rows(rows), X, titles, is_true[rows], counted[rows])


def scores_by_frequency(
    lists: HeldOutLists,
    scores: dict[str, Floats],
    label_frequency: Longs,
) -> dict[str, Any]:
    """ELIAS' Figure 4: the mean score of true labels, by decile of their frequency.

    Parameters
    ----------
    lists
        The labels of held-out points.
    scores
        Scores of these labels by name, [n, k] each.
    label_frequency
        [L] how many training points each label has. Each decile has a tenth of all training pairs.
    """
    labels = lists.predictions.indices[lists.is_true]
    deciles = frequency_bins(label_frequency, DECILES)[labels]
    pairs = np.bincount(deciles, minlength=DECILES)
    used = np.flatnonzero(pairs)

    curves = {}
    for name, values in scores.items():
        sums = np.bincount(deciles, values[lists.is_true], minlength=DECILES)
        curves[name] = (sums[used] / pairs[used]).tolist()
    return {"x": (used + 1).tolist(), "y": curves}


def blocks(points: int) -> Iterator[slice]:
    """Some points at a time."""
    for start in range(0, points, POINTS_AT_A_TIME):
        yield slice(start, start + POINTS_AT_A_TIME)


def part_of(titles: Sequence[str] | None, rows: slice) -> Sequence[str] | None:
    """The titles of some points, if there are any."""
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
