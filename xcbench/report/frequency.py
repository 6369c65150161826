"""What labels of each training frequency add to a metric: from the rare ones to the popular ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcbench.evaluation import Bootstrap, PointScores, Truth, contributions
from xcbench.runner.store import Record

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BinFigures:
    """What each bin of labels adds to a metric, with the ends of 95% intervals."""

    values: Floats
    low: Floats
    high: Floats


def bin_figures(
    runs: Mapping[str, Sequence[Record]],
    truth: Truth,
    metric: str,
    bins: npt.NDArray[np.int64],
    count: int,
) -> dict[str, BinFigures]:
    """Return what each bin of labels adds to a metric, by the name of the runs.

    Parameters
    ----------
    runs
        Runs by name. Those that differ by seed only stand together and are averaged.
    truth
        The true labels of their dataset.
    metric
        The name of a metric that is a sum over hits.
    bins
        The bin of each label.
    count
        How many bins there are.
    """
    scores: list[PointScores] = []
    for records in runs.values():
        by_seed = [contributions(record.evaluate(truth, [metric]), metric, bins, count) for record in records]
        scores += [PointScores.average(same_bin) for same_bin in zip(*by_seed, strict=True)]
    if not scores:
        return {}

    bootstrap = Bootstrap(scores)
    intervals = [bootstrap.interval(number) for number in range(len(scores))]
    result = {}
    for number, name in enumerate(runs):
        of_run = intervals[number * count : (number + 1) * count]
        result[name] = BinFigures(
            values=np.array([interval.value for interval in of_run]),
            low=np.array([interval.low for interval in of_run]),
            high=np.array([interval.high for interval in of_run]),
        )
    return result


def bin_names(frequency: npt.NDArray[np.int64], bins: npt.NDArray[np.int64], count: int) -> list[str]:
    """Return the training points of the labels in each bin, as in `3 to 5`; a dash for a bin without labels.

    Parameters
    ----------
    frequency
        The training points of each label.
    bins
        The bin of each label.
    count
        How many bins there are.
    """
    return [_span(frequency[bins == number]) for number in range(count)]


def _span(frequency: npt.NDArray[np.int64]) -> str:
    if not len(frequency):
        return "–"
    low = frequency.min()
    high = frequency.max()
    if low == high:
        return f"{low}"
    return f"{low}–{high}"
