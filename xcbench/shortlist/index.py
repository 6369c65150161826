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
    point: int,
    scores: Floats,
    clusters: Ints,
    indptr: Longs,
    edge_labels: Ints,
    weights: Floats,
    seen_by: Ints,
    place_of: Ints,
    labels: Ints,
    best: Floats,
    from_clusters: Ints,
    by_edges: Longs,
) -> int:
    """List the labels of some clusters, each with the best of the paths to it. Returns how many they are.

    `seen_by` and `place_of` have one entry per label: the last point that has seen it, and its place in that list.
    """
    count = 0
    for cluster in clusters:
        if cluster < 0:
            continue
        score = scores[cluster]
        for e in range(indptr[cluster], indptr[cluster + 1]):
            label = edge_labels[e]
            value = score * weights[e]
            if seen_by[label] != point:
                seen_by[label] = point
                place_of[label] = count
                labels[count] = label
                best[count] = value
                from_clusters[count] = cluster
                by_edges[count] = e
                count += 1
            elif value > best[place_of[label]]:
                place = place_of[label]
                best[place] = value
                from_clusters[place] = cluster
                by_edges[place] = e
    return count


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
    seen_by = np.full(label_count, -1, np.int32)
    place_of = np.empty(label_count, np.int32)
    labels = np.empty(most, np.int32)
    best = np.empty(most, np.float32)
    from_clusters = np.empty(most, np.int32)
    by_edges = np.empty(most, np.int64)
    keys = np.empty(most, np.uint64)
    for i in range(len(scores)):
        count = _explore(
            i,
            scores[i],
            clusters[i],
            indptr,
            edge_labels,
            weights,
            seen_by,
            place_of,
            labels,
            best,
            from_clusters,
            by_edges,
        )
        for place in range(count):
            keys[place] = key_of(best[place], labels[place])
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
    seen_by = np.full(label_count, -1, np.int32)
    place_of = np.empty(label_count, np.int32)
    labels = np.empty(most, np.int32)
    best = np.empty(most, np.float32)
    from_clusters = np.empty(most, np.int32)
    by_edges = np.empty(most, np.int64)
    keys = np.empty(most, np.uint64)
    targets = np.empty(most, np.float32)
    is_listed = np.empty(most, np.bool_)
    for i in range(first, last):
        count = _explore(
            i,
            scores[i],
            clusters[i],
            indptr,
            edge_labels,
            weights,
            seen_by,
            place_of,
            labels,
            best,
            from_clusters,
            by_edges,
        )
        targets[:count] = np.float32(0)
        is_listed[:count] = False
        for e in range(target_indptr[i], target_indptr[i + 1]):
            if seen_by[target_labels[e]] == i:
                place = place_of[target_labels[e]]
                targets[place] = target_values[e]
                is_listed[place] = target_values[e] > 0

        _mark_best(keys, best, labels, place_of, targets, count, length, is_listed)
        end = starts[i]
        for place in range(count):
            if is_listed[place]:
                out_labels[end] = labels[place]
                out_clusters[end] = from_clusters[place]
                out_edges[end] = by_edges[place]
                out_targets[end] = targets[place]
                end += 1
        ends[i] = end


@njit(cache=True, nogil=True)
def _mark_best(
    keys: npt.NDArray[np.uint64],
    best: Floats,
    labels: Ints,
    place_of: Ints,
    targets: Floats,
    count: int,
    length: int,
    is_listed: npt.NDArray[np.bool_],
) -> None:
    """Mark the best `length` labels of a point, but none whose target is nan."""
    kept = 0
    for place in range(count):
        if not np.isnan(targets[place]):
            keys[kept] = key_of(best[place], labels[place])
            kept += 1
    if kept > length:
        largest_first(keys, kept, length)
        kept = length
    for k in range(kept):
        is_listed[place_of[label_in(keys[k])]] = True
