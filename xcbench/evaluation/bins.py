"""Labels by frequency: how much of a metric comes from the tail, and how much from the head."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xcbench.errors import InputError
from xcbench.evaluation.arrays import IntArray
from xcbench.evaluation.evaluator import Evaluation
from xcbench.evaluation.metric import Metric
from xcbench.evaluation.points import PointScores


def frequency_bins(
    label_frequency: npt.NDArray[np.integer],
    count: int,
    equal: Literal["volume", "labels"] = "volume",
) -> IntArray:
    """The bin of each label, from 0 for the rarest labels to count - 1 for the most frequent.

    Parameters
    ----------
    label_frequency
        [L] The number of training points of each label.
    count
        The number of bins.
    equal
        Equal `volume` is what the papers plot: every bin holds about the same number of training pairs, so the last
        one may be a handful of labels. Labels of one frequency share a bin, so that no two bins overlap. Equal `labels`
        with count 10 are deciles; there, ties go by label id.
    """
    if count < 1:
        raise InputError(f"there must be at least one bin, got {count}")

    frequency = np.asarray(label_frequency, np.float64)
    if equal == "labels" or not frequency.sum():
        group = np.empty(len(frequency), np.int64)
        group[np.argsort(frequency, kind="stable")] = np.arange(len(frequency))
        volume = np.ones(len(frequency))
    else:
        values, group, labels = np.unique(frequency, return_inverse=True, return_counts=True)
        volume = values * labels

    # A group belongs where its middle lies: one that spans a border cannot leave both sides half empty.
    middle = np.cumsum(volume) - volume / 2
    bins: IntArray = np.minimum(middle * count // max(volume.sum(), 1), count - 1).astype(np.int64)[group]
    return bins


def mean_by_frequency(
    of_labels: Mapping[str, npt.NDArray[np.floating]],
    label_frequency: npt.NDArray[np.integer],
    count: int = 5,
) -> dict[str, Any]:
    """Curves over frequency: `y` has, by name, the mean of a quantity per bin; `x` the mean frequency per bin.

    Parameters
    ----------
    of_labels
        Quantities by name, each with one value per label.
    label_frequency
        [L] The number of training points of each label.
    count
        The number of bins of equal volume. Bins without labels are left out.
    """
    bins = frequency_bins(label_frequency, count)
    labels_of_bins = [np.flatnonzero(bins == number) for number in np.unique(bins)]

    curves = {}
    for name, values in of_labels.items():
        curves[name] = [float(values[labels].mean()) for labels in labels_of_bins]
    frequency = [float(label_frequency[labels].mean()) for labels in labels_of_bins]
    return {"x": frequency, "y": curves}


def contributions(
    evaluation: Evaluation,
    metric: str | Metric,
    bins: npt.NDArray[np.integer],
    count: int,
) -> list[PointScores]:
    """What the hits of each bin add to a metric, point by point; the values add up to the metric's.

    Parameters
    ----------
    evaluation
        The evaluated predictions.
    metric
        A metric that is a sum over hits.
    bins
        [L] The bin of each label, as `frequency_bins` returns it.
    count
        The number of bins.
    """
    return [evaluation.per_point(metric, bins == number) for number in range(count)]
