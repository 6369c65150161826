"""Prediction by a beam over clusters: sigma(cluster) * sigma(label), for the labels of the best clusters only.

W is kept in the order of the clusters, so that the rows of a cluster's labels are next to each other in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numba import njit

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.files import atomic_folder
from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, dot
from xcbench.kernels.hash_table import table_size
from xcbench.kernels.memory import MemoryEstimate
from xcbench.kernels.selection import key_of, write_best
from xcbench.shortlist.beam import BeamShortlister, max_members
from xcbench.shortlist.blocks import BYTES_PER_PLACE, empty_topk, search_memory, topk_in_blocks
from xcbench.shortlist.contract import Vectors, as_bias, as_matrix, load_parts, save_parts
from xcbench.shortlist.device.beam import DeviceBeamPredictor
from xcbench.shortlist.device.blocks import is_cpu
from xcbench.shortlist.game import Game, game_from_parts, game_to_parts, spread_in_shortlist


@dataclass(frozen=True)
class BeamPredictor:
    """Scores the labels that a beam over clusters finds, by a linear classifier per label.

    GAME in the form of the authors' code reranks the `game.beam` best finished scores. In the form of the paper it
    spreads sigma(label) within the shortlist, before the cluster's probability is multiplied in.

    Parameters
    ----------
    shortlister
        Finds the clusters.
    W
        [L, D] classifiers, in the order of the clusters' members. `BeamPredictor.of` takes the order of label ids.
    bias
        [L] numbers in the same order, or an empty array.
    game
        GAME over the graph of labels; None for no GAME.
    """

    shortlister: BeamShortlister
    W: Floats
    bias: Floats
    game: Game | None = None

    @classmethod
    def of(
        cls,
        shortlister: BeamShortlister,
        W: Vectors,
        bias: Vectors | None = None,
        game: Game | None = None,
    ) -> BeamPredictor:
        """Take W and bias in the order of label ids, and copy them into the order of the clusters."""
        matrix = as_matrix(W)
        if len(matrix) != shortlister.label_count:
            raise InputError(f"{shortlister.label_count} labels need a classifier each, got {len(matrix)}")
        order = shortlister.clustering.indices
        biases = as_bias(bias, len(matrix))
        if len(biases):
            biases = biases[order]
        return cls(shortlister, matrix[order], biases, game)

    def predict(self, X_clusters: Vectors, X_labels: Vectors, k: int) -> TopK:
        """Return the k best labels per point.

        Parameters
        ----------
        X_clusters
            [n, D] the points' vectors for the cluster classifiers.
        X_labels
            [n, D] the same points' vectors for the label classifiers. They may come from another encoder.
        k
            The number of labels per point. The result has k columns, padded where a shortlist has fewer labels.
        """
        X_clusters = as_matrix(X_clusters, self.shortlister.H.shape[1])
        X_labels = as_matrix(X_labels, self.W.shape[1])
        if len(X_clusters) != len(X_labels):
            raise InputError(f"two stages see the same points, got {len(X_clusters)} and {len(X_labels)}")
        self.memory(len(X_labels), k).require(f"a prediction for {len(X_labels)} points")
        return topk_in_blocks(
            len(X_labels),
            k,
            lambda block: self._predict_block(X_clusters[block], X_labels[block], k),
        )

    def memory(self, points: int, k: int) -> MemoryEstimate:
        """Estimate the memory of a prediction of k labels per point, without the parameters."""
        search = search_memory(points, 2 * self.shortlister.width, len(self.shortlister.H))
        return MemoryEstimate(
            {
                "results": BYTES_PER_PLACE * points * k,
                "blocks under way": search["blocks under way"],
            }
        )

    def _predict_block(self, X_clusters: Floats, X_labels: Floats, k: int) -> TopK:
        clusters = self.shortlister.clusters_of_block(X_clusters)
        if self.game is None or self.game.mode == "off":
            return self._score(X_labels, clusters, k)
        if self.game.mode == "paper":
            return self._score_and_spread(X_labels, clusters, k, self.game)
        scores = self._score(X_labels, clusters, self.game.beam)
        return self.game.rerank_block(scores).cut(k).padded(k)

    def _score(self, X: Floats, clusters: TopK, k: int) -> TopK:
        """sigma(cluster) * sigma(label)."""
        result = empty_topk(len(X), k)
        clustering = self.shortlister.clustering
        _score_rows(
            X,
            clusters.indices,
            clusters.scores,
            clustering.indptr,
            clustering.indices,
            self.W,
            self.bias,
            result.indices,
            result.scores,
        )
        return result

    def _score_and_spread(self, X: Floats, clusters: TopK, k: int, game: Game) -> TopK:
        """sigma(cluster) * spread(sigma(label))."""
        result = empty_topk(len(X), k)
        clustering = self.shortlister.clustering
        _score_and_spread_rows(
            X,
            clusters.indices,
            clusters.scores,
            clustering.indptr,
            clustering.indices,
            self.W,
            self.bias,
            game.graph_arrays,
            np.float32(game.power),
            result.indices,
            result.scores,
        )
        return result

    def to(self, device: str | torch.device) -> BeamPredictor | DeviceBeamPredictor:
        """Return a copy that predicts on a device; on the CPU that is the predictor itself."""
        if is_cpu(device):
            return self
        return DeviceBeamPredictor(self, device)

    def save(self, folder: Path) -> None:
        game_settings, arrays = game_to_parts(self.game)
        arrays["W"] = self.W
        arrays["bias"] = self.bias
        with atomic_folder(folder) as part:
            save_parts(part / "labels", "beam-predictor", {"game": game_settings}, arrays)
            self.shortlister.save(part / "clusters")

    @classmethod
    def load(cls, folder: Path) -> BeamPredictor:
        settings, arrays = load_parts(folder / "labels", "beam-predictor")
        return cls(
            BeamShortlister.load(folder / "clusters"),
            arrays["W"],
            arrays["bias"],
            game_from_parts(settings["game"], arrays),
        )


@njit(cache=True)
def _probability(x: Floats, W: Floats, bias: Floats, row: int) -> np.float32:
    logit = dot(x, W[row])
    if len(bias) > 0:
        logit += bias[row]
    probability: np.float32 = np.float32(1) / (np.float32(1) + np.exp(-logit))
    return probability


@njit(cache=True, nogil=True)
def _score_rows(
    X: Floats,
    clusters: Ints,
    cluster_probabilities: Floats,
    indptr: Longs,
    members: Ints,
    W: Floats,
    bias: Floats,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    """s_l = p_m sigma(<w_l, x>) for the labels l of each cluster m. Row j of W is the classifier of members[j]."""
    keys = np.empty(max_members(clusters, indptr), np.uint64)
    for i in range(len(X)):
        count = 0
        for place, cluster in enumerate(clusters[i]):
            if cluster >= 0:
                for j in range(indptr[cluster], indptr[cluster + 1]):
                    score = cluster_probabilities[i, place] * _probability(X[i], W, bias, j)
                    keys[count] = key_of(score, members[j])
                    count += 1
        write_best(keys, count, out_labels[i], out_scores[i])


@njit(cache=True, nogil=True)
def _score_and_spread_rows(
    X: Floats,
    clusters: Ints,
    cluster_probabilities: Floats,
    indptr: Longs,
    members: Ints,
    W: Floats,
    bias: Floats,
    graph: CsrArrays,
    power: np.float32,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    """s_l = p_m spread_l, where GAME spreads sigma(<w_j, x>) among all labels j of the point's shortlist."""
    max_labels = max_members(clusters, indptr)
    labels = np.empty(max_labels, np.int32)
    factors = np.empty(max_labels, np.float32)
    probabilities = np.empty(max_labels, np.float32)
    spread = np.empty(max_labels, np.float64)
    keys = np.empty(max_labels, np.uint64)
    table_labels = np.empty(table_size(max_labels), np.int32)
    table_values = np.empty(table_size(max_labels), np.float32)

    for i in range(len(X)):
        count = 0
        for place, cluster in enumerate(clusters[i]):
            if cluster >= 0:
                for j in range(indptr[cluster], indptr[cluster + 1]):
                    labels[count] = members[j]
                    factors[count] = cluster_probabilities[i, place]
                    probabilities[count] = _probability(X[i], W, bias, j)
                    count += 1

        spread_in_shortlist(
            labels[:count],
            probabilities[:count],
            graph,
            power,
            table_labels,
            table_values,
            spread,
        )
        for e in range(count):
            keys[e] = key_of(factors[e] * spread[e], labels[e])
        write_best(keys, count, out_labels[i], out_scores[i])
