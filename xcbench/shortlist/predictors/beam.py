"""Prediction by cluster beam: sigma(cluster) * sigma(label) for the labels of the best clusters only.

A point's candidates are rows of W that lie together, since W is kept in the order of the clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numba import njit

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.files import atomic_folder
from xcbench.kernels.csr import dot
from xcbench.kernels.hash_table import add, slot_of, table_size
from xcbench.kernels.memory import MemoryNeed
from xcbench.kernels.selection import key_of, write_best
from xcbench.shortlist.beam import BeamShortlister, most_members
from xcbench.shortlist.blocks import search_memory, topk_in_blocks
from xcbench.shortlist.contract import Floats, Vectors, as_bias, as_matrix, load_parts, save_parts
from xcbench.shortlist.game import Game, game_from, game_parts


@dataclass(frozen=True)
class BeamPredictor:
    """Label classifiers behind a cluster beam, with GAME over the label graph if asked.

    GAME as in the authors' code re-ranks the finished scores, of which it is given the `game.beam` best; as in the
    paper it acts on sigma(label) within the shortlist, before the cluster's probability is multiplied in.
    """

    shortlister: BeamShortlister
    W: Floats  # [L, D], in the order of the clusters' members
    bias: Floats  # [L] in the same order, or empty
    game: Game | None = None

    @classmethod
    def of(
        cls, shortlister: BeamShortlister, W: Vectors, bias: Vectors | None = None, game: Game | None = None
    ) -> BeamPredictor:
        """Takes W and bias in the order of label ids, and copies them."""
        matrix = as_matrix(W)
        if len(matrix) != shortlister.label_count:
            raise InputError(f"{shortlister.label_count} labels need a classifier each, got {len(matrix)}")
        order = shortlister.clustering.indices
        offset = as_bias(bias, len(matrix))
        return cls(shortlister, matrix[order], offset[order] if len(offset) else offset, game)

    def predict(self, X_clusters: Vectors, X_labels: Vectors, k: int) -> TopK:
        """Points as the cluster stage sees them, and as the label stage does (two encoders, or one twice)."""
        X_clusters = as_matrix(X_clusters, self.shortlister.H.shape[1])
        X_labels = as_matrix(X_labels, self.W.shape[1])
        if len(X_clusters) != len(X_labels):
            raise InputError(f"two stages see the same points, got {len(X_clusters)} and {len(X_labels)}")
        self.memory(len(X_labels), k).require(f"a prediction for {len(X_labels)} points")
        return topk_in_blocks(len(X_labels), k, lambda block: self._block(X_clusters[block], X_labels[block], k))

    def memory(self, points: int, k: int) -> MemoryNeed:
        """Beyond the parameters."""
        work = search_memory(points, 2 * self.shortlister.width, len(self.shortlister.H)).work
        return MemoryNeed(8 * points * k, work)

    def _block(self, X_clusters: Floats, X_labels: Floats, k: int) -> TopK:
        likely = self.shortlister.clusters_of_block(X_clusters)
        if self.game is None or self.game.mode != "code":
            return self._score(X_labels, likely, k)
        reranked = self.game.block(self._score(X_labels, likely, self.game.beam))
        return reranked.cut(k).padded(k)

    def _score(self, X: Floats, likely: TopK, k: int) -> TopK:
        out = TopK(np.empty((len(X), k), np.int32), np.empty((len(X), k), np.float32))
        clustering = self.shortlister.clustering
        candidates = (X, likely.indices, likely.scores, clustering.indptr, clustering.indices, self.W, self.bias)
        if self.game is not None and self.game.mode == "paper":
            _score_and_spread(*candidates, *self.game.rows, np.float32(self.game.power), out.indices, out.scores)
        else:
            _score(*candidates, out.indices, out.scores)
        return out

    def save(self, folder: Path) -> None:
        settings, arrays = game_parts(self.game)
        with atomic_folder(folder) as part:
            save_parts(part / "labels", "beam-predictor", {"game": settings}, arrays | {"W": self.W, "bias": self.bias})
            self.shortlister.save(part / "clusters")

    @classmethod
    def load(cls, folder: Path) -> BeamPredictor:
        settings, arrays = load_parts(folder / "labels", "beam-predictor")
        shortlister = BeamShortlister.load(folder / "clusters")
        return cls(shortlister, arrays["W"], arrays["bias"], game_from(settings["game"], arrays))


@njit(cache=True)
def _probability(
    x: npt.NDArray[np.float32], W: npt.NDArray[np.float32], bias: npt.NDArray[np.float32], row: int
) -> np.float32:
    logit = dot(x, W[row])
    if len(bias) > 0:
        logit += bias[row]
    probability: np.float32 = np.float32(1) / (np.float32(1) + np.exp(-logit))
    return probability


@njit(cache=True, nogil=True)
def _score(
    X: npt.NDArray[np.float32],
    clusters: npt.NDArray[np.int32],
    probabilities: npt.NDArray[np.float32],
    indptr: npt.NDArray[np.int64],
    members: npt.NDArray[np.int32],
    W: npt.NDArray[np.float32],
    bias: npt.NDArray[np.float32],
    out_labels: npt.NDArray[np.int32],
    out_scores: npt.NDArray[np.float32],
) -> None:
    keys = np.empty(most_members(clusters, indptr), np.uint64)
    for i in range(len(X)):
        count = 0
        for place, cluster in enumerate(clusters[i]):
            if cluster >= 0:
                for m in range(indptr[cluster], indptr[cluster + 1]):
                    score = probabilities[i, place] * _probability(X[i], W, bias, m)
                    keys[count] = key_of(score, members[m])
                    count += 1
        write_best(keys, count, out_labels[i], out_scores[i])


@njit(cache=True, nogil=True)
def _score_and_spread(
    X: npt.NDArray[np.float32],
    clusters: npt.NDArray[np.int32],
    probabilities: npt.NDArray[np.float32],
    indptr: npt.NDArray[np.int64],
    members: npt.NDArray[np.int32],
    W: npt.NDArray[np.float32],
    bias: npt.NDArray[np.float32],
    graph_indptr: npt.NDArray[np.int64],
    graph_indices: npt.NDArray[np.int32],
    graph_data: npt.NDArray[np.float32],
    power: np.float32,
    out_labels: npt.NDArray[np.int32],
    out_scores: npt.NDArray[np.float32],
) -> None:
    """ECLARE's equation: s_l = p_m * sum over the shortlist of G_lj sigma(<w_j, x>), that sum as a power mean."""
    most = most_members(clusters, indptr)
    size = table_size(most)
    held, own = np.empty(size, np.int32), np.empty(size, np.float32)
    keys = np.empty(most, np.uint64)
    for i in range(len(X)):
        held[:] = -1
        for cluster in clusters[i]:
            if cluster >= 0:
                for m in range(indptr[cluster], indptr[cluster + 1]):
                    add(held, own, members[m], _probability(X[i], W, bias, m) ** power)
        count = 0
        for place, cluster in enumerate(clusters[i]):
            if cluster >= 0:
                for m in range(indptr[cluster], indptr[cluster + 1]):
                    spread = np.float32(0)
                    for g in range(graph_indptr[members[m]], graph_indptr[members[m] + 1]):
                        slot = slot_of(held, graph_indices[g])
                        if held[slot] != -1:
                            spread += graph_data[g] * own[slot]
                    keys[count] = key_of(probabilities[i, place] * spread ** (1 / power), members[m])
                    count += 1
        write_best(keys, count, out_labels[i], out_scores[i])
