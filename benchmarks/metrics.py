"""Metrics and their intervals on one core: against napkinxc's Python metrics, pyxclib's time, and fixed budgets."""

from collections.abc import Iterator

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from napkinxc import metrics as napkinxc

from benchmarks.figure import Figure, cpu_seconds, grown_bytes
from xcbench.data import TopK
from xcbench.evaluation import Bootstrap, PointScores, Truth, evaluate, parse_metric

POINTS = 100_000
PLACES = 100
LABELS = 100_000
NAPKINXC_POINTS = 10_000
PYXCLIB_SECONDS = 0.5  # P@5 of 50,000 x 100 predictions, measured once on our machine
METRICS = ("P", "nDCG", "PSP", "PSnDCG", "R")
EVERYTHING = [f"{metric}@{k}" for metric in METRICS for k in range(1, PLACES + 1)]
WHAT = f"P, nDCG, PSP, PSnDCG, R at 1..{PLACES} for {POINTS:,} x {PLACES}"

Weights = npt.NDArray[np.float64]


def measure() -> Iterator[Figure]:
    numba.set_num_threads(1)
    predictions, Y, weights = _case(np.random.default_rng(0))
    few_predictions = predictions.rows(slice(NAPKINXC_POINTS))
    few_Y = Y[:NAPKINXC_POINTS]

    ours = _ours(few_predictions, few_Y, weights)
    theirs = _by_napkinxc(few_predictions, few_Y, weights)
    difference = np.abs(ours - theirs).max()

    def everything() -> Weights:
        return _ours(predictions, Y, weights)

    def few_by_napkinxc() -> Weights:
        return _by_napkinxc(few_predictions, few_Y, weights)

    yield Figure(
        f"{WHAT}: memory beyond the input",
        grown_bytes(everything) / 1e6,
        1000,
        "MB",
        "the budget",
        1,
    )
    yield Figure(
        WHAT,
        cpu_seconds(everything),
        cpu_seconds(few_by_napkinxc, repeat=1) * POINTS / NAPKINXC_POINTS,
        "s",
        "napkinxc",
        10,
        f"CPU time; napkinxc on {NAPKINXC_POINTS:,} points, scaled; largest difference {difference:.0e} %",
    )

    half_predictions = predictions.rows(slice(50_000))
    half_Y = Y[:50_000]

    def precision() -> object:
        return evaluate(half_predictions, Truth.of_matrix(half_Y), ["P@5"]).values()

    yield Figure(
        "P@5 for 50,000 x 100",
        cpu_seconds(precision, repeat=10),
        PYXCLIB_SECONDS,
        "s",
        "pyxclib",
        10,
        "CPU time",
    )

    scores = _scores(np.random.default_rng(1))
    yield Figure(
        "2,000 resamples of 10,000 points x 10 metrics",
        cpu_seconds(lambda: Bootstrap(scores, resamples=2000)),
        1,
        "s",
        "the budget",
        1,
        "CPU time",
    )


def _case(rng: np.random.Generator) -> tuple[TopK, sp.csr_array, Weights]:
    """Distinct random labels, falling scores, and up to nine true labels per point, half of them predicted."""
    steps = rng.integers(1, LABELS // PLACES, (POINTS, PLACES))
    start = rng.integers(0, LABELS, (POINTS, 1))
    indices = ((start + steps.cumsum(axis=1)) % LABELS).astype(np.int32)
    falling = np.linspace(1, 0, PLACES, dtype=np.float32)
    scores = np.broadcast_to(falling, indices.shape).copy()

    points = np.repeat(np.arange(POINTS), rng.integers(0, 10, POINTS))
    pairs = len(points)
    predicted = indices[points, rng.integers(0, PLACES, pairs)]
    labels = np.where(rng.random(pairs) < 0.5, predicted, rng.integers(0, LABELS, pairs))
    ones = np.ones(pairs, np.float32)
    Y = sp.csr_array((ones, (points, labels)), shape=(POINTS, LABELS))
    return TopK(indices, scores), Y, 1 + 9 * rng.random(LABELS)


def _ours(predictions: TopK, Y: sp.csr_array, weights: Weights) -> Weights:
    truth = Truth.of_matrix(Y, inverse_propensity=weights)
    values = evaluate(predictions, truth, EVERYTHING).values()
    return np.array(list(values.values()))


def _by_napkinxc(predictions: TopK, Y: sp.csr_array, weights: Weights) -> Weights:
    """The same metrics by napkinxc, from lists, by far the fastest of the forms that it takes."""
    truth = [row.tolist() for row in np.split(Y.indices, Y.indptr[1:-1])]
    ranked = predictions.indices.tolist()
    values = (
        napkinxc.precision_at_k(truth, ranked, k=PLACES),
        napkinxc.ndcg_at_k(truth, ranked, k=PLACES),
        napkinxc.psprecision_at_k(truth, ranked, weights, k=PLACES),
        napkinxc.psndcg_at_k(truth, ranked, weights, k=PLACES),
        napkinxc.recall_at_k(truth, ranked, k=PLACES),
    )
    return 100 * np.concatenate(values)


def _scores(rng: np.random.Generator) -> list[PointScores]:
    """Five means and five ratios."""
    mean = parse_metric("P@1")
    ratio = parse_metric("PSP@1")
    means = [PointScores(mean, (rng.random(10_000) < 0.3).astype(np.float64)) for _ in range(5)]
    ratios = [PointScores(ratio, rng.random(10_000), np.ones(10_000)) for _ in range(5)]
    return means + ratios
