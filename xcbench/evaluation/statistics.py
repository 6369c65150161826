"""Intervals and tests over test points: is a difference real, or would other test points have turned it around?

Everything rests on one bootstrap: units are drawn with replacement, and each metric is computed anew as the ratio of
its resampled numerator and denominator. All scores of a `Bootstrap` share the same draws, so differences between runs
are paired. Results depend on the scores and the seed, not on time, threads or which other scores are resampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xcbench.errors import InputError
from xcbench.evaluation.arrays import FloatArray, IntArray
from xcbench.evaluation.points import PointScores

MAX_UNITS = 10_000
WEIGHTS_AT_ONCE = 1_000_000
ROUNDING = 1e-9  # percentage points; a resampled difference below it is none


@dataclass(frozen=True)
class Interval:
    """A metric and its bootstrap interval, in percent; NaN where the data does not define it.

    Parameters
    ----------
    value
        The metric on the test points.
    low, high
        The range that holds most of its resampled values.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """The difference between two runs, in percentage points.

    Parameters
    ----------
    difference
        The difference on the test points.
    low, high
        Its bootstrap interval.
    p_value
        How probable a difference this large would be if there was none.
    """

    difference: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class TieGroup:
    """The best of several runs, and the runs that are not significantly different from it.

    Parameters
    ----------
    best
        The name of the run with the highest value.
    tied
        The names of the best run and of those not significantly different from it, in the order given.
    p_values
        Of each run against the best, Holm-corrected.
    """

    best: str
    tied: tuple[str, ...]
    p_values: dict[str, float]


@dataclass(frozen=True)
class Spread:
    """A metric over seeds.

    Parameters
    ----------
    mean
        The mean over seeds.
    deviation
        The sample deviation; None with a single seed.
    count
        The number of seeds.
    """

    mean: float
    deviation: float | None
    count: int


class Bootstrap:
    """Resampled values of several scores over the same units; all scores share the draws.

    Parameters
    ----------
    scores
        Scores over the same points, of any runs and metrics.
    resamples
        How often the units are drawn anew.
    seed
        Where the random draws start.
    """

    def __init__(self, scores: Sequence[PointScores], resamples: int = 2000, seed: int = 0) -> None:
        if resamples < 1:
            raise InputError(f"there must be at least one resample, got {resamples}")

        rng = np.random.default_rng(seed)
        self.values = np.array([score.value for score in scores])
        self.columns = _columns(scores, rng)  # [2, units, scores]
        self.draws = _ratio(_resampled_sums(self.columns, resamples, rng))  # [resamples, scores]

    def interval(self, score: int, level: float = 0.95) -> Interval:
        """The percentile interval of one score.

        Parameters
        ----------
        score
            The position of the score.
        level
            The share of resamples that the interval holds.
        """
        low, high = _middle(self.draws[:, score], level)
        return Interval(float(self.values[score]), low, high)

    def contrast(self, weights: Sequence[float], level: float = 0.95) -> Comparison:
        """Test a weighted sum of the scores against 0: (1, -1) compares two runs, (1, -1, -1, 1) two gains.

        The p-value is two-sided and agrees with the interval. Where the runs differ on m points, it is at least
        2^(1 - m), the smallest p-value that flipping the signs of m points could give: two points prove nothing.

        Parameters
        ----------
        weights
            One weight per score.
        level
            The share of resamples that the interval holds.
        """
        weight = np.asarray(weights, np.float64)
        resampled = self.draws @ weight
        low, high = _middle(resampled, level)

        not_positive = (resampled <= ROUNDING).sum()
        not_negative = (resampled >= -ROUNDING).sum()
        p_value = 2 * (min(not_positive, not_negative) + 1) / (len(resampled) + 1)

        differs = (np.abs(self.columns @ weight) > ROUNDING).any(axis=0)
        smallest = 2.0 ** (1 - int(differs.sum()))
        p_value = min(1.0, float(max(p_value, smallest)))
        return Comparison(float(self.values @ weight), low, high, p_value)


def compare(
    run: PointScores,
    other: PointScores,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """The paired bootstrap test of run - other.

    Parameters
    ----------
    run, other
        Scores on the same points.
    level
        The share of resamples that the interval of the difference holds.
    resamples
        How often the points are drawn anew.
    seed
        Where the random draws start.
    """
    bootstrap = Bootstrap([run, other], resamples, seed)
    return bootstrap.contrast((1, -1), level)


def sign_flip_test(run: PointScores, other: PointScores, resamples: int = 10_000, seed: int = 0) -> float:
    """The p-value of a paired permutation test, in which a coin decides for each point whether the runs are swapped.

    Parameters
    ----------
    run, other
        Scores on the same points.
    resamples
        How often all coins are thrown.
    seed
        Where the random draws start.
    """
    rng = np.random.default_rng(seed)
    columns = _columns([run, other], rng)
    units = columns.shape[1]
    observed = columns.sum(axis=1)

    # What swapping a unit adds to the sums of either run.
    other_minus_run = columns[..., 1] - columns[..., 0]
    gap = np.stack([other_minus_run, other_minus_run], axis=-1) * (1, -1)

    blocks = []
    for rows in _blocks(resamples, units):
        swap = rng.integers(0, 2, (rows, units), np.int8)
        swapped = swap.astype(np.float64) @ gap
        blocks.append(observed[:, None] + swapped)

    flipped = np.concatenate(blocks, axis=1)
    differences = np.abs(_ratio(flipped) @ (1, -1))
    actual = abs(run.value - other.value)
    at_least_as_large = (differences >= actual * (1 - 1e-9)).sum()
    return float((1 + at_least_as_large) / (resamples + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values for the number of tests.

    Parameters
    ----------
    p_values
        One p-value per test.
    """
    tests = len(p_values)
    order = np.argsort(p_values, kind="stable")
    ascending = np.asarray(p_values, np.float64)[order]

    stepped = ascending * np.arange(tests, 0, -1)
    monotone = np.maximum.accumulate(stepped)
    corrected = np.empty(tests)
    corrected[order] = np.minimum(monotone, 1)
    return [float(p) for p in corrected]


def tie_group(
    runs: Mapping[str, PointScores],
    alpha: float = 0.05,
    resamples: int = 10_000,
    seed: int = 0,
) -> TieGroup:
    """Find the runs that are not significantly different from the best, all comparisons corrected together.

    Parameters
    ----------
    runs
        Scores on the same points, by the name of the run.
    alpha
        The significance level.
    resamples
        How often the points are drawn anew.
    seed
        Where the random draws start.
    """
    names = list(runs)
    bootstrap = Bootstrap(list(runs.values()), resamples, seed)
    best = int(bootstrap.values.argmax())
    others = [column for column in range(len(names)) if column != best]

    unit = np.eye(len(names))
    uncorrected = [bootstrap.contrast(unit[best] - unit[other]).p_value for other in others]
    p_values = {names[best]: 1.0}
    for other, p_value in zip(others, holm(uncorrected), strict=True):
        p_values[names[other]] = p_value

    tied = tuple(name for name in names if p_values[name] > alpha)
    return TieGroup(names[best], tied, p_values)


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample deviation of one metric over seeds.

    Parameters
    ----------
    values
        One value per seed.
    """
    deviation = None
    if len(values) > 1:
        deviation = float(np.std(values, ddof=1))
    return Spread(float(np.mean(values)), deviation, len(values))


def _columns(scores: Sequence[PointScores], rng: np.random.Generator) -> FloatArray:
    """Numerators and denominators, [2, units, scores].

    Many units become sums over random groups of nearly equal size, to be drawn as a whole: their spread estimates the
    same as the spread of the points, so a million points cost no more than some thousands.
    """
    if len({(len(score), score.metric.family.unit) for score in scores}) != 1:
        raise InputError("only scores over the same points can be resampled together")

    units = len(scores[0])
    groups = min(units, MAX_UNITS)
    order = np.arange(units)
    if units > MAX_UNITS:
        order = rng.permutation(units)
    starts = np.arange(groups) * units // max(1, groups)

    numerators = []
    denominators = []
    for score in scores:
        denominator = score.denominator
        if denominator is None:
            denominator = np.ones(units)
        numerators.append(np.add.reduceat(score.numerator[order], starts))
        denominators.append(np.add.reduceat(denominator[order], starts))

    numerator_table = np.stack(numerators, axis=-1)
    denominator_table = np.stack(denominators, axis=-1)
    return np.stack([numerator_table, denominator_table])


def _resampled_sums(columns: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Sums of each column under multinomial weights, [2, resamples, scores]."""
    units = columns.shape[1]
    if not units:
        return np.zeros((2, resamples, columns.shape[2]))

    sums = []
    for rows in _blocks(resamples, units):
        weights = _multinomial(rows, units, rng)
        sums.append(weights @ columns)
    return np.concatenate(sums, axis=1)


def _multinomial(rows: int, units: int, rng: np.random.Generator) -> FloatArray:
    """How often each unit is drawn in each of `rows` resamples, [rows, units]."""
    picks = rng.integers(0, units, (rows, units))
    # One bincount counts all rows, as if row r had units r * units, r * units + 1, ...
    picks = picks + np.arange(rows)[:, None] * units
    counts: IntArray = np.bincount(picks.ravel(), minlength=rows * units)
    return counts.reshape(rows, units).astype(np.float64)


def _blocks(resamples: int, units: int) -> Iterator[int]:
    """How many resamples to draw at a time, so that their weights fit into the cache."""
    rows = max(1, WEIGHTS_AT_ONCE // units)
    for start in range(0, resamples, rows):
        yield min(rows, resamples - start)


def _ratio(sums: FloatArray) -> FloatArray:
    """Numerators by denominators in percent; 0 where the denominator is 0."""
    numerators, denominators = sums
    ratio = np.zeros_like(numerators)
    np.divide(
        numerators,
        denominators,
        out=ratio,
        where=denominators > 0,
    )
    return np.asarray(100 * ratio)


def _middle(resampled: FloatArray, level: float) -> tuple[float, float]:
    """The borders of the middle part of the resampled values."""
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1, got {level}")

    tail = (1 - level) / 2
    low, high = np.quantile(resampled, [tail, (1 + level) / 2])
    return float(low), float(high)
