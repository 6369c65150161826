"""What graph, clustering, a training step, shortlisting and prediction cost among so many labels."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import psutil
import scipy.sparse as sp
import torch
from xcbench.methods.decaf import label_classifiers

from benchmarks.scale.measuring import Result, measured
from xcbench.data.synth import from_shape, published_shapes
from xcbench.kernels.arrays import Floats
from xcbench.kernels.csr import SparseRows
from xcbench.labels import Clustering, balanced_clusters, random_walk_graph, sparse_centroids
from xcbench.nn import Adam, DocumentEncoder, GatedBlock, TokenEmbeddings
from xcbench.nn.dropout import start_step
from xcbench.runner.meter import Meter
from xcbench.shortlist import BeamShortlister
from xcbench.shortlist.predictors import BeamPredictor
from xcbench.train import Candidates, Points, RankShortlist
from xcbench.train.memory import keep_freed_memory

LIKE = "LF-AmazonTitles-131K"
TINY = 300
"""Labels on which everything is done once before it is measured: that compiles the kernels."""

D = 128
DROPOUT = 0.2
LABELS_PER_CLUSTER = 4
BEAM = 100
TOP = 100
POINTS = 2000
"""Points that are shortlisted and predicted."""

BATCH = 255
CLUSTERS_PER_POINT = 25
"""In a step: about 100 candidate labels per point, whatever the number of labels."""
STEPS = 10
WARM_UP = 4
"""Steps that are not counted: they touch memory for the first time."""

ENOUGH_SECONDS = 2.0
MOST_REPEATS = 5
"""Short work is repeated and its best time counts, since noise only ever adds."""


@dataclass(frozen=True)
class Cost:
    """What one quantity is among so many labels."""

    labels: int
    name: str
    value: float
    unit: str
    work: float
    """What the value should be in proportion to, from one number of labels to another."""
    expected: str
    """The same in words."""
    memory: int
    """The most bytes that the process held meanwhile."""


@dataclass(frozen=True)
class Texts:
    """Training points and label texts."""

    X: sp.csr_array
    Y: sp.csr_array
    Z: sp.csr_array

    @property
    def label_count(self) -> int:
        return int(self.Y.shape[1])


def measure(labels: int) -> Iterator[Cost]:
    """Measure everything among so many labels, in this process."""
    list(_costs(texts(TINY)))
    with Meter() as meter:
        yield from _costs(texts(labels))
    seconds = time.time() - psutil.Process().create_time()
    yield Cost(labels, "memory", meter.peak_memory / 1e9, "GB", labels, "as labels", meter.peak_memory)
    yield Cost(labels, "all of it", seconds, "s", labels, "as labels", meter.peak_memory)


def texts(labels: int) -> Texts:
    """Return data with points and labels in proportion, and a vocabulary that grows by the square root."""
    shape = published_shapes()[LIKE]
    # No test point is looked at.
    shape = replace(shape.scaled(labels / shape.labels), test=1)
    data = from_shape(shape, seed=0, name="growth")
    assert data.Z is not None
    return Texts(data.train.X, data.train.Y, data.Z)


def cluster_count(labels: int) -> int:
    """Return the power of two nearest to a quarter of the labels."""
    levels = round(math.log2(labels / LABELS_PER_CLUSTER))
    return int(2**levels)


def _costs(data: Texts) -> Iterator[Cost]:
    L = data.label_count
    K = cluster_count(L)
    seconds, memory, _ = _best(lambda: random_walk_graph(data.Y))
    yield Cost(L, "graph", 1e6 * seconds / L, "us per label", 1, "constant", memory)

    seconds, memory, clustering = _clusters(data, K)
    yield Cost(L, "clusters", 1e6 * seconds / L, "us per label", math.log2(K), "as log K", memory)

    row, (seconds, rows) = measured("growth", "step", lambda: _step(data, clustering))
    yield Cost(L, "step", 1e6 * seconds / BATCH, "us per point", rows, "as labels in a batch + tokens", row.memory)

    rng = np.random.default_rng(0)
    x = _random_rows(rng, POINTS)
    beam = BeamShortlister.of(_random_rows(rng, K), clustering, BEAM)
    seconds, memory, _ = _best(lambda: beam.clusters(x))
    yield Cost(L, "shortlists", 1e6 * seconds / POINTS, "us per point", K, "as K", memory)

    predictor = BeamPredictor.of(beam, _random_rows(rng, L), np.zeros(L, np.float32))
    seconds, memory, _ = _best(lambda: predictor.predict(x, x, TOP))
    yield Cost(L, "prediction", 1e6 * seconds / POINTS, "us per point", K, "as K", memory)


def _clusters(data: Texts, K: int) -> tuple[float, int, Clustering]:
    """Return what clustering takes. The centroids, which nothing else needs, are freed."""
    centroids = sparse_centroids(data.Y, data.X)
    return _best(lambda: balanced_clusters(centroids, K))


def _best(work: Callable[[], Result]) -> tuple[float, int, Result]:
    """Return the best time of some repeats, the memory of the first one, and its result."""
    row, result = measured("growth", "", work)
    times = [row.seconds]
    while sum(times) < ENOUGH_SECONDS and len(times) < MOST_REPEATS:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times), row.memory, result


def _random_rows(rng: np.random.Generator, rows: int) -> Floats:
    matrix: Floats = rng.random((rows, D), dtype=np.float32)
    # In place: among a million labels a copy would be half a gigabyte.
    matrix -= np.float32(0.5)
    return matrix


def _step(data: Texts, clustering: Clustering) -> tuple[float, float]:
    """Return the seconds of a steady step of DECAF's extreme module, and how many rows of tables it goes over.

    A step cuts a batch, computes its loss and gradients, and updates the parameters. The candidates are random. The
    rows are those of the labels in the batch and of all tokens, since Adam is dense on E.
    """
    torch.manual_seed(0)
    task = _extreme_task(data)
    points = _points_of_steps(data, clustering)
    optimiser = Adam(task, lr=0.01)
    task.train()

    times = []
    unions = []
    with keep_freed_memory():  # as in the training loop
        for step in range(WARM_UP + STEPS):
            start = time.perf_counter()
            start_step(0, step)
            batch = points.cut(np.arange(BATCH) + step * BATCH)
            loss = task.loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            assert np.isfinite(loss.item())
            times.append(time.perf_counter() - start)

            assert batch.shortlists is not None
            unions.append(len(batch.shortlists.labels))
    rows = statistics.median(unions[WARM_UP:]) + data.X.shape[1]
    return statistics.median(times[WARM_UP:]), rows


def _extreme_task(data: Texts) -> RankShortlist:
    E = TokenEmbeddings(data.X.shape[1], D)
    documents = DocumentEncoder(GatedBlock(D, DROPOUT), E)
    return RankShortlist(documents, label_classifiers(E, data.Z, data.label_count, DROPOUT, "text+free"))


def _points_of_steps(data: Texts, clustering: Clustering) -> Points:
    """Return the points of all steps, one batch behind the other. Few data has too few, so they return."""
    rng = np.random.default_rng(0)
    count = (WARM_UP + STEPS) * BATCH
    rows = rng.integers(data.X.shape[0], size=count)
    groups = rng.integers(clustering.K, size=(count, CLUSTERS_PER_POINT), dtype=np.int32)
    members = SparseRows.of(clustering.to_csr().T.tocsr())
    return Points(data.X[rows], data.Y[rows], Candidates(groups, members))
