"""The values behind a metric, point by point: what intervals, tests and averages over seeds are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcbench.errors import InputError
from xcbench.evaluation.metric import Metric

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PointScores:
    """What each unit adds to one metric: the metric is sum(numerator) / sum(denominator).

    The units are the test points, in order; for coverage they are the labels that have a test positive. A metric that
    is a plain mean has no denominators: each unit counts 1.
    """

    metric: Metric
    numerator: FloatArray  # [units]
    denominator: FloatArray | None = None  # [units]

    def __len__(self) -> int:
        return len(self.numerator)

    @property
    def value(self) -> float:
        """The metric, in percent; 0 where there is nothing to find."""
        total = len(self) if self.denominator is None else float(self.denominator.sum())
        return 100 * float(self.numerator.sum()) / total if total else 0.0

    @staticmethod
    def average(runs: Sequence[PointScores]) -> PointScores:
        """Runs that differ only in their seed, as one: each point's mean over the runs."""
        if len({(run.metric, len(run), run.denominator is None) for run in runs}) != 1:
            raise InputError("only runs with one metric on the same points can be averaged")
        denominators = [run.denominator for run in runs if run.denominator is not None]
        return PointScores(
            runs[0].metric,
            np.mean([run.numerator for run in runs], axis=0),
            np.mean(denominators, axis=0) if denominators else None,
        )
