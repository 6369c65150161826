"""Prediction by a beam over clusters: batches, single points, GAME, and an index as large as LF-AmazonTitles-1.3M's.

Times are CPU time divided by the threads, so that other work on the machine does not count. The plain reference is the
straightforward torch version: all cluster scores, topk, a gather of the candidates' rows, one bmm, topk.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch

from benchmarks.figure import Figure, cpu_seconds
from xcbench.kernels.arrays import Floats
from xcbench.labels import Clustering
from xcbench.shortlist import BeamShortlister, Game
from xcbench.shortlist.predictors import BeamPredictor
from xcbench.threads import set_threads

PLAIN = "plain torch (topk, gather, bmm)"
LIMIT = "the limit set"
K = 100
BATCH = 256
REPEAT = 3
SINGLE_POINTS = 200


@dataclass(frozen=True)
class Shape:
    """The sizes of an index, and how many points are predicted."""

    name: str
    clusters: int
    labels: int
    dimension: int
    beam: int
    points: int


SMALL = Shape(
    "27,000 labels, K=2^13, D=300, beam 50",
    clusters=2**13,
    labels=27_000,
    dimension=300,
    beam=50,
    points=4096,
)
LARGE = Shape(
    "1.3M labels, K=2^17, D=512, beam 100",
    clusters=2**17,
    labels=1_300_000,
    dimension=512,
    beam=100,
    points=1024,
)


def measure() -> Iterator[Figure]:
    """Measure both shapes in batches, and the small one also point by point and with GAME."""
    threads = set_threads()
    predictor, X = build(SMALL)
    yield from _batches(SMALL, predictor, X, 0.3, threads)
    yield from _single_points(predictor, X)
    yield from _with_game(predictor, X, threads)

    predictor, X = build(LARGE)
    yield from _batches(LARGE, predictor, X, 1.73, threads)


def build(shape: Shape) -> tuple[BeamPredictor, Floats]:
    """Return a predictor with random classifiers, and points."""
    rng = np.random.default_rng(0)
    H = _random_rows(rng, shape.clusters, shape.dimension)
    W = _random_rows(rng, shape.labels, shape.dimension)
    X = _random_rows(rng, shape.points, shape.dimension)

    # Labels are in the order of their clusters, so that W need not be copied.
    cluster_of = np.arange(shape.labels) * shape.clusters // shape.labels
    shortlister = BeamShortlister.of(H, Clustering.of(cluster_of, shape.clusters), shape.beam)
    return BeamPredictor(shortlister, W, np.zeros(shape.labels, np.float32)), X


def _random_rows(rng: np.random.Generator, rows: int, dimension: int) -> Floats:
    matrix: Floats = rng.random((rows, dimension), dtype=np.float32) - np.float32(0.5)
    return matrix


def _batches(shape: Shape, predictor: BeamPredictor, X: Floats, limit: float, threads: int) -> Iterator[Figure]:
    plain = Plain(predictor)
    ours, theirs = in_turn(
        lambda: predictor.predict(X, X, K),
        lambda: plain.predict(X),
        scale=1e3 / threads / len(X),
    )
    what = f"a point in batches, {shape.name}"
    note = f"beyond the parameters: {predictor.memory(shape.points, K)}"
    yield Figure(what, ours, theirs, "ms", PLAIN, at_least=1.0, note=note)
    yield Figure(what, ours, limit, "ms", LIMIT, at_least=1.0)


def _single_points(predictor: BeamPredictor, X: Floats) -> Iterator[Figure]:
    plain = Plain(predictor)
    ours = median_ms(lambda i: predictor.predict(X[i : i + 1], X[i : i + 1], K))
    theirs = median_ms(lambda i: plain.predict(X[i : i + 1]))
    what = "one point alone, 27,000 labels"
    yield Figure(what, ours, theirs, "ms", PLAIN, at_least=1.0, note="median wall time")
    yield Figure(what, ours, 3.0, "ms", LIMIT, at_least=1.0)


def _with_game(predictor: BeamPredictor, X: Floats, threads: int) -> Iterator[Figure]:
    cluster_game = Game(graph(SMALL.clusters), SMALL.beam)
    label_game = Game(graph(SMALL.labels), SMALL.beam)
    reranked = replace(
        predictor,
        shortlister=replace(predictor.shortlister, game=cluster_game),
        game=label_game,
    )
    plain = Plain(predictor)
    ours, theirs = in_turn(
        lambda: reranked.predict(X, X, K),
        lambda: plain.predict(X),
        scale=1e3 / threads / len(X),
    )
    what = "a point in batches with GAME, 27,000 labels"
    yield Figure(what, ours, theirs, "ms", f"{PLAIN}, without GAME", at_least=1.0)
    yield Figure(what, ours, 0.5, "ms", LIMIT, at_least=1.0)


class Plain:
    """The same prediction as one would write it first."""

    def __init__(self, predictor: BeamPredictor) -> None:
        clustering = predictor.shortlister.clustering
        self.beam = predictor.shortlister.beam
        self.H = torch.from_numpy(predictor.shortlister.H)
        self.W = torch.from_numpy(predictor.W)

        labels = np.arange(len(self.W))
        place_in_cluster = labels - clustering.indptr[clustering.cluster_of]
        members = np.full((clustering.K, clustering.sizes.max()), -1)
        members[clustering.cluster_of, place_in_cluster] = labels
        self.members = torch.from_numpy(members)

    def predict(self, X: Floats) -> list[torch.Tensor]:
        """Return the best labels, batch by batch."""
        return [self._batch(torch.from_numpy(X[start : start + BATCH])) for start in range(0, len(X), BATCH)]

    def _batch(self, X: torch.Tensor) -> torch.Tensor:
        logits, clusters = (X @ self.H.T).topk(self.beam, dim=1)
        candidates = self.members[clusters]
        p = logits.sigmoid()[:, :, None].expand_as(candidates).flatten(1)
        candidates = candidates.flatten(1)

        W = self.W[candidates.clamp(min=0)]
        q = torch.bmm(W, X[:, :, None])[:, :, 0].sigmoid()
        scores = (p * q).masked_fill(candidates < 0, -torch.inf)
        _, places = scores.topk(K, dim=1)
        return candidates.gather(1, places)


def graph(count: int) -> sp.csr_array:
    """Return a graph in which each label has ten random neighbours and itself, much like a label graph."""
    rng = np.random.default_rng(1)
    rows = np.repeat(np.arange(count), 10)
    columns = rng.integers(0, count, 10 * count)
    weights = np.full(10 * count, 0.05, np.float32)
    edges = sp.csr_array((weights, (rows, columns)), shape=(count, count))
    return sp.csr_array(edges + 0.5 * sp.eye_array(count, dtype=np.float32, format="csr"))


def in_turn(ours: Callable[[], object], theirs: Callable[[], object], scale: float) -> tuple[float, float]:
    """Return the smallest CPU times of both times `scale`. They run in turn: other work then slows down both."""
    ours()  # compiles the kernels
    our_best = float("inf")
    their_best = float("inf")
    for _ in range(REPEAT):
        our_best = min(our_best, cpu_seconds(ours, repeat=1))
        their_best = min(their_best, cpu_seconds(theirs, repeat=1))
    return our_best * scale, their_best * scale


def median_ms(work: Callable[[int], object]) -> float:
    """Return the median wall time of `work(i)`, for i = 0, 1, ..."""
    times = []
    for i in range(SINGLE_POINTS):
        start = time.perf_counter()
        work(i)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)
