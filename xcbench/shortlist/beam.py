"""Shortlists by clusters: score all clusters, keep the best few, take their labels.

What a point costs beyond its cluster scores depends on the beam and the size of clusters, not on the number of labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.kernels.selection import key_of, write_best
from xcbench.labels import Clustering
from xcbench.shortlist.blocks import search_memory, topk_in_blocks
from xcbench.shortlist.contract import Floats, Vectors, as_bias, as_matrix, load_parts, save_parts
from xcbench.shortlist.exact import search_block
from xcbench.shortlist.game import Game, game_from, game_parts


@dataclass(frozen=True)
class BeamShortlister:
    """The labels of the `beam` clusters that a linear classifier finds most likely, spread by GAME if asked."""

    H: Floats  # [K, D]
    bias: Floats  # [K], or empty
    clustering: Clustering
    beam: int
    game: Game | None = None
    """Over the cluster graph."""

    @classmethod
    def of(
        cls,
        H: Vectors,
        clustering: Clustering,
        beam: int,
        bias: Vectors | None = None,
        game: Game | None = None,
    ) -> BeamShortlister:
        matrix = as_matrix(H)
        if len(matrix) != clustering.K:
            raise InputError(f"{clustering.K} clusters need a classifier each, got {len(matrix)}")
        if beam < 1:
            raise InputError(f"a beam keeps at least 1 cluster, got {beam}")
        return cls(matrix, as_bias(bias, len(matrix)), clustering, min(beam, len(matrix)), game)

    @property
    def label_count(self) -> int:
        return len(self.clustering.cluster_of)

    @property
    def width(self) -> int:
        """How many clusters a point has at most."""
        return self.beam if self.game is None else self.game.width(self.beam)

    def clusters(self, X: Vectors) -> TopK:
        """The best clusters of each point with their probabilities, after GAME where there is one."""
        X = as_matrix(X, self.H.shape[1])
        search_memory(len(X), self.width, len(self.H)).require(f"a search among {len(self.H)} clusters")
        return topk_in_blocks(len(X), self.width, lambda block: self.clusters_of_block(X[block]))

    def clusters_of_block(self, X: Floats) -> TopK:
        """`clusters` of one block, on the calling thread."""
        found = search_block(X, self.H, self.bias, self.beam)
        likely = TopK(found.indices, sigmoid(found.scores))
        return likely if self.game is None else self.game.block(likely)

    def shortlist(self, X: Vectors, k: int) -> TopK:
        """Labels by the probability of their cluster; those of one cluster are tied, so the smaller id comes first."""
        X = as_matrix(X, self.H.shape[1])
        return topk_in_blocks(len(X), k, lambda block: self._labels_of_block(X[block], k))

    def candidates(self, X: Vectors) -> sp.csr_array:
        """Every label of the best clusters, however many, as a sparse n x L matrix of their clusters' probabilities.

        For training on millions of points keep `clusters(X).indices` instead, and let each batch look up the members.
        """
        likely = self.clusters(X)
        indptr, labels, scores = _members(
            likely.indices, likely.scores, self.clustering.indptr, self.clustering.indices
        )
        return sp.csr_array((scores, labels, indptr), shape=(len(likely), self.label_count))

    def _labels_of_block(self, X: Floats, k: int) -> TopK:
        likely = self.clusters_of_block(X)
        members = _members(likely.indices, likely.scores, self.clustering.indptr, self.clustering.indices)
        out = TopK(np.empty((len(X), k), np.int32), np.empty((len(X), k), np.float32))
        _best_of_rows(*members, out.indices, out.scores)
        return out

    def save(self, folder: Path) -> None:
        settings, arrays = game_parts(self.game)
        arrays |= {"H": self.H, "bias": self.bias, "cluster_of": self.clustering.cluster_of}
        save_parts(folder, "beam", {"beam": self.beam, "game": settings}, arrays)

    @classmethod
    def load(cls, folder: Path) -> BeamShortlister:
        settings, arrays = load_parts(folder, "beam")
        clustering = Clustering.of(arrays["cluster_of"], len(arrays["H"]))
        return cls(arrays["H"], arrays["bias"], clustering, settings["beam"], game_from(settings["game"], arrays))


def beam_width(K: int, L: int, wanted: int, beam: int | None = None) -> int:
    """A beam as asked for, else one that holds so many of the L labels as are wanted; at most all K clusters."""
    return min(K, beam or -(-wanted * K // L))


def sigmoid(logits: Floats) -> Floats:
    """Probabilities of logits; padding (-inf) becomes 0."""
    with np.errstate(over="ignore"):
        probabilities: Floats = np.float32(1) / (np.float32(1) + np.exp(-logits))
    return probabilities


@njit(cache=True)
def most_members(clusters: npt.NDArray[np.int32], indptr: npt.NDArray[np.int64]) -> int:
    """How many labels the clusters of one row have together at most."""
    most = 0
    for i in range(len(clusters)):
        members = 0
        for cluster in clusters[i]:
            if cluster >= 0:
                members += indptr[cluster + 1] - indptr[cluster]
        most = max(most, members)
    return most


@njit(cache=True, nogil=True)
def _members(
    clusters: npt.NDArray[np.int32],
    probabilities: npt.NDArray[np.float32],
    indptr: npt.NDArray[np.int64],
    members: npt.NDArray[np.int32],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    starts = np.zeros(len(clusters) + 1, np.int64)
    for i in range(len(clusters)):
        starts[i + 1] = starts[i] + most_members(clusters[i : i + 1], indptr)
    labels, scores = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    for i in range(len(clusters)):
        end = starts[i]
        for place, cluster in enumerate(clusters[i]):
            if cluster >= 0:
                start, end = end, end + indptr[cluster + 1] - indptr[cluster]
                labels[start:end] = members[indptr[cluster] : indptr[cluster + 1]]
                scores[start:end] = probabilities[i, place]
    return starts, labels, scores


@njit(cache=True, nogil=True)
def _best_of_rows(
    indptr: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    out_labels: npt.NDArray[np.int32],
    out_scores: npt.NDArray[np.float32],
) -> None:
    keys = np.empty(len(labels), np.uint64)
    for i in range(len(out_labels)):
        for e in range(indptr[i], indptr[i + 1]):
            keys[e] = key_of(scores[e], labels[e])
        write_best(keys[indptr[i] : indptr[i + 1]], indptr[i + 1] - indptr[i], out_labels[i], out_scores[i])
