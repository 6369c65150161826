"""Balanced clusterings of labels: by what they mean (2-means trees), or by chance for comparison."""

import math

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.errors import InputError
from xcbench.kernels.csr import Rows, rows_of
from xcbench.kernels.random import seed_word
from xcbench.kernels.threads import map_threads
from xcbench.labels.partition import Clustering
from xcbench.labels.two_means import DEEPEST, Features, grow, left_share

ENOUGH_TASKS = 64  # nodes side by side; from then on each is finished by one thread, in its cache


def cluster_count(L: int, K: int | None = None, factor: float = 1.0) -> int:
    """K times a factor, but 1 to L. None: the power of two nearest to three labels a cluster, at most 2^17.

    That is what DECAF and ECLARE use for their data.
    """
    K = int(2 ** min(17, max(0, round(math.log2(L / 3))))) if K is None else K
    return max(1, min(L, round(K * factor)))


def balanced_clusters(
    features: sp.csr_array | npt.NDArray[np.float32],
    K: int,
    heads: npt.NDArray[np.bool_] | None = None,
    seed: int = 0,
    tolerance: float = 1e-4,
    iterations: int = 50,
) -> Clustering:
    """Cut the rows (labels) into K clusters of equal size, give or take one, by a tree of spherical 2-means.

    Labels marked in `heads` are clustered among themselves, into as many clusters as they need to be no larger than
    the others; these come last and on top of the K. K is cut to the number of labels, and each is then its own
    cluster. A split stops when the mean similarity grows by less than the tolerance, or after so many iterations.
    """
    L = features.shape[0]
    if L == 0 or K < 1:
        raise InputError(f"a clustering needs at least one label and one cluster, got {L} and {K}")
    heads = np.zeros(L, np.bool_) if heads is None else heads
    if heads.shape != (L,):
        raise InputError(f"{L} labels need a mark each for being heads, got {heads.shape}")
    groups = [np.flatnonzero(~heads), np.flatnonzero(heads)]
    K = min(K, len(groups[0]) or L)
    largest = -(-(len(groups[0]) or L) // K)
    order = np.concatenate(groups).astype(np.int32)
    sizes = np.array([len(group) for group in groups])
    leaves = np.array([K, -(-sizes[1] // largest)])
    sizes, leaves = sizes[sizes > 0], leaves[sizes > 0]
    _grow_trees(_prepared(features), order, sizes, leaves, seed, tolerance, iterations)
    while leaves.max() > 1:
        sizes, leaves = _children(sizes, leaves)
    cluster_of = np.empty(L, np.int32)
    cluster_of[order] = np.repeat(np.arange(len(sizes)), sizes)
    return Clustering.of(cluster_of, len(sizes))


def random_clusters(L: int, K: int, seed: int = 0) -> Clustering:
    """L labels dealt to K clusters at random, in equal numbers give or take one."""
    if L == 0 or K < 1:
        raise InputError(f"a clustering needs at least one label and one cluster, got {L} and {K}")
    K = min(K, L)
    return Clustering.of(np.random.default_rng(seed).permutation(np.arange(L) % K), K)


def _prepared(features: sp.csr_array | npt.NDArray[np.float32]) -> Features:
    L, width = features.shape
    if isinstance(features, np.ndarray):
        dense = np.ascontiguousarray(features, np.float32)
        rows = Rows(np.zeros(L + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
        squares = np.einsum("ij,ij->i", dense, dense, dtype=np.float64)
    else:
        dense, rows = np.zeros((0, 0), np.float32), rows_of(features)
        squares = sp.csr_array((rows.data**2, rows.indices, rows.indptr), (L, width)).sum(axis=1, dtype=np.float64)
    if not np.isfinite(squares).all():
        raise InputError(f"the features of label {np.flatnonzero(~np.isfinite(squares))[0]} are not finite")
    scale = np.divide(1, np.sqrt(squares), out=np.zeros(L), where=squares > 0).astype(np.float32)
    return Features(dense, rows.indptr, rows.indices.view(np.uint32), rows.data, width, scale)


def _grow_trees(
    features: Features,
    order: npt.NDArray[np.int32],
    sizes: npt.NDArray[np.int64],
    leaves: npt.NDArray[np.int64],
    seed: int,
    tolerance: float,
    iterations: int,
) -> None:
    """Permute `order` so that each cluster is a run of it: level by level at first, then each subtree by itself."""

    def split_all(sizes: npt.NDArray[np.int64], leaves: npt.NDArray[np.int64], levels: int) -> None:
        nodes = list(zip(np.cumsum(sizes) - sizes, sizes, leaves, strict=True))
        map_threads(lambda node: grow(features, order, *node, levels, seed_word(seed), tolerance, iterations), nodes)

    while len(sizes) < ENOUGH_TASKS and leaves.max() > 1:
        split_all(sizes, leaves, 1)
        sizes, leaves = _children(sizes, leaves)
    split_all(sizes, leaves, DEEPEST)


def _children(
    sizes: npt.NDArray[np.int64], leaves: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The nodes one level further down, from left to right; a node with a single leaf stays as it is."""
    left_n, left_k = left_share(sizes, leaves)
    split = np.stack([left_n, sizes - left_n], axis=1).ravel(), np.stack([left_k, leaves - left_k], axis=1).ravel()
    return split[0][split[1] > 0], split[1][split[1] > 0]
