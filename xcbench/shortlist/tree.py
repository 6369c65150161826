"""Label trees as in Parabel, on dense vectors: balanced halves down to leaves of some labels, a linear classifier each.

A tree of depth d has 2^d leaves, the clusters of one balanced clustering; node j of a level has the children 2j and
2j + 1 of the next. So a level is an array, and the tree needs no pointers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.data import TopK
from xcbench.data.matrices import pattern, unit_vectors
from xcbench.errors import InputError
from xcbench.kernels.csr import dot
from xcbench.kernels.selection import key_of, label_in, largest_first, score_in, write_best
from xcbench.kernels.svm import Examples, fit_classifiers
from xcbench.labels.centroids import dense_centroids
from xcbench.labels.clustering import balanced_clusters
from xcbench.labels.partition import Clustering
from xcbench.shortlist.blend import blend_rows
from xcbench.shortlist.blocks import topk_in_blocks
from xcbench.shortlist.contract import Floats, Vectors, as_matrix, load_parts, save_parts


@dataclass(frozen=True)
class LabelTree:
    """One tree: the leaf of each label, and classifiers whose last column is a bias."""

    leaves: Clustering
    nodes: Floats  # [2 * leaves - 2, D + 1]: the two nodes under the root, then the four under these, ...
    labels: Floats  # [L, D + 1], in the order of the leaves' members

    @property
    def depth(self) -> int:
        return self.leaves.K.bit_length() - 1

    def shortlist(self, X: Floats, beam: int, k: int) -> TopK:
        """Beam search for points that end in a 1."""
        out = TopK(np.empty((len(X), k), np.int32), np.empty((len(X), k), np.float32))
        _search(
            X,
            self.nodes,
            self.labels,
            self.leaves.indptr,
            self.leaves.indices,
            self.depth,
            beam,
            out.indices,
            out.scores,
        )
        return out


@dataclass(frozen=True)
class TreeShortlister:
    """The mean of some label trees, each searched with a beam; a score is the product of probabilities on the way."""

    trees: tuple[LabelTree, ...]
    beam: int = 10

    @classmethod
    def fit(
        cls,
        X: Vectors,
        Y: sp.csr_array,
        trees: int = 3,
        leaf: int = 100,
        beam: int = 10,
        C: float = 1.0,
        seed: int = 0,
    ) -> TreeShortlister:
        """Grow trees over the labels' centroids among X and train every node's classifier.

        A node learns from the points that have a label in its parent; leaves hold at most `leaf` labels.
        """
        points, truth = _with_ones(as_matrix(X)), pattern(sp.csr_array(Y))
        if len(points) != truth.shape[0]:
            raise InputError(f"a row of targets a point is needed, got {truth.shape[0]} for {len(points)} points")
        if trees < 1 or leaf < 2 or beam < 1:  # with leaves of 1 the halves of a tree could not be balanced
            raise InputError(f"needs a tree, leaves of 2 labels and a beam of 1 at least, got {trees}, {leaf}, {beam}")
        centroids = dense_centroids(truth, points[:, :-1])
        depth = max(0, math.ceil(math.log2(len(centroids) / leaf)))
        grown = (balanced_clusters(centroids, 2**depth, seed=seed + t) for t in range(trees))
        return cls(tuple(_train(points, truth, leaves, C, seed + t) for t, leaves in enumerate(grown)), beam)

    @property
    def label_count(self) -> int:
        return len(self.trees[0].labels)

    def shortlist(self, X: Vectors, k: int) -> TopK:
        points = _with_ones(as_matrix(X, self.trees[0].labels.shape[1] - 1))
        return topk_in_blocks(len(points), k, lambda block: self._block(points[block], k))

    def _block(self, X: Floats, k: int) -> TopK:
        reached = [min(self.beam * int(tree.leaves.sizes.max()), self.label_count) for tree in self.trees]
        found = [tree.shortlist(X, self.beam, width) for tree, width in zip(self.trees, reached, strict=True)]
        return blend_rows(found, None, k)

    def save(self, folder: Path) -> None:
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        for t, tree in enumerate(self.trees):
            arrays |= {f"{t}.leaf_of": tree.leaves.cluster_of, f"{t}.nodes": tree.nodes, f"{t}.labels": tree.labels}
        save_parts(folder, "tree", {"trees": len(self.trees), "beam": self.beam}, arrays)

    @classmethod
    def load(cls, folder: Path) -> TreeShortlister:
        settings, arrays = load_parts(folder, "tree")
        trees = []
        for t in range(settings["trees"]):
            nodes = arrays[f"{t}.nodes"]
            leaves = Clustering.of(arrays[f"{t}.leaf_of"], len(nodes) // 2 + 1)
            trees.append(LabelTree(leaves, nodes, arrays[f"{t}.labels"]))
        return cls(tuple(trees), settings["beam"])


def _with_ones(X: Floats) -> Floats:
    """Rows of unit length and a 1 at their end, which a classifier's bias meets."""
    return np.hstack([unit_vectors(X), np.ones((len(X), 1), np.float32)])


def _train(X: Floats, Y: sp.csr_array, leaves: Clustering, C: float, seed: int) -> LabelTree:
    depth, nodes = leaves.K.bit_length() - 1, []
    reached = _points_by_group(Y, np.zeros(len(leaves.cluster_of), np.int32), 1)
    for level in range(1, depth + 1):
        below = _points_by_group(Y, leaves.cluster_of >> (depth - level), 2**level)
        examples = Examples(np.arange(2**level, dtype=np.int32) >> 1, reached, below)
        nodes.append(fit_classifiers(X, examples, C, seed + level))
        reached = below
    carriers = _points_by_group(Y, np.arange(len(leaves.cluster_of), dtype=np.int32), len(leaves.cluster_of))
    examples = Examples(leaves.cluster_of[leaves.indices], reached, carriers[leaves.indices])
    labels = fit_classifiers(X, examples, C, seed)
    return LabelTree(leaves, np.concatenate([np.empty((0, X.shape[1]), np.float32), *nodes]), labels)


def _points_by_group(Y: sp.csr_array, group_of: npt.NDArray[np.int32], groups: int) -> sp.csr_array:
    """groups x N: the points that have a label in each group, in ascending order."""
    by_point = sp.csr_array((Y.data, group_of[Y.indices], Y.indptr), shape=(Y.shape[0], groups))
    by_group = by_point.T.tocsr()
    by_group.sum_duplicates()
    return by_group


@njit(cache=True)
def _log_probability(x: npt.NDArray[np.float32], w: npt.NDArray[np.float32]) -> np.float32:
    """What Parabel makes of a squared hinge: exp(-max(0, 1 - <w, x>)^2)."""
    gap = max(np.float32(0), np.float32(1) - dot(x, w))
    log_probability: np.float32 = -gap * gap
    return log_probability


@njit(cache=True, nogil=True)
def _search(
    X: npt.NDArray[np.float32],
    nodes: npt.NDArray[np.float32],
    W: npt.NDArray[np.float32],
    indptr: npt.NDArray[np.int64],
    members: npt.NDArray[np.int32],
    depth: int,
    beam: int,
    out_labels: npt.NDArray[np.int32],
    out_scores: npt.NDArray[np.float32],
) -> None:
    way = np.empty(2 * beam, np.uint64)
    keys = np.empty(min(beam * np.max(np.diff(indptr)), len(W)), np.uint64)
    for i in range(len(X)):
        way[0], width = key_of(np.float32(0), 0), 1
        for level in range(1, depth + 1):
            first = (1 << level) - 2
            for place in range(width - 1, -1, -1):  # from the end, so that children never overwrite a waiting parent
                left, score = 2 * label_in(way[place]), score_in(way[place])
                for child in (left + 1, left):
                    way[2 * place + child - left] = key_of(score + _log_probability(X[i], nodes[first + child]), child)
            width *= 2
            if width > beam:
                largest_first(way, width, beam)
                width = beam
        count = 0
        for place in range(width):
            leaf, score = label_in(way[place]), score_in(way[place])
            for m in range(indptr[leaf], indptr[leaf + 1]):
                keys[count] = key_of(np.exp(score + _log_probability(X[i], W[m])), members[m])
                count += 1
        write_best(keys, count, out_labels[i], out_scores[i])
