"""Balanced clusterings of labels: by their features (trees of 2-means), or at random for comparison."""

import math

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, arrays_of
from xcbench.kernels.parallel import map_threads
from xcbench.kernels.random import seed_word
from xcbench.labels.partition import Clustering
from xcbench.labels.two_means import MAX_DEPTH, Features, left_share, split_node
from xcbench.progress import PartCounter, titled

ENOUGH_TASKS = 64
"""From so many nodes on, each subtree is finished by one thread, in its cache."""

MAX_DEFAULT_LEVELS = 17


def cluster_count(L: int, K: int | None = None, factor: float = 1.0) -> int:
    """Return a number of clusters between 1 and L.

    Parameters
    ----------
    L : how many labels there are.
    K : how many clusters are wanted. None: the power of two nearest to L / 3, at most 2^17, as DECAF and ECLARE use
        for their data.
    factor : K is multiplied by this.
    """
    if K is None:
        levels = round(math.log2(L / 3))
        levels = min(MAX_DEFAULT_LEVELS, max(0, levels))
        K = int(2**levels)
    return max(1, min(L, round(K * factor)))


def balanced_clusters(
    features: sp.csr_array | Floats,
    K: int,
    heads: npt.NDArray[np.bool_] | None = None,
    seed: int = 0,
    tolerance: float = 1e-4,
    iterations: int = 50,
) -> Clustering:
    """Cut labels into K clusters of equal size, give or take one, by a tree of balanced spherical 2-means.

    Parameters
    ----------
    features : one sparse or dense row per label. Rows are scaled to unit length.
    K : how many clusters. At most one per label is made.
    heads : marks labels that are clustered apart from the others, into as many clusters as they need to be no larger
        than the others. These clusters come last, in addition to the K.
    seed : of the first centres of each split.
    tolerance : a split stops when the mean similarity of rows to their centre grows by less than this.
    iterations : how many iterations a split has at most.
    """
    L = features.shape[0]
    _check_counts(L, K)
    if heads is None:
        heads = np.zeros(L, np.bool_)
    if heads.shape != (L,):
        raise InputError(f"{L} labels need a mark each for being heads, got {heads.shape}")

    head_ids = np.flatnonzero(heads)
    other_ids = np.flatnonzero(~heads)
    others = len(other_ids) or L  # if all labels are heads, they share the K clusters
    K = min(K, others)
    largest = _divide_up(others, K)

    # The two trees: how many labels each has, and how many clusters (leaves) it is split into.
    sizes = np.array([len(other_ids), len(head_ids)])
    leaves = np.array([K, _divide_up(len(head_ids), largest)])
    leaves = leaves[sizes > 0]
    sizes = sizes[sizes > 0]

    order = np.concatenate([other_ids, head_ids]).astype(np.int32)
    _grow_trees(
        _prepare(features),
        order,
        sizes,
        leaves,
        seed,
        tolerance,
        iterations,
    )
    while leaves.max() > 1:
        sizes, leaves = _children(sizes, leaves)

    clusters = len(sizes)
    cluster_of = np.empty(L, np.int32)
    cluster_of[order] = np.repeat(np.arange(clusters), sizes)
    return Clustering.of(cluster_of, clusters)


def random_clusters(L: int, K: int, seed: int = 0) -> Clustering:
    """Deal labels to clusters at random, in equal numbers give or take one.

    Parameters
    ----------
    L : how many labels there are.
    K : how many clusters. At most one per label is made.
    seed : of the random order.
    """
    _check_counts(L, K)
    K = min(K, L)
    rng = np.random.default_rng(seed)
    cluster_of = rng.permutation(np.arange(L) % K)
    return Clustering.of(cluster_of, K)


def _check_counts(L: int, K: int) -> None:
    if L == 0 or K < 1:
        raise InputError(f"a clustering needs at least one label and one cluster, got {L} and {K}")


def _divide_up(number: int, divisor: int) -> int:
    """Divide and round up."""
    return -(-number // divisor)


def _prepare(features: sp.csr_array | Floats) -> Features:
    """Bring rows, sparse or dense, into the form that the kernels take."""
    L, width = features.shape
    if isinstance(features, np.ndarray):
        dense = np.ascontiguousarray(features, np.float32)
        rows = CsrArrays(
            indptr=np.zeros(L + 1, np.int64),
            indices=np.zeros(0, np.int32),
            data=np.zeros(0, np.float32),
        )
        squares = np.einsum("ij,ij->i", dense, dense, dtype=np.float64)
    else:
        dense = np.zeros((0, 0), np.float32)
        rows = arrays_of(features)
        arrays = (rows.data**2, rows.indices, rows.indptr)
        squared = sp.csr_array(arrays, (L, width))
        squares = squared.sum(axis=1, dtype=np.float64)

    infinite = np.flatnonzero(~np.isfinite(squares))
    if len(infinite):
        raise InputError(f"the features of label {infinite[0]} are not finite")

    lengths = np.sqrt(squares)
    scale = np.divide(1, lengths, out=np.zeros(L), where=squares > 0)
    return Features(
        dense,
        rows.indptr,
        rows.indices.view(np.uint32),
        rows.data,
        width,
        scale.astype(np.float32),
    )


def _grow_trees(
    features: Features,
    order: Ints,
    sizes: Longs,
    leaves: Longs,
    seed: int,
    tolerance: float,
    iterations: int,
) -> None:
    """Permute `order` so that each cluster is a run of it.

    First all nodes of a level are split side by side. When there are enough of them, each thread finishes subtrees.
    """

    def split_all(levels: int) -> None:
        starts = np.cumsum(sizes) - sizes
        nodes = list(zip(starts, sizes, leaves, strict=True))

        def split(node: tuple[int, int, int]) -> None:
            split_node(
                features,
                order,
                *node,
                levels,
                seed_word(seed),
                tolerance,
                iterations,
            )

        map_threads(split, nodes)

    depth = math.ceil(math.log2(leaves.max()))
    with titled("clusters of labels"), PartCounter(depth) as levels:
        while len(sizes) < ENOUGH_TASKS and leaves.max() > 1:
            split_all(1)
            sizes, leaves = _children(sizes, leaves)
            levels.advance()
        split_all(MAX_DEPTH)


def _children(sizes: Longs, leaves: Longs) -> tuple[Longs, Longs]:
    """Return the nodes one level further down, from left to right. A node with a single leaf stays as it is."""
    left_sizes, left_leaves = left_share(sizes, leaves)
    right_sizes = sizes - left_sizes
    right_leaves = leaves - left_leaves
    new_sizes = np.stack([left_sizes, right_sizes], axis=1).ravel()
    new_leaves = np.stack([left_leaves, right_leaves], axis=1).ravel()
    is_node = new_leaves > 0
    return new_sizes[is_node], new_leaves[is_node]
