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
from xcbench.kernels.arrays import Doubles, Longs
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
LABELS = 12_000
LEVELS = 12
K = 2**LEVELS
AUTHORS_CPU_SECONDS = {"sparse": 27.9, "smoothed": 27.9, "dense": 10.8}  # 12,000 labels into 2^12; dense rows of 300
DENSE_WIDTH = 300
TOLERANCE = 1e-4


def measure() -> Iterator[Figure]:
    set_threads()
    data = dataset(LABELS)
    many = dataset(100_000)
    for kind in ("sparse", "smoothed", "dense"):
        features = rows(data, kind)
        balanced_clusters(features[:50], 5)
        yield from against_official(features, kind)
        if kind != "smoothed":
            yield at_scale(rows(many, kind), features, kind)


def rows(data: Dataset, kind: str) -> Features:
    """Return centroids like DECAF's (sparse) or ECLARE's (smoothed by the label graph), or of random dense vectors."""
    X = data.train.X
    Y = data.train.Y
    if kind == "dense":
        rng = np.random.default_rng(0)
        E = rng.standard_normal((X.shape[1], DENSE_WIDTH), dtype=np.float32)
        return dense_centroids(Y, X @ E)
    graph = None
    if kind == "smoothed":
        graph = two_sided(random_walk_graph(Y))
    return sparse_centroids(Y, X, graph=graph)


def against_official(features: Features, kind: str) -> Iterator[Figure]:
    """Compare ours to the official stopping rule; dense rows also to that code with our rule, which stops sooner."""
    ours = cpu_seconds(lambda: balanced_clusters(features, K), repeat=5)
    grown = grown_bytes(lambda: balanced_clusters(features, K)) / bytes_of(features)
    our_similarity = cohesion(features, balanced_clusters(features, K))
    authors = AUTHORS_CPU_SECONDS[kind]

    rules = {"the official algorithm": False}
    if kind == "dense":
        rules["the official algorithm with our tolerance"] = True
    for name, on_mean in rules.items():
        cpu, clustering = official_cpu_seconds(features, on_mean)
        similarity = cohesion(features, clustering)
        yield Figure(
            f"{LABELS:,} labels, {kind} rows of {row_size(features)}, into 2^12 clusters",
            ours,
            cpu,
            "CPU-s",
            name,
            at_least=10,
            note=f"{authors / ours:.0f}x less than the {authors} CPU-s of the authors' own code; "
            f"similarity to the own cluster {our_similarity:.3f} against {similarity:.3f}; "
            f"memory grew by {grown:.1f}x the rows",
        )


def row_size(features: Features) -> str:
    if isinstance(features, np.ndarray):
        return f"{features.shape[1]}"
    return f"{features.nnz / LABELS:.0f} entries"


def official_cpu_seconds(features: Features, on_mean: bool) -> tuple[float, Clustering]:
    """Return the CPU time of the official algorithm, and its clustering."""
    start = time.process_time()
    clustering = official_clusters(features, LEVELS, on_mean)
    return time.process_time() - start, clustering


def at_scale(many: Features, few: Features, kind: str) -> Figure:
    """Compare 100,000 labels into 2^15 clusters to 12,000 into 2^12, by our own cost per label and level."""
    ours = per_label_and_level(many, 15)
    before = per_label_and_level(few, LEVELS)
    wall = seconds(lambda: balanced_clusters(many, 2**15), repeat=1)
    memory = grown_bytes(lambda: balanced_clusters(many, 2**15)) / bytes_of(many)
    return Figure(
        f"100,000 labels, {kind} rows, into 2^15 clusters, per label and level",
        ours,
        before,
        "CPU-us",
        "12,000 labels into 2^12",
        at_least=0.4,
        note=f"{ours * 15 / 10:.1f} CPU-s in all, {wall:.1f} s of wall time; memory grew by {memory:.1f}x the rows",
    )


def per_label_and_level(features: Features, levels: int) -> float:
    cpu = cpu_seconds(lambda: balanced_clusters(features, 2**levels))
    return 1e6 * cpu / int(features.shape[0] * levels)


def bytes_of(features: Features) -> int:
    if isinstance(features, np.ndarray):
        return features.nbytes
    return int(features.data.nbytes + features.indices.nbytes + features.indptr.nbytes)


def cohesion(features: Features, clustering: Clustering) -> float:
    """Return the mean similarity of a row to the direction of its cluster's sum."""
    sums = clustering.to_csr().T.tocsr() @ unit(features)
    return float(lengths(sums).sum()) / len(clustering.cluster_of)


def lengths(features: Features) -> Doubles:
    """Return the length of each row."""
    squares = features * features
    sums: Doubles = np.asarray(squares.sum(axis=1, dtype=np.float64))
    return np.sqrt(sums)


def unit(features: Features) -> Features:
    """Scale rows to unit length."""
    scale = 1 / np.maximum(lengths(features), 1e-12)
    if isinstance(features, np.ndarray):
        return np.multiply(features, scale[:, None], dtype=features.dtype)
    return sp.csr_array(sp.diags_array(scale.astype(features.dtype)) @ features)


def official_clusters(features: Features, levels: int, on_mean: bool) -> Clustering:
    """Do it as the authors do: a call of Python for each node and, in it, of numpy or scipy for each iteration."""
    features = unit(features)
    rng = np.random.default_rng(0)
    nodes = [np.arange(features.shape[0])]
    while len(nodes) < 2**levels:
        halves = [official_split(features, node, rng, on_mean) for node in nodes]
        nodes = list(itertools.chain.from_iterable(halves))
    cluster_of = np.empty(features.shape[0], np.int64)
    for cluster, node in enumerate(nodes):
        cluster_of[node] = cluster
    return Clustering.of(cluster_of, len(nodes))


def official_split(
    features: Features,
    node: Longs,
    rng: np.random.Generator,
    on_mean: bool,
) -> list[Longs]:
    """Split a node in two halves. Stops on the growth of the summed similarity or, with `on_mean`, of its mean."""
    if len(node) == 1:
        return [node]
    rows = features[node]
    centres = rows[rng.choice(len(node), 2, replace=False)]
    half = -(-len(node) // 2)
    best = -math.inf
    while True:
        similarity = rows @ centres.T
        if not isinstance(similarity, np.ndarray):
            similarity = similarity.toarray()
        order = np.argsort(similarity[:, 1] - similarity[:, 0])
        left = order[:half]
        right = order[half:]

        objective = similarity[left, 0].sum() + similarity[right, 1].sum()
        if on_mean:
            objective /= len(node)
        if objective - best < TOLERANCE:
            return [node[left], node[right]]
        best = objective

        means: Features = np.stack([np.asarray(rows[side].mean(axis=0)) for side in (left, right)])
        if not isinstance(rows, np.ndarray):
            means = sp.csr_array(means)
        centres = unit(means)
