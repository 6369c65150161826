"""Balanced clustering of labels against the official algorithm, on sparse and on dense rows."""

import itertools
import math
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.figure import Figure, cpu_seconds, grown_bytes, seconds
from benchmarks.label_graph import dataset
from xcbench.data import Dataset
from xcbench.labels import (
    Clustering,
    balanced_clusters,
    dense_centroids,
    random_walk_graph,
    sparse_centroids,
    two_sided,
)
from xcbench.threads import set_threads

Features: TypeAlias = "sp.csr_array | npt.NDArray[Any]"
AUTHORS_CPU_SECONDS = {"sparse": 27.9, "smoothed": 27.9, "dense": 10.8}  # 12,000 labels into 2^12; dense rows of 300
LABELS, K = 12_000, 2**12


def measure() -> Iterator[Figure]:
    set_threads()
    data, many = dataset(LABELS), dataset(100_000)
    for kind in ("sparse", "smoothed", "dense"):
        features = rows(data, kind)
        balanced_clusters(features[:50], 5)
        yield from against_official(features, kind)
        if kind != "smoothed":
            yield at_scale(rows(many, kind), features, kind)


def rows(data: Dataset, kind: str) -> Features:
    """Centroids as DECAF (sparse) and ECLARE (smoothed by the label graph) have them, or of random dense vectors."""
    X, Y = data.train.X, data.train.Y
    if kind == "dense":
        E = np.random.default_rng(0).standard_normal((X.shape[1], 300), dtype=np.float32)
        return dense_centroids(Y, X @ E)
    return sparse_centroids(Y, X, graph=two_sided(random_walk_graph(Y)) if kind == "smoothed" else None)


def against_official(features: Features, kind: str) -> Iterator[Figure]:
    """Ours against the official stopping rule; dense rows also against that code with our rule, which stops sooner."""
    ours = cpu_seconds(lambda: balanced_clusters(features, K), repeat=5)
    grown = grown_bytes(lambda: balanced_clusters(features, K)) / bytes_of(features)
    own = cohesion(features, balanced_clusters(features, K))
    size = f"{features.shape[1]}" if isinstance(features, np.ndarray) else f"{features.nnz / LABELS:.0f} entries"
    for on_mean in (False, True) if kind == "dense" else (False,):
        cpu, theirs = spent(features, on_mean)
        yield Figure(
            f"{LABELS:,} labels, {kind} rows of {size}, into 2^12 clusters", ours, cpu, "CPU-s",
            f"the official algorithm{' with our tolerance' if on_mean else ''}", at_least=10,
            note=f"{AUTHORS_CPU_SECONDS[kind] / ours:.0f}x less than the {AUTHORS_CPU_SECONDS[kind]} CPU-s of the "
            f"authors' own code; similarity to the own cluster {own:.3f} against {cohesion(features, theirs):.3f}; "
            f"memory grew by {grown:.1f}x the rows",
        )  # fmt: skip


def spent(features: Features, on_mean: bool) -> tuple[float, Clustering]:
    start = time.process_time()
    found = official_clusters(features, 12, on_mean)
    return time.process_time() - start, found


def at_scale(many: Features, few: Features, kind: str) -> Figure:
    """100,000 labels into 2^15 clusters, per label and level, against our own cost for 12,000 into 2^12."""
    ours, before = per_label_and_level(many, 15), per_label_and_level(few, 12)
    wall = seconds(lambda: balanced_clusters(many, 2**15), repeat=1)
    memory = grown_bytes(lambda: balanced_clusters(many, 2**15)) / bytes_of(many)
    return Figure(
        f"100,000 labels, {kind} rows, into 2^15 clusters, per label and level", ours, before, "CPU-us",
        "12,000 labels into 2^12", at_least=0.4,
        note=f"{ours * 15 / 10:.1f} CPU-s in all, {wall:.1f} s of wall time; memory grew by {memory:.1f}x the rows",
    )  # fmt: skip


def per_label_and_level(features: Features, levels: int) -> float:
    cpu = cpu_seconds(lambda: balanced_clusters(features, 2**levels))
    return 1e6 * cpu / int(features.shape[0] * levels)


def bytes_of(features: Features) -> int:
    if isinstance(features, np.ndarray):
        return features.nbytes
    return int(features.data.nbytes + features.indices.nbytes + features.indptr.nbytes)


def cohesion(features: Features, clustering: Clustering) -> float:
    sums = clustering.to_csr().T.tocsr() @ unit(features)
    return float(lengths(sums).sum()) / len(clustering.cluster_of)


def lengths(features: Features) -> npt.NDArray[np.float64]:
    squares = features**2 if isinstance(features, np.ndarray) else features.multiply(features)
    found: npt.NDArray[np.float64] = np.sqrt(np.asarray(squares.sum(axis=1, dtype=np.float64)))
    return found


def unit(features: Features) -> Features:
    scale = 1 / np.maximum(lengths(features), 1e-12)
    if isinstance(features, np.ndarray):
        return np.multiply(features, scale[:, None], dtype=features.dtype)
    return sp.csr_array(sp.diags_array(scale.astype(features.dtype)) @ features)


def official_clusters(features: Features, levels: int, on_mean: bool) -> Clustering:
    """A call of Python for each node and, within it, numpy or scipy for each iteration."""
    features = unit(features)
    rng = np.random.default_rng(0)
    nodes = [np.arange(features.shape[0])]
    while len(nodes) < 2**levels:
        nodes = list(itertools.chain.from_iterable(official_split(features, node, rng, on_mean) for node in nodes))
    cluster_of = np.empty(features.shape[0], np.int64)
    for cluster, node in enumerate(nodes):
        cluster_of[node] = cluster
    return Clustering.of(cluster_of, len(nodes))


def official_split(
    features: Features, node: npt.NDArray[np.int64], rng: np.random.Generator, on_mean: bool
) -> list[npt.NDArray[np.int64]]:
    if len(node) == 1:
        return [node]
    rows = features[node]
    centres = rows[rng.choice(len(node), 2, replace=False)]
    best, half = -math.inf, -(-len(node) // 2)
    while True:
        similarity = rows @ centres.T
        similarity = similarity if isinstance(similarity, np.ndarray) else similarity.toarray()
        order = np.argsort(similarity[:, 1] - similarity[:, 0])
        left, right = order[:half], order[half:]
        objective = similarity[left, 0].sum() + similarity[right, 1].sum()
        objective /= len(node) if on_mean else 1
        if objective - best < 1e-4:
            return [node[left], node[right]]
        best = objective
        means = [np.asarray(rows[side].mean(axis=0)) for side in (left, right)]
        centres = unit(np.stack(means)) if isinstance(rows, np.ndarray) else unit(sp.csr_array(np.stack(means)))
