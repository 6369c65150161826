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

POINTS, PLACES, LABELS = 100_000, 100, 100_000
NAPKINXC_POINTS = 10_000
PYXCLIB_SECONDS = 0.5  # P@5 of 50,000 x 100 predictions, measured once on our machine
FAMILIES = ("P", "nDCG", "PSP", "PSnDCG", "R")
EVERYTHING = [f"{family}@{k}" for family in FAMILIES for k in range(1, PLACES + 1)]
WHAT = f"P, nDCG, PSP, PSnDCG, R at 1..{PLACES} for {POINTS:,} x {PLACES}"

Weights = npt.NDArray[np.float64]


def measure() -> Iterator[Figure]:
    numba.set_num_threads(1)
    predictions, Y, weights = _case(np.random.default_rng(0))
    few = predictions.rows(slice(NAPKINXC_POINTS)), Y[:NAPKINXC_POINTS], weights
    difference = np.abs(_ours(*few) - _by_napkinxc(*few)).max()

    def everything() -> Weights:
        return _ours(predictions, Y, weights)

    yield Figure(f"{WHAT}: memory beyond the input", grown_bytes(everything) / 1e6, 1000, "MB", "the budget", 1)
    yield Figure(
        WHAT,
        cpu_seconds(everything),
        cpu_seconds(lambda: _by_napkinxc(*few), repeat=1) * POINTS / NAPKINXC_POINTS,
        "s",
        "napkinxc",
        10,
        f"CPU time; napkinxc on {NAPKINXC_POINTS:,} points, scaled; largest difference {difference:.0e} %",
    )
    half, Y_half = predictions.rows(slice(50_000)), Y[:50_000]
    one = cpu_seconds(lambda: evaluate(half, Truth.of_matrix(Y_half), ["P@5"]).values(), repeat=10)
    yield Figure("P@5 for 50,000 x 100", one, PYXCLIB_SECONDS, "s", "pyxclib", 10, "CPU time")
    scores = _scores(np.random.default_rng(1))
    resampling = cpu_seconds(lambda: Bootstrap(scores, resamples=2000))
    yield Figure("2,000 resamples of 10,000 points x 10 metrics", resampling, 1, "s", "the budget", 1, "CPU time")


def _case(rng: np.random.Generator) -> tuple[TopK, sp.csr_array, Weights]:
    """Distinct random labels, falling scores, and up to nine true labels a point, half of them predicted."""
    steps = rng.integers(1, LABELS // PLACES, (POINTS, PLACES))
    indices = ((rng.integers(0, LABELS, (POINTS, 1)) + steps.cumsum(axis=1)) % LABELS).astype(np.int32)
    scores = np.broadcast_to(np.linspace(1, 0, PLACES, dtype=np.float32), indices.shape).copy()
    points = np.repeat(np.arange(POINTS), rng.integers(0, 10, POINTS))
    predicted = indices[points, rng.integers(0, PLACES, len(points))]
    labels = np.where(rng.random(len(points)) < 0.5, predicted, rng.integers(0, LABELS, len(points)))
    Y = sp.csr_array((np.ones(len(points), np.float32), (points, labels)), shape=(POINTS, LABELS))
    return TopK(indices, scores), Y, 1 + 9 * rng.random(LABELS)


def _ours(predictions: TopK, Y: sp.csr_array, weights: Weights) -> Weights:
    values = evaluate(predictions, Truth.of_matrix(Y, inverse_propensity=weights), EVERYTHING).values()
    return np.array(list(values.values()))


def _by_napkinxc(predictions: TopK, Y: sp.csr_array, weights: Weights) -> Weights:
    """With lists, by far the fastest of the forms that it takes."""
    truth = [row.tolist() for row in np.split(Y.indices, Y.indptr[1:-1])]
    ranked = predictions.indices.tolist()
    found = (
        napkinxc.precision_at_k(truth, ranked, k=PLACES),
        napkinxc.ndcg_at_k(truth, ranked, k=PLACES),
        napkinxc.psprecision_at_k(truth, ranked, weights, k=PLACES),
        napkinxc.psndcg_at_k(truth, ranked, weights, k=PLACES),
        napkinxc.recall_at_k(truth, ranked, k=PLACES),
    )
    return 100 * np.concatenate(found)


def _scores(rng: np.random.Generator) -> list[PointScores]:
    """Five means and five ratios."""
    means = [PointScores(parse_metric("P@1"), (rng.random(10_000) < 0.3).astype(np.float64)) for _ in range(5)]
    return means + [PointScores(parse_metric("PSP@1"), rng.random(10_000), np.ones(10_000)) for _ in range(5)]
