"""Labels by frequency: how much of a metric comes from the tail, and how much from the head."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xcbench.errors import InputError
from xcbench.evaluation.evaluator import Evaluation
from xcbench.evaluation.points import PointScores


def frequency_bins(
    label_frequency: npt.NDArray[np.integer], count: int, equal: Literal["volume", "labels"] = "volume"
) -> npt.NDArray[np.int64]:
    """The bin of each label, 0 for the rarest labels to count - 1 for the most frequent.

    Equal `volume` is what the papers plot: every bin holds about the same number of training pairs, so the last one
    may be a handful of labels. Equal `labels` with count 10 are deciles. Ties go by label id.
    """
    if count < 1:
        raise InputError(f"there must be at least one bin, got {count}")
    order = np.argsort(label_frequency, kind="stable")
    rising = np.asarray(label_frequency, np.float64)[order]
    if equal == "labels" or not rising.sum():
        rising = np.ones(len(rising))
    # A label belongs where its middle lies: a head label that spans a border cannot leave both sides half empty.
    middle = np.cumsum(rising) - rising / 2
    bins = np.empty(len(order), np.int64)
    bins[order] = np.minimum(middle * count // max(rising.sum(), 1), count - 1)
    return bins


def mean_by_frequency(
    of_labels: Mapping[str, npt.NDArray[np.floating]], label_frequency: npt.NDArray[np.integer], count: int = 5
) -> dict[str, Any]:
    """Curves over frequency: y holds, by name, the mean of a quantity in each bin with labels, x their frequency."""
    bins = frequency_bins(label_frequency, count)
    inside = [np.flatnonzero(bins == number) for number in range(count) if np.any(bins == number)]
    lines = {name: [float(values[labels].mean()) for labels in inside] for name, values in of_labels.items()}
    return {"x": [float(label_frequency[labels].mean()) for labels in inside], "y": lines}


def contributions(evaluation: Evaluation, metric: str, bins: npt.NDArray[np.integer], count: int) -> list[PointScores]:
    """What the hits of each bin add to a metric, point by point; the values add up to the metric's."""
    return [evaluation.per_point(metric, bins == number) for number in range(count)]
