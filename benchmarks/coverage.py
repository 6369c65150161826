"""How often intervals over seeds and test points hold the true value, for 3, 5 and 10 seeds.

Points differ in how hard they are; seeds shift all points alike and change single points at random. `noise` is the
variance that seeds add to one run, as a multiple of what the points add. The promise is 93% for every combination.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks.figure import Figure
from xcbench.evaluation.arrays import FloatArray
from xcbench.evaluation.points import PointScores
from xcbench.evaluation.registry import parse_metric
from xcbench.evaluation.seeds import interval_over_seeds

POINTS = 1000
TRIALS = 2000
RESAMPLES = 200
HARDNESS = (0.3, 0.7)  # of the Beta distribution that chances of being right are drawn from
NOISE = (0.0, 0.25, 1.0, 4.0)
METRIC = parse_metric("P@1")


def measure() -> Iterator[Figure]:
    for seeds in (3, 5, 10):
        worst = min(((_coverage(seeds, noise), noise) for noise in NOISE), key=lambda result: result[0][0])
        (ours, bootstrap), noise = worst
        yield Figure(
            f"least coverage of 95% intervals over {seeds} seeds",
            93.0,
            ours,
            "%",
            "coverage",
            at_least=1,
            note=f"at noise {noise:g}; a bootstrap over seeds and points has {bootstrap:.1f}% there",
        )


def _coverage(seeds: int, noise: float) -> tuple[float, float]:
    """The coverage of our interval and that of a bootstrap over seeds and points, in percent."""
    rng = np.random.default_rng([seeds, round(100 * noise)])
    a, b = HARDNESS
    mean = a / (a + b)
    point_variance = mean * (1 - mean) / POINTS  # of a score that is 0 or 1
    shift = np.sqrt(noise * point_variance) / mean

    ours = 0
    by_bootstrap = []
    for trial in range(TRIALS):
        chance = rng.beta(a, b, POINTS)
        shifted = chance * (1 + rng.normal(0, shift, (seeds, 1)))
        right = (rng.random((seeds, POINTS)) < shifted).astype(float)
        interval = interval_over_seeds([PointScores(METRIC, row) for row in right])
        ours += interval.low <= 100 * mean <= interval.high
        if trial < TRIALS // 5:  # it takes far longer
            low, high = _bootstrap(right, rng)
            by_bootstrap.append(low <= mean <= high)
    return 100 * ours / TRIALS, 100 * float(np.mean(by_bootstrap))


def _bootstrap(right: FloatArray, rng: np.random.Generator) -> tuple[float, float]:
    seeds, points = right.shape
    means = []
    for _ in range(RESAMPLES):
        over_seeds = right[rng.integers(0, seeds, seeds)].mean(axis=0)
        means.append(over_seeds[rng.integers(0, points, points)].mean())
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
