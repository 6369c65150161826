"""Shortlists by clusters: score all clusters, keep the best few, take their labels.

The cost per point, beyond the scores of clusters, depends on the beam and the size of clusters. It does not depend on
the number of labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from numba import njit

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.selection import key_of, write_best
from xcbench.labels import Clustering
from xcbench.shortlist.blocks import empty_topk, search_memory, topk_in_blocks
from xcbench.shortlist.contract import Vectors, as_bias, as_matrix, load_parts, save_parts
from xcbench.shortlist.device.beam import DeviceBeamShortlister
from xcbench.shortlist.device.blocks import is_cpu
from xcbench.shortlist.exact import search_block
from xcbench.shortlist.game import Game, game_from_parts, game_to_parts


@dataclass(frozen=True)
class BeamShortlister:
    """Finds the labels of the clusters that a linear classifier finds most likely.

    `BeamShortlister.of` checks its parameters and takes arrays or tensors of any type.

    Parameters
    ----------
    H
        [K, D] classifiers, one per cluster.
    bias
        [K] numbers, one per cluster, or an empty array.
    clustering
        Which labels each cluster has.
    beam
        How many clusters are kept per point.
    game
        GAME over the graph of clusters, which reranks them and may add others; None for no GAME.
    """

    H: Floats
    bias: Floats
    clustering: Clustering
    beam: int
    game: Game | None = None

    @classmethod
    def of(
        cls,
        H: Vectors,
        clustering: Clustering,
        beam: int,
        bias: Vectors | None = None,
        game: Game | None = None,
    ) -> BeamShortlister:
        """Check and convert the parameters; see the class. A beam of more than all clusters is cut to all."""
        matrix = as_matrix(H)
        if len(matrix) != clustering.K:
            raise InputError(f"{clustering.K} clusters need a classifier each, got {len(matrix)}")
        if beam < 1:
            raise InputError(f"a beam keeps at least 1 cluster, got {beam}")
        return cls(
            matrix,
            as_bias(bias, len(matrix)),
            clustering,
            min(beam, len(matrix)),
            game,
        )

    @property
    def label_count(self) -> int:
        return len(self.clustering.cluster_of)

    @property
    def width(self) -> int:
        """The largest number of clusters that a point can have: the beam, and what GAME adds to it."""
        if self.game is None:
            return self.beam
        return self.game.width(self.beam)

    def clusters(self, X: Vectors) -> TopK:
        """Return the best clusters of each point of X [n, D] with their probabilities, after GAME if there is one."""
        X = as_matrix(X, self.H.shape[1])
        memory = search_memory(len(X), self.width, len(self.H))
        memory.require(f"a search among {len(self.H)} clusters")
        return topk_in_blocks(len(X), self.width, lambda block: self.clusters_of_block(X[block]))

    def clusters_of_block(self, X: Floats) -> TopK:
        """Do the same for one block of points, on the calling thread."""
        best = search_block(X, self.H, self.bias, self.beam)
        likely = TopK(best.indices, sigmoid(best.scores))
        if self.game is None:
            return likely
        return self.game.rerank_block(likely)

    def shortlist(self, X: Vectors, k: int) -> TopK:
        """Return the k labels whose clusters are most likely. Labels of one cluster come in the order of their ids."""
        X = as_matrix(X, self.H.shape[1])
        return topk_in_blocks(len(X), k, lambda block: self._labels_of_block(X[block], k))

    def candidates(self, X: Vectors) -> sp.csr_array:
        """Return all labels of the best clusters, with their clusters' probabilities, as a sparse matrix [n, L].

        To train on millions of points, keep `clusters(X).indices` instead and look up the members in each batch.
        """
        likely = self.clusters(X)
        indptr, labels, scores = self._members(likely)
        return sp.csr_array((scores, labels, indptr), shape=(len(likely), self.label_count))

    def _labels_of_block(self, X: Floats, k: int) -> TopK:
        indptr, labels, scores = self._members(self.clusters_of_block(X))
        result = empty_topk(len(X), k)
        _best_of_rows(indptr, labels, scores, result.indices, result.scores)
        return result

    def _members(self, clusters: TopK) -> tuple[Longs, Ints, Floats]:
        clustering = self.clustering
        return _members(clusters.indices, clusters.scores, clustering.indptr, clustering.indices)

    def to(self, device: str | torch.device) -> BeamShortlister | DeviceBeamShortlister:
        """Return a copy that searches on a device; on the CPU that is the shortlister itself."""
        if is_cpu(device):
            return self
        return DeviceBeamShortlister(self, device)

    def save(self, folder: Path) -> None:
        game_settings, arrays = game_to_parts(self.game)
        arrays["H"] = self.H
        arrays["bias"] = self.bias
        arrays["cluster_of"] = self.clustering.cluster_of
        settings = {"beam": self.beam, "game": game_settings}
        save_parts(folder, "beam", settings, arrays)

    @classmethod
    def load(cls, folder: Path) -> BeamShortlister:
        settings, arrays = load_parts(folder, "beam")
        H = arrays["H"]
        return cls(
            H,
            arrays["bias"],
            Clustering.of(arrays["cluster_of"], len(H)),
            settings["beam"],
            game_from_parts(settings["game"], arrays),
        )


def beam_width(
    K: int,
    L: int,
    wanted: int,
    beam: int | None = None,
) -> int:
    """Return how many clusters to search: `beam` where it is given, else as many as hold the labels wanted.

    Parameters
    ----------
    K
        The number of clusters, which is also the largest result.
    L
        The number of labels.
    wanted
        How many labels the clusters should have together, if each has L / K of them.
    beam
        A number of clusters that is used instead; None computes one.
    """
    if not beam:
        beam = -(-wanted * K // L)
    return min(K, beam)


def sigmoid(logits: Floats) -> Floats:
    """Return the probabilities of logits. Unused places of a `TopK` (-inf) get 0."""
    with np.errstate(over="ignore"):
        probabilities: Floats = np.float32(1) / (np.float32(1) + np.exp(-logits))
    return probabilities


@njit(cache=True)
def max_members(clusters: Ints, indptr: Longs) -> int:
    """Return how many labels the clusters of one row have together at most."""
    largest = 0
    for i in range(len(clusters)):
        count = 0
        for cluster in clusters[i]:
            if cluster >= 0:
                count += indptr[cluster + 1] - indptr[cluster]
        largest = max(largest, count)
    return largest


@njit(cache=True, nogil=True)
def _members(
    clusters: Ints,
    probabilities: Floats,
    indptr: Longs,
    members: Ints,
) -> tuple[Longs, Ints, Floats]:
    """Return the labels of each point's clusters as CSR arrays. Their values are the clusters' probabilities."""
    starts = np.zeros(len(clusters) + 1, np.int64)
    for i in range(len(clusters)):
        starts[i + 1] = starts[i] + max_members(clusters[i : i + 1], indptr)

    labels = np.empty(starts[-1], np.int32)
    scores = np.empty(starts[-1], np.float32)
    for i in range(len(clusters)):
        end = starts[i]
        for place, cluster in enumerate(clusters[i]):
            if cluster >= 0:
                start = end
                end = start + indptr[cluster + 1] - indptr[cluster]
                labels[start:end] = members[indptr[cluster] : indptr[cluster + 1]]
                scores[start:end] = probabilities[i, place]
    return starts, labels, scores


@njit(cache=True, nogil=True)
def _best_of_rows(
    indptr: Longs,
    labels: Ints,
    scores: Floats,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    keys = np.empty(len(labels), np.uint64)
    for i in range(len(out_labels)):
        start = indptr[i]
        stop = indptr[i + 1]
        for e in range(start, stop):
            keys[e] = key_of(scores[e], labels[e])
        write_best(keys[start:stop], stop - start, out_labels[i], out_scores[i])
