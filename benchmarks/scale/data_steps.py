"""From nothing to clusters of labels: the steps before any training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.scale.measuring import measured
from benchmarks.scale.place import Place
from benchmarks.scale.row import Row
from xcbench.data import Dataset
from xcbench.data.binary import load_stored, store_dataset
from xcbench.data.stats import statistics
from xcbench.data.synth import synthesise
from xcbench.disk import folder_size
from xcbench.kernels.arrays import Floats
from xcbench.kernels.csr import SparseRows
from xcbench.labels import balanced_clusters, dense_centroids, random_walk_graph, sparse_centroids
from xcbench.labels.graph import conditional_probabilities
from xcbench.nn import TokenEmbeddings
from xcbench.plugins.registry import get_method

DELTA = 0.1
"""Gandalf's."""


def synthesise_and_store(place: Place) -> Iterator[Row]:
    row, data = measured("data", "synthesise", lambda: synthesise(place.like, place.scale))
    yield row
    row, _ = measured("data", "store", lambda: store_dataset(data, place.data_folder))
    yield replace(row, disk=folder_size(place.data_folder))


def load(place: Place) -> Iterator[Row]:
    row, data = measured("data", "load (memory-mapped)", lambda: load_stored(place.data_folder))
    yield row
    row, _ = measured("data", "content hash", lambda: data.fingerprint)
    yield row
    row, _ = measured("data", "statistics", lambda: statistics(data))
    yield row


def graph(place: Place) -> Iterator[Row]:
    data = place.data()
    random_walk_graph(data.train.Y[:10])  # compiles
    row, counts = measured("labels", "graph (random walks)", lambda: random_walk_graph(data.train.Y))
    yield replace(row, note=f"{1e6 * row.seconds / data.label_count:.0f} us per label, {counts.nnz:,} edges")


def clusters(place: Place) -> Iterator[Row]:
    data = place.data()
    patch = get_method("decaf").presets[place.like]
    K = min(patch["clusters"], data.label_count)
    yield from _clusters_by_words(data, K)
    yield from _clusters_by_vectors(data, K, patch["dim"])


def _clusters_by_words(data: Dataset, K: int) -> Iterator[Row]:
    row, words = measured("labels", "centroids, sparse", lambda: sparse_centroids(data.train.Y, data.train.X))
    yield row
    row, _ = measured("labels", f"clusters, sparse, K={K:,}", lambda: balanced_clusters(words, K))
    yield row


def _clusters_by_vectors(data: Dataset, K: int, dim: int) -> Iterator[Row]:
    row, centroids = measured(
        "labels",
        f"centroids, dense, D={dim}",
        lambda: dense_centroids(data.train.Y, random_vectors(data, dim)),
    )
    yield row
    row, _ = measured("labels", f"clusters, dense, K={K:,}", lambda: balanced_clusters(centroids, K))
    yield row


def targets(place: Place) -> Iterator[Row]:
    Y = place.data().train.Y
    conditional_probabilities(Y[:10], DELTA)  # compiles
    row, soft = measured("gandalf", "targets", lambda: conditional_probabilities(Y, DELTA))
    yield replace(row, note=f"{soft.nnz / Y.shape[1]:.1f} per label")


def random_vectors(data: Dataset, dim: int) -> Floats:
    """Return the training points as an untrained E embeds them."""
    E = TokenEmbeddings(data.feature_count, dim)
    vectors: Floats = E.embed(SparseRows.of(data.train.X)).numpy()
    return np.ascontiguousarray(vectors)
