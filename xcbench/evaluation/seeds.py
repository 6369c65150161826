"""Intervals and tests over test points and seeds together: would other points, or training again, turn it around?

A figure that is averaged over seeds varies for two reasons. Its variance is the sum of two parts that are estimated
apart: that of the points, from what each adds to the mean over seeds, and that of the seeds, from the figures of single
seeds. Three seeds say little about the second part, so the interval is one of Student's t, with the degrees of freedom
that Satterthwaite's formula gives for such a sum. A bootstrap over three seeds would draw from three values, and is too
narrow (docs/reference/metrics.md has the coverage of both).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from xcbench.errors import InputError
from xcbench.evaluation.arrays import FloatArray
from xcbench.evaluation.points import PointScores
from xcbench.evaluation.statistics import ROUNDING, Comparison, Interval


def interval_over_seeds(runs: Sequence[PointScores], level: float = 0.95) -> Interval:
    """The interval of the mean over seeds.

    Parameters
    ----------
    runs
        Scores on the same points, of two or more runs that differ in their seed.
    level
        How often such an interval holds the true value.
    """
    result = contrast_over_seeds([runs], [1.0], level=level)
    return Interval(result.difference, result.low, result.high)


def contrast_over_seeds(
    rows: Sequence[Sequence[PointScores]],
    weights: Sequence[float],
    margin: float = 0.0,
    level: float = 0.95,
) -> Comparison:
    """Test a weighted sum of rows against a margin: (1, -1) compares two rows, (1, -1, -1, 1) two gains.

    Points are paired, since all rows have the same ones; seeds are not. As in `Bootstrap.contrast`, the p-value is at
    least 2^(1 - m) where the rows differ on m points.

    Parameters
    ----------
    rows
        Scores on the same points: of each row two or more runs that differ in their seed.
    weights
        One weight per row.
    margin
        What is subtracted from the sum, in percentage points.
    level
        How often such an interval holds the true value.
    """
    if any(len(runs) < 2 for runs in rows):
        raise InputError("training noise takes two seeds or more to be seen")

    value = -margin
    of_points = np.zeros(len(rows[0][0]))
    # As in the bootstrap, a margin is what every point has to be ahead by.
    hits = np.full(len(of_points), -margin / 100)
    seed_variances = []
    for runs, weight in zip(rows, weights, strict=True):
        values = [run.value for run in runs]
        value += weight * float(np.mean(values))
        of_points += weight * np.mean([_influence(run) for run in runs], axis=0)
        hits += weight * np.mean([run.numerator for run in runs], axis=0)
        seed_variances.append(weight**2 * float(np.var(values, ddof=1)) / len(runs))

    n = len(of_points)
    point_variance = float(of_points @ of_points) / max(1, n * (n - 1))
    variance = point_variance + sum(seed_variances)
    if variance <= ROUNDING**2:
        return _certain(value, n)

    parts = [part**2 / (len(runs) - 1) for part, runs in zip(seed_variances, rows, strict=True)]
    freedom = variance**2 / (sum(parts) + point_variance**2 / max(1, n - 1))
    error = math.sqrt(variance)
    half_width = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    p_value = 2 * float(stats.t.sf(abs(value) / error, freedom))

    differs = int((np.abs(hits) > ROUNDING).sum())
    smallest = 2.0 ** (1 - differs)
    return Comparison(value, value - half_width, value + half_width, min(1.0, max(p_value, smallest)))


def _certain(value: float, points: int) -> Comparison:
    """What neither other points nor other seeds would change."""
    p_value = 1.0
    if abs(value) > ROUNDING:
        p_value = 2.0 ** (1 - points)
    return Comparison(value, value, value, p_value)


def _influence(scores: PointScores) -> FloatArray:
    """[units] How far each unit moves the metric, in percentage points times units; they add up to 0."""
    if scores.denominator is None:
        return np.asarray(100 * scores.numerator - scores.value)
    mean = scores.denominator.mean()
    if mean == 0:
        return np.zeros(len(scores))
    return np.asarray((100 * scores.numerator - scores.value * scores.denominator) / mean)
