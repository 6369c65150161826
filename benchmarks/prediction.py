"""Prediction by cluster beam: batches, single points, GAME, and an index of the shape of LF-AmazonTitles-1.3M.

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
from xcbench.labels import Clustering
from xcbench.shortlist import BeamShortlister, Game
from xcbench.shortlist.contract import Floats
from xcbench.shortlist.predictors import BeamPredictor
from xcbench.threads import set_threads

PLAIN = "plain torch (topk, gather, bmm)"
K = 100
BATCH = 256


@dataclass(frozen=True)
class Shape:
    name: str
    clusters: int
    labels: int
    dimension: int
    beam: int
    points: int


SMALL = Shape("27,000 labels, K=2^13, D=300, beam 50", 2**13, 27_000, 300, 50, 4096)
LARGE = Shape("1.3M labels, K=2^17, D=512, beam 100", 2**17, 1_300_000, 512, 100, 1024)


def measure() -> Iterator[Figure]:
    threads = set_threads()
    predictor, X = build(SMALL)
    yield from _batches(SMALL, predictor, X, 0.3, threads)
    yield from _single_points(predictor, X)
    yield from _with_game(predictor, X, threads)
    predictor, X = build(LARGE)
    yield from _batches(LARGE, predictor, X, 1.73, threads)


def build(shape: Shape) -> tuple[BeamPredictor, Floats]:
    """Random classifiers; labels lie in the order of their clusters, so that W need not be copied."""
    rng = np.random.default_rng(0)
    H, W, X = (
        rng.random((rows, shape.dimension), dtype=np.float32) - np.float32(0.5)
        for rows in (shape.clusters, shape.labels, shape.points)
    )
    clustering = Clustering.of(np.arange(shape.labels) * shape.clusters // shape.labels, shape.clusters)
    shortlister = BeamShortlister.of(H, clustering, shape.beam)
    return BeamPredictor(shortlister, W, np.zeros(shape.labels, np.float32)), X


def _batches(shape: Shape, predictor: BeamPredictor, X: Floats, limit: float, threads: int) -> Iterator[Figure]:
    plain = Plain(predictor)
    ours, theirs = in_turn(lambda: predictor.predict(X, X, K), lambda: plain.predict(X), 1e3 / threads / len(X))
    note = f"beyond the parameters: {predictor.memory(shape.points, K)}"
    yield Figure(f"a point in batches, {shape.name}", ours, theirs, "ms", PLAIN, at_least=1.0, note=note)
    yield Figure(f"a point in batches, {shape.name}", ours, limit, "ms", "the limit set", at_least=1.0)


def _single_points(predictor: BeamPredictor, X: Floats) -> Iterator[Figure]:
    plain = Plain(predictor)
    ours = median_ms(lambda i: predictor.predict(X[i : i + 1], X[i : i + 1], K))
    theirs = median_ms(lambda i: plain.predict(X[i : i + 1]))
    yield Figure("one point alone, 27,000 labels", ours, theirs, "ms", PLAIN, at_least=1.0, note="median wall time")
    yield Figure("one point alone, 27,000 labels", ours, 3.0, "ms", "the limit set", at_least=1.0)


def _with_game(predictor: BeamPredictor, X: Floats, threads: int) -> Iterator[Figure]:
    beam, clusters = SMALL.beam, replace(predictor.shortlister, game=Game(graph(SMALL.clusters), SMALL.beam))
    reranked = replace(predictor, shortlister=clusters, game=Game(graph(SMALL.labels), beam))
    plain = Plain(predictor)
    ours, theirs = in_turn(lambda: reranked.predict(X, X, K), lambda: plain.predict(X), 1e3 / threads / len(X))
    name = f"{PLAIN}, without GAME"
    yield Figure("a point in batches with GAME, 27,000 labels", ours, theirs, "ms", name, at_least=1.0)
    yield Figure("a point in batches with GAME, 27,000 labels", ours, 0.5, "ms", "the limit set", at_least=1.0)


class Plain:
    """The same prediction as one would write it first."""

    def __init__(self, predictor: BeamPredictor) -> None:
        clustering = predictor.shortlister.clustering
        self.beam = predictor.shortlister.beam
        self.H, self.W = torch.from_numpy(predictor.shortlister.H), torch.from_numpy(predictor.W)
        padded = np.full((clustering.K, clustering.sizes.max()), -1)
        padded[clustering.cluster_of, np.arange(len(self.W)) - clustering.indptr[clustering.cluster_of]] = np.arange(
            len(self.W)
        )
        self.members = torch.from_numpy(padded)

    def predict(self, X: Floats) -> list[torch.Tensor]:
        return [self._batch(torch.from_numpy(X[start : start + BATCH])) for start in range(0, len(X), BATCH)]

    def _batch(self, X: torch.Tensor) -> torch.Tensor:
        logits, clusters = (X @ self.H.T).topk(self.beam, dim=1)
        candidates = self.members[clusters]
        p = logits.sigmoid()[:, :, None].expand_as(candidates).flatten(1)
        candidates = candidates.flatten(1)
        q = torch.bmm(self.W[candidates.clamp(min=0)], X[:, :, None])[:, :, 0].sigmoid()
        _, places = (p * q).masked_fill(candidates < 0, -torch.inf).topk(K, dim=1)
        return candidates.gather(1, places)


def graph(count: int) -> sp.csr_array:
    """Ten random neighbours and oneself, as a label graph has them."""
    rng = np.random.default_rng(1)
    rows = np.repeat(np.arange(count), 10)
    places = (rows, rng.integers(0, count, 10 * count))
    edges = sp.csr_array((np.full(10 * count, 0.05, np.float32), places), shape=(count, count))
    return sp.csr_array(edges + 0.5 * sp.eye_array(count, dtype=np.float32, format="csr"))


def in_turn(ours: Callable[[], object], theirs: Callable[[], object], scale: float) -> tuple[float, float]:
    """The least CPU time of both, measured by turns so that a noisy neighbour hits both."""
    ours()
    best = [float("inf"), float("inf")]
    for _ in range(3):
        best = [min(known, cpu_seconds(work, repeat=1)) for known, work in zip(best, (ours, theirs), strict=True)]
    return best[0] * scale, best[1] * scale


def median_ms(work: Callable[[int], object]) -> float:
    times = []
    for i in range(200):
        start = time.perf_counter()
        work(i)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)
