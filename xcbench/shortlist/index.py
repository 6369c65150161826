"""Shortlists by an index of weighted edges: a cluster leads to many labels, and a label is reached from many clusters.

This is the index of ELIAS, a sparse weighted graph between clusters and labels. The score of a cluster c for a point x
and the score of a label l are

    s_c = min(1, alpha softmax(H x + b)_c)        y_l = max over the explored c of s_c s_cl

where s_cl is the weight of the edge from c to l. The clusters that are explored are the best `beam` ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from numba import njit

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, arrays_of
from xcbench.kernels.parallel import kernel, share_rows
from xcbench.kernels.selection import key_of, label_in, largest_first, write_best
from xcbench.shortlist.blocks import empty_topk, topk_in_blocks
from xcbench.shortlist.contract import Vectors, as_bias, as_matrix, load_parts, save_parts
from xcbench.shortlist.device.blocks import is_cpu
from xcbench.shortlist.device.index import DeviceIndexShortlister


@dataclass(frozen=True)
class IndexShortlister:
    """Finds the labels to which weighted edges lead from the likeliest clusters.

    `IndexShortlister.of` checks its parameters and takes arrays or tensors of any type.

    Parameters
    ----------
    H
        [C, D] classifiers, one per cluster.
    bias
        [C] numbers, one per cluster, or an empty array.
    edges
        The labels that each cluster leads to, and the weights of the edges, from 0 to 1.
    label_count
        The number of labels, L.
    beam
        How many clusters are explored per point.
    alpha
        Multiplies the softmax over clusters, so that several clusters can have a score of 1.
    """

    H: Floats
    bias: Floats
    edges: CsrArrays
    label_count: int
    beam: int
    alpha: float

    @classmethod
    def of(
        cls,
        H: Vectors,
        edges: sp.csr_array,
        beam: int,
        bias: Vectors | None = None,
        alpha: float = 10.0,
    ) -> IndexShortlister:
        """Check and convert the parameters; see the class. `edges` is [C, L]; a beam beyond all clusters is cut."""
        matrix = as_matrix(H)
        if len(matrix) != edges.shape[0]:
            raise InputError(f"{edges.shape[0]} clusters need a classifier each, got {len(matrix)}")
        if beam < 1 or alpha <= 0:
            raise InputError(f"an index explores at least 1 cluster, with alpha above 0; got {beam} and {alpha}")
        return cls(
            matrix,
            as_bias(bias, len(matrix)),
            arrays_of(edges),
            int(edges.shape[1]),
            min(beam, len(matrix)),
            alpha,
        )

    def shortlist(self, X: Vectors, k: int) -> TopK:
        """Return the k labels with the largest y_l. Labels that no edge leads to from the beam are not found."""
        X = as_matrix(X, self.H.shape[1])
        return topk_in_blocks(len(X), k, lambda block: self._labels_of_block(X[block], k))

    def clusters(self, X: Vectors) -> TopK:
        """Return the `beam` best clusters of each point of X [n, D], with their scores s_c."""
        X = as_matrix(X, self.H.shape[1])

        def best_of_block(block: slice) -> TopK:
            shares = self._shares(X[block])
            result = empty_topk(len(shares), self.beam)
            _best_columns(shares, result.indices, result.scores)
            np.minimum(self.alpha * result.scores, 1, out=result.scores)
            return result

        return topk_in_blocks(len(X), self.beam, best_of_block)

    def _shares(self, X: Floats) -> Floats:
        """Return softmax(H x + b) for each point."""
        logits = X @ self.H.T
        if len(self.bias):
            logits += self.bias
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        shares: Floats = logits
        return shares

    def _labels_of_block(self, X: Floats, k: int) -> TopK:
        shares = self._shares(X)
        clusters = np.empty((len(X), self.beam), np.int32)
        _best_columns(shares, clusters, np.empty(clusters.shape, np.float32))
        scores = np.minimum(np.float32(self.alpha) * shares, np.float32(1))
        result = empty_topk(len(X), k)
        _best_labels(
            scores,
            clusters,
            *self.edges,
            self.label_count,
            result.indices,
            result.scores,
        )
        return result

    def to(self, device: str | torch.device) -> IndexShortlister | DeviceIndexShortlister:
        """Return a copy that searches on a device; on the CPU that is the shortlister itself."""
        if is_cpu(device):
            return self
        return DeviceIndexShortlister(self, device)

    def save(self, folder: Path) -> None:
        settings = {"beam": self.beam, "alpha": self.alpha, "label_count": self.label_count}
        arrays = {"H": self.H, "bias": self.bias, **self.edges._asdict()}
        save_parts(folder, "index", settings, arrays)

    @classmethod
    def load(cls, folder: Path) -> IndexShortlister:
        settings, arrays = load_parts(folder, "index")
        edges = CsrArrays(arrays["indptr"], arrays["indices"], arrays["data"])
        return cls(
            arrays["H"],
            arrays["bias"],
            edges,
            settings["label_count"],
            settings["beam"],
            settings["alpha"],
        )


@dataclass(frozen=True)
class Paths:
    """The best path to each listed label: those of point i are at indptr[i] to indptr[i + 1]."""

    indptr: Longs  # [n + 1]
    labels: Ints
    clusters: Ints  # which cluster leads to the label
    edges: Longs  # by which edge
    targets: Floats  # the target of the label for the point


def best_paths(
    scores: Floats,
    clusters: Ints,
    edges: CsrArrays,
    targets: CsrArrays,
    label_count: int,
    length: int,
) -> Paths:
    """Return the paths to the best labels that some explored clusters lead to: what a training step scores.

    Parameters
    ----------
    scores
        [n, C] s_c of all clusters.
    clusters
        [n, m] the clusters that are explored for each point, -1 for none.
    edges
        The labels of each cluster and the weights s_cl.
    targets
        The targets of each point. A label whose target is nan is not listed.
    label_count
        The number of labels.
    length
        How many labels are listed per point. True labels that are explored are listed beyond that.
    """
    points = len(scores)
    starts = length * np.arange(points + 1) + targets.indptr
    labels = np.empty(starts[-1], np.int32)
    ends = starts[:-1].copy()
    found_clusters = np.empty(len(labels), np.int32)
    found_edges = np.empty(len(labels), np.int64)
    values = np.empty(len(labels), np.float32)
    share_rows(
        _paths_of_points,
        points,
        points * longest(clusters, edges.indptr),
        scores,
        clusters,
        edges.indptr,
        edges.indices,
        edges.data,
        targets.indptr,
        targets.indices,
        targets.data,
        label_count,
        length,
        starts,
        ends,
        labels,
        found_clusters,
        found_edges,
        values,
    )
    counts = ends - starts[:-1]
    used = np.repeat(starts[:-1] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    indptr = np.concatenate(([0], np.cumsum(counts)))
    return Paths(indptr, labels[used], found_clusters[used], found_edges[used], values[used])


@njit(cache=True, nogil=True)
def longest(clusters: Ints, indptr: Longs) -> int:
    """Return how many edges the clusters of one row have together at most."""
    most = 0
    for i in range(len(clusters)):
        count = 0
        for cluster in clusters[i]:
            if cluster >= 0:
                count += indptr[cluster + 1] - indptr[cluster]
        most = max(most, count)
    return most


@njit(cache=True, nogil=True)
def _best_columns(values: Floats, out_columns: Ints, out_values: Floats) -> None:
    keys = np.empty(values.shape[1], np.uint64)
    for i in range(len(values)):
        for column in range(values.shape[1]):
            keys[column] = key_of(values[i, column], column)
        write_best(keys, len(keys), out_columns[i], out_values[i])


@njit(cache=True, nogil=True)
def _explore(
    scores: Floats,
    clusters: Ints,
    indptr: Longs,
    edge_labels: Ints,
    weights: Floats,
    best: Floats,
    labels: Ints,
) -> int:
    """Write the score of the best path to `best`, [L], for each label of some clusters, and list these labels.

    All of `best` is -1 before. Returns how many labels are listed. There is one place more than they need: every label
    is written, but the end moves on only for new ones. A branch on that would often be mispredicted.
    """
    count = np.uint64(0)
    for cluster in clusters:
        if cluster < 0:
            continue
        score = scores[cluster]
        for e in range(np.uint64(indptr[cluster]), np.uint64(indptr[cluster + 1])):
            label = np.uint32(edge_labels[e])  # without a sign: else every look-up asks whether to count from the end
            before = best[label]
            labels[count] = label
            count += np.uint64(before < 0)
            best[label] = max(before, score * weights[e])
    listed: int = np.int64(count)
    return listed


@njit(cache=True, nogil=True)
def _best_labels(
    scores: Floats,
    clusters: Ints,
    indptr: Longs,
    edge_labels: Ints,
    weights: Floats,
    label_count: int,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    most = min(longest(clusters, indptr), label_count)
    best = np.full(label_count, -1, np.float32)
    labels = np.empty(most + 1, np.int32)
    keys = np.empty(most + 1, np.uint64)
    for i in range(len(scores)):
        count = _explore(scores[i], clusters[i], indptr, edge_labels, weights, best, labels)
        for place in range(count):
            label = labels[place]
            keys[place] = key_of(best[label], label)
            best[label] = -1
        write_best(keys, count, out_labels[i], out_scores[i])


@kernel
def _paths_of_points(
    first: int,
    last: int,
    scores: Floats,
    clusters: Ints,
    indptr: Longs,
    edge_labels: Ints,
    weights: Floats,
    target_indptr: Longs,
    target_labels: Ints,
    target_values: Floats,
    label_count: int,
    length: int,
    starts: Longs,
    ends: Longs,
    out_labels: Ints,
    out_clusters: Ints,
    out_edges: Longs,
    out_targets: Floats,
) -> None:
    most = min(longest(clusters[first:last], indptr), label_count)
    best = np.full(label_count, -1, np.float32)
    targets = np.zeros(label_count, np.float32)
    is_listed = np.zeros(label_count, np.bool_)
    labels = np.empty(most + 1, np.int32)
    keys = np.empty(most + 1, np.uint64)
    for i in range(first, last):
        count = _explore(scores[i], clusters[i], indptr, edge_labels, weights, best, labels)
        for e in range(target_indptr[i], target_indptr[i + 1]):
            targets[target_labels[e]] = target_values[e]
            is_listed[target_labels[e]] = target_values[e] > 0
        _list_best(keys, best, labels[:count], targets, length, is_listed)

        end = starts[i]
        for cluster in clusters[i]:
            if cluster < 0:
                continue
            score = scores[i, cluster]
            for e in range(np.uint64(indptr[cluster]), np.uint64(indptr[cluster + 1])):
                label = np.uint32(edge_labels[e])
                if is_listed[label] and score * weights[e] == best[label]:
                    is_listed[label] = False
                    out_labels[end] = label
                    out_clusters[end] = cluster
                    out_edges[end] = e
                    out_targets[end] = targets[label]
                    end += 1
        ends[i] = end

        for label in labels[:count]:
            best[label] = np.float32(-1)
        for e in range(target_indptr[i], target_indptr[i + 1]):
            targets[target_labels[e]] = np.float32(0)
            is_listed[target_labels[e]] = False


@njit(cache=True, nogil=True)
def _list_best(
    keys: npt.NDArray[np.uint64],
    best: Floats,
    labels: Ints,
    targets: Floats,
    length: int,
    is_listed: npt.NDArray[np.bool_],
) -> None:
    """Mark the best `length` labels of a point as listed, but none whose target is nan."""
    count = 0
    for label in labels:
        keys[count] = key_of(best[label], label)
        count += np.int64(not np.isnan(targets[label]))
    if count > length:
        largest_first(keys, count, length)
        count = length
    for k in range(count):
        is_listed[label_in(keys[k])] = True
