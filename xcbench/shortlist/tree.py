"""Label trees as in Parabel, on dense vectors: labels are halved again and again, with a linear classifier per node.

A tree of depth d has 2^d leaves, which are the clusters of one balanced clustering. Node j of a level has the children
2j and 2j + 1 on the next level. So the nodes of a level are an array, and no pointers are needed.
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
from xcbench.data.matrices import binary_targets, unit_vectors
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import dot
from xcbench.kernels.selection import key_of, label_in, largest_first, score_in, write_best
from xcbench.kernels.svm import Examples, fit_classifiers
from xcbench.labels.centroids import dense_centroids
from xcbench.labels.clustering import balanced_clusters
from xcbench.labels.partition import Clustering
from xcbench.shortlist.blend import blend_rows
from xcbench.shortlist.blocks import empty_topk, topk_in_blocks
from xcbench.shortlist.contract import Vectors, as_matrix, load_parts, save_parts


@dataclass(frozen=True)
class LabelTree:
    """One tree: which leaf each label is in, and the classifiers of nodes and labels.

    The last column of the classifiers is a bias. It belongs to a column of ones that ends the points.
    """

    leaves: Clustering
    nodes: Floats  # [2 * leaves - 2, D + 1]: the two nodes below the root, then the four below these, and so on
    labels: Floats  # [L, D + 1], in the order of the leaves' members

    @property
    def depth(self) -> int:
        """The number of levels below the root."""
        return self.leaves.K.bit_length() - 1

    def shortlist(self, X: Floats, beam: int, k: int) -> TopK:
        """Return the k best labels that a beam search reaches, for points X [n, D + 1] that end in a 1."""
        result = empty_topk(len(X), k)
        _search(
            X,
            self.nodes,
            self.labels,
            self.leaves.indptr,
            self.leaves.indices,
            self.depth,
            beam,
            result.indices,
            result.scores,
        )
        return result


@dataclass(frozen=True)
class TreeShortlister:
    """Finds labels by beam search in several label trees. `TreeShortlister.fit` trains them.

    A label's score in a tree is the product of the probabilities on the path to it. Its score is the mean over trees.

    Parameters
    ----------
    trees
        The trees, over the same labels.
    beam
        How many nodes are kept per level.
    """

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
        """Cluster the labels' centroids into trees, and train a classifier per node and label.

        A node's classifier learns from the points that have a label in the node's parent.

        Parameters
        ----------
        X
            [n, D] the training points.
        Y
            [n, L] their labels.
        trees
            The number of trees.
        leaf
            The largest number of labels in a leaf.
        beam
            How many nodes a search keeps per level.
        C
            The weight of the loss against the regularisation, as in any linear SVM.
        seed
            Decides the clusterings and the order in which classifiers see their points.
        """
        points = _with_ones(as_matrix(X))
        truth = binary_targets(sp.csr_array(Y))
        if len(points) != truth.shape[0]:
            raise InputError(f"needs a row of targets per point, got {truth.shape[0]} for {len(points)} points")
        if trees < 1 or leaf < 2 or beam < 1:  # with leaves of 1 the halves of a tree could not be balanced
            raise InputError(f"needs a tree, leaves of 2 labels and a beam of 1 at least, got {trees}, {leaf}, {beam}")

        centroids = dense_centroids(truth, points[:, :-1])
        halvings = math.log2(len(centroids) / leaf)
        depth = max(0, math.ceil(halvings))
        trained = []
        for t in range(trees):
            leaves = balanced_clusters(centroids, 2**depth, seed=seed + t)
            trained.append(_train(points, truth, leaves, C, seed + t))
        return cls(tuple(trained), beam)

    @property
    def label_count(self) -> int:
        return len(self.trees[0].labels)

    def shortlist(self, X: Vectors, k: int) -> TopK:
        """Return the k labels per point with the largest mean score over the trees."""
        dimension = self.trees[0].labels.shape[1] - 1
        points = _with_ones(as_matrix(X, dimension))
        return topk_in_blocks(len(points), k, lambda block: self._shortlist_block(points[block], k))

    def _shortlist_block(self, X: Floats, k: int) -> TopK:
        by_tree = []
        for tree in self.trees:
            reachable = self.beam * int(tree.leaves.sizes.max())
            width = min(reachable, self.label_count)
            by_tree.append(tree.shortlist(X, self.beam, width))
        return blend_rows(by_tree, None, k)

    def save(self, folder: Path) -> None:
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        for t, tree in enumerate(self.trees):
            arrays[f"{t}.leaf_of"] = tree.leaves.cluster_of
            arrays[f"{t}.nodes"] = tree.nodes
            arrays[f"{t}.labels"] = tree.labels
        settings = {"trees": len(self.trees), "beam": self.beam}
        save_parts(folder, "tree", settings, arrays)

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
    """Return rows of unit length with a 1 at their end, by which a classifier's bias is multiplied."""
    ones = np.ones((len(X), 1), np.float32)
    return np.hstack([unit_vectors(X), ones])


def _train(
    X: Floats,
    Y: sp.csr_array,
    leaves: Clustering,
    C: float,
    seed: int,
) -> LabelTree:
    """Train the classifiers of one tree, level by level, then those of the labels."""
    label_count = len(leaves.cluster_of)
    depth = leaves.K.bit_length() - 1

    no_nodes = np.empty((0, X.shape[1]), np.float32)
    nodes = [no_nodes]
    root = np.zeros(label_count, np.int32)
    points_of_parent = _points_by_group(Y, root, 1)
    for level in range(1, depth + 1):
        node_of_label = leaves.cluster_of >> (depth - level)
        points_of_node = _points_by_group(Y, node_of_label, 2**level)
        parent = np.arange(2**level, dtype=np.int32) >> 1
        examples = Examples(parent, points_of_parent, points_of_node)
        nodes.append(fit_classifiers(X, examples, C, seed + level))
        points_of_parent = points_of_node

    order = leaves.indices
    every_label = np.arange(label_count, dtype=np.int32)
    points_of_label = _points_by_group(Y, every_label, label_count)
    examples = Examples(leaves.cluster_of[order], points_of_parent, points_of_label[order])
    labels = fit_classifiers(X, examples, C, seed)
    return LabelTree(leaves, np.concatenate(nodes), labels)


def _points_by_group(Y: sp.csr_array, group_of: Ints, groups: int) -> sp.csr_array:
    """Return, as a matrix [groups, n], the points that have a label in each group, in ascending order."""
    by_point = sp.csr_array(
        (Y.data, group_of[Y.indices], Y.indptr),
        shape=(Y.shape[0], groups),
    )
    by_group = by_point.T.tocsr()
    by_group.sum_duplicates()
    return by_group


@njit(cache=True)
def _log_probability(x: Floats, w: Floats) -> np.float32:
    """Parabel's probability for a squared hinge loss: exp(-max(0, 1 - <w, x>)^2). Returns its logarithm."""
    gap = max(np.float32(0), np.float32(1) - dot(x, w))
    log_probability: np.float32 = -gap * gap
    return log_probability


@njit(cache=True, nogil=True)
def _search(
    X: Floats,
    nodes: Floats,
    W: Floats,
    indptr: Longs,
    members: Ints,
    depth: int,
    beam: int,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    """Write the best labels of the leaves that a beam search reaches. Row j of W is the classifier of members[j]."""
    beam_keys = np.empty(2 * beam, np.uint64)
    largest_leaf = np.max(np.diff(indptr))
    keys = np.empty(min(beam * largest_leaf, len(W)), np.uint64)
    for i in range(len(X)):
        leaf_count = _best_leaves(X[i], nodes, depth, beam, beam_keys)
        count = 0
        for place in range(leaf_count):
            leaf = label_in(beam_keys[place])
            score = score_in(beam_keys[place])
            for j in range(indptr[leaf], indptr[leaf + 1]):
                probability = np.exp(score + _log_probability(X[i], W[j]))
                keys[count] = key_of(probability, members[j])
                count += 1
        write_best(keys, count, out_labels[i], out_scores[i])


@njit(cache=True)
def _best_leaves(
    x: Floats,
    nodes: Floats,
    depth: int,
    beam: int,
    keys: npt.NDArray[np.uint64],
) -> int:
    """Write the keys of the best leaves, with their log probabilities, and return how many they are."""
    keys[0] = key_of(np.float32(0), 0)
    width = 1
    for level in range(1, depth + 1):
        first = (1 << level) - 2
        for place in range(width - 1, -1, -1):  # from the end, so that children never overwrite a waiting parent
            left = 2 * label_in(keys[place])
            score = score_in(keys[place])
            for child in (left + 1, left):
                log_probability = score + _log_probability(x, nodes[first + child])
                keys[2 * place + child - left] = key_of(log_probability, child)
        width *= 2
        if width > beam:
            largest_first(keys, width, beam)
            width = beam
    return width
