"""Intervals and tests over test points: is a difference real, or would other test points have turned it around?

Everything rests on one bootstrap: units are drawn with replacement, and each metric is computed anew as the ratio of
its resampled numerator and denominator. All scores of a `Bootstrap` see the same draws, so differences between runs
are paired. Results depend on the scores and the seed, not on time, threads or the company a score is in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xcbench.errors import InputError
from xcbench.evaluation.points import FloatArray, PointScores

MOST_UNITS = 10_000
WEIGHTS_AT_ONCE = 1_000_000
ROUNDING = 1e-9  # percentage points; a resampled difference below it is none


@dataclass(frozen=True)
class Interval:
    """A value and the range that holds most of its resamples, in percent."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """A difference in percentage points, its interval, and how surprising it were if there was none."""

    difference: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class TieGroup:
    """The best of several runs and those that cannot be told from it."""

    best: str
    tied: tuple[str, ...]  # the best among them, in the order given
    p_values: dict[str, float]  # of each run against the best, Holm-corrected


@dataclass(frozen=True)
class Spread:
    """A metric over seeds; one seed has no deviation."""

    mean: float
    deviation: float | None
    count: int


class Bootstrap:
    """Resampled values of several scores over the same units: one set of draws, any number of questions."""

    def __init__(self, scores: Sequence[PointScores], resamples: int = 2000, seed: int = 0) -> None:
        if resamples < 1:
            raise InputError(f"there must be at least one resample, got {resamples}")
        self.values = np.array([score.value for score in scores])
        rng = np.random.default_rng(seed)
        self.columns = _columns(scores, rng)
        self.draws = _ratio(_resampled_sums(self.columns, resamples, rng))  # [resamples, scores]

    def interval(self, score: int, level: float = 0.95) -> Interval:
        """The percentile interval of one score, by its position."""
        low, high = _middle(self.draws[:, score], level)
        return Interval(float(self.values[score]), low, high)

    def contrast(self, weights: Sequence[float], level: float = 0.95) -> Comparison:
        """A weighted sum of the scores against 0: (1, -1) compares two runs, (1, -1, -1, 1) two gains.

        The p-value is two-sided and agrees with the interval. It never falls below 2^(1 - m), the least that flipping
        the signs of m points could give, where m points tell the runs apart: two points prove nothing.
        """
        weight = np.asarray(weights, np.float64)
        resampled = self.draws @ weight
        low, high = _middle(resampled, level)
        turned = min((resampled <= ROUNDING).sum(), (resampled >= -ROUNDING).sum())
        telling = int((np.abs(self.columns @ weight) > ROUNDING).any(axis=0).sum())
        p_value = max(2 * (turned + 1) / (len(resampled) + 1), 2.0 ** (1 - telling))
        return Comparison(float(self.values @ weight), low, high, min(1.0, float(p_value)))


def compare(
    run: PointScores, other: PointScores, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Comparison:
    """The paired bootstrap test of run - other on the same points."""
    return Bootstrap([run, other], resamples, seed).contrast((1, -1), level)


def sign_flip_test(run: PointScores, other: PointScores, resamples: int = 10_000, seed: int = 0) -> float:
    """The p-value of a paired permutation test: had each point's two results been swapped by the toss of a coin."""
    rng = np.random.default_rng(seed)
    columns = _columns([run, other], rng)
    observed = columns.sum(axis=1)
    gap = np.stack([columns[..., 1] - columns[..., 0]] * 2, axis=-1) * (1, -1)
    swaps = (rng.integers(0, 2, (rows, columns.shape[1]), np.int8) for rows in _blocks(resamples, columns.shape[1]))
    flipped = np.concatenate([observed[:, None] + swap.astype(np.float64) @ gap for swap in swaps], axis=1)
    differences = np.abs(_ratio(flipped) @ (1, -1))
    actual = abs(run.value - other.value)
    return float((1 + (differences >= actual * (1 - 1e-9)).sum()) / (resamples + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: what the p-values are worth when this many questions were asked at once."""
    order = np.argsort(p_values, kind="stable")
    stepped = np.asarray(p_values, np.float64)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(stepped), 1)
    return [float(p) for p in corrected]


def tie_group(runs: Mapping[str, PointScores], alpha: float = 0.05, resamples: int = 10_000, seed: int = 0) -> TieGroup:
    """Which runs cannot be told apart from the best at level alpha, all comparisons corrected together."""
    names = list(runs)
    bootstrap = Bootstrap(list(runs.values()), resamples, seed)
    best = int(bootstrap.values.argmax())
    others = [column for column in range(len(names)) if column != best]
    unit = np.eye(len(names))
    corrected = holm([bootstrap.contrast(unit[best] - unit[other]).p_value for other in others])
    p_values = {names[best]: 1.0} | {names[other]: p for other, p in zip(others, corrected, strict=True)}
    return TieGroup(names[best], tuple(name for name in names if p_values[name] > alpha), p_values)


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample deviation of one metric over seeds."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(float(np.mean(values)), deviation, len(values))


def _columns(scores: Sequence[PointScores], rng: np.random.Generator) -> FloatArray:
    """Numerators and denominators, [2, units, scores].

    Many units become sums over random groups of nearly equal size, to be drawn as a whole: their spread estimates the
    same as the spread of the points, so a million points cost no more than some thousands.
    """
    if len({(len(score), score.metric.is_coverage) for score in scores}) != 1:
        raise InputError("only scores over the same points can be resampled together")
    units = len(scores[0])
    shuffled = rng.permutation(units) if units > MOST_UNITS else np.arange(units)
    starts = np.arange(min(units, MOST_UNITS)) * units // max(1, min(units, MOST_UNITS))

    def grouped(column: FloatArray | None) -> FloatArray:
        return np.add.reduceat(np.ones(units) if column is None else column[shuffled], starts)

    return np.stack(
        [
            np.stack([grouped(score.numerator) for score in scores], axis=-1),
            np.stack([grouped(score.denominator) for score in scores], axis=-1),
        ]
    )


def _resampled_sums(columns: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Sums of each column under multinomial weights: [2, resamples, scores]."""
    units = columns.shape[1]
    if not units:
        return np.zeros((2, resamples, columns.shape[2]))
    sums = []
    for rows in _blocks(resamples, units):
        picks = rng.integers(0, units, (rows, units)) + np.arange(rows)[:, None] * units
        weights = np.bincount(picks.ravel(), minlength=rows * units).reshape(rows, units).astype(np.float64)
        sums.append(weights @ columns)
    return np.concatenate(sums, axis=1)


def _blocks(resamples: int, units: int) -> list[int]:
    """How many resamples to draw at a time, so that weights stay in the cache rather than in swap."""
    rows = max(1, WEIGHTS_AT_ONCE // units)
    return [min(rows, resamples - start) for start in range(0, resamples, rows)]


def _ratio(sums: FloatArray) -> FloatArray:
    numerators, denominators = sums
    return np.asarray(100 * np.divide(numerators, denominators, out=np.zeros_like(numerators), where=denominators > 0))


def _middle(resampled: FloatArray, level: float) -> tuple[float, float]:
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1, got {level}")
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
