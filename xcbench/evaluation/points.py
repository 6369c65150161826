"""The scores behind a metric, point by point: intervals, tests and averages over seeds are computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xcbench.errors import InputError
from xcbench.evaluation.arrays import BoolArray, FloatArray
from xcbench.evaluation.metric import Metric, percent


@dataclass(frozen=True)
class PointScores:
    """What each unit adds to one metric: the metric is sum(numerator) / sum(denominator).

    The units are the test points, in order. For a metric over labels they are the labels that have a test positive.

    Parameters
    ----------
    metric
        Which metric these are the scores of.
    numerator
        One number per unit.
    denominator
        One number per unit. None for a plain mean, where each unit counts 1.
    """

    metric: Metric
    numerator: FloatArray  # [units]
    denominator: FloatArray | None = None  # [units]

    def __len__(self) -> int:
        return len(self.numerator)

    @property
    def value(self) -> float:
        """The metric, in percent; 0 where there is nothing to find."""
        return percent(self.numerator, self.denominator)

    def of_units(self, counted: BoolArray) -> PointScores:
        """The same metric over some of the units; the others add nothing to it.

        Parameters
        ----------
        counted
            [units] Which ones count.
        """
        shares = np.ones(len(self)) if self.denominator is None else self.denominator
        return PointScores(self.metric, np.where(counted, self.numerator, 0), np.where(counted, shares, 0))

    @staticmethod
    def average(runs: Sequence[PointScores]) -> PointScores:
        """The mean over runs that differ only in their seed, point by point.

        Parameters
        ----------
        runs
            Scores of one metric on the same points.
        """
        if len({(run.metric, len(run), run.denominator is None) for run in runs}) != 1:
            raise InputError("only runs with one metric on the same points can be averaged")

        numerator = np.mean([run.numerator for run in runs], axis=0)
        denominators = [run.denominator for run in runs if run.denominator is not None]
        if not denominators:
            return PointScores(runs[0].metric, numerator)
        return PointScores(runs[0].metric, numerator, np.mean(denominators, axis=0))
