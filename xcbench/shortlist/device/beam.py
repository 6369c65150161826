"""Shortlists and prediction by a beam over clusters, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.shortlist.contract import Vectors
from xcbench.shortlist.device.blocks import BYTES_PER_ID, row_blocks, topk_from_device, upload, upload_ids, vectors_on
from xcbench.shortlist.device.copies import DeviceCopy
from xcbench.shortlist.device.game import DeviceGame, DeviceSpread
from xcbench.shortlist.device.rows import list_entries, longest_listing
from xcbench.shortlist.device.search import row_logits, search
from xcbench.shortlist.device.selection import Found, keys_of, largest, unpacked

if TYPE_CHECKING:
    from xcbench.shortlist.beam import BeamShortlister
    from xcbench.shortlist.game import Game
    from xcbench.shortlist.predictors.beam import BeamPredictor


class DeviceBeamShortlister(DeviceCopy["BeamShortlister"]):
    """A `BeamShortlister` that searches on a device.

    Parameters
    ----------
    source
        The shortlister in main memory, which is what `save` writes.
    device
        Where the copies of its tables live.
    """

    def __init__(self, source: BeamShortlister, device: str | torch.device) -> None:
        super().__init__(source)
        self.beam = source.beam
        self.width = source.width
        self.H = upload(source.H, device)
        self.bias = upload(source.bias, device)
        self.indptr = upload(source.clustering.indptr, device)
        self.members = upload_ids(source.clustering.indices, device)
        self.game = _reranking(source.game, device)

    @property
    def label_count(self) -> int:
        return self.source.label_count

    def clusters(self, X: Vectors) -> TopK:
        """Return the best clusters of each point of X [n, D] with their probabilities, after GAME if there is one."""

        def compute_block(block: slice) -> Found:
            return self.clusters_of_block(vectors_on(X[block], self.H.device, self.H.shape[1]))

        return topk_from_device(len(X), self.width, compute_block)

    def clusters_of_block(self, X: Tensor) -> Found:
        """Do the same for one block of points; all stays on the device."""
        best = search(X, self.H, self.bias, self.beam)
        likely = Found(best.labels, best.scores.sigmoid())
        if self.game is None:
            return likely
        return self.game.rerank(likely)

    def shortlist(self, X: Vectors, k: int) -> TopK:
        """Return the k labels whose clusters are most likely. Labels of one cluster come in the order of their ids."""

        def compute_block(block: slice) -> Found:
            return self.shortlist_block(vectors_on(X[block], self.H.device, self.H.shape[1]), k)

        return topk_from_device(len(X), k, compute_block)

    def shortlist_block(self, X: Tensor, k: int) -> Found:
        """Do the same for one block of points; all stays on the device."""
        clusters = self.clusters_of_block(X)
        length = longest_listing(self.indptr, clusters.labels)
        parts = []
        for block in row_blocks(len(X), BYTES_PER_ID * length, X.device):
            listing = list_entries(self.indptr, clusters.labels[block], length)
            labels = self.members[listing.entries].masked_fill_(~listing.is_entry, -1)
            probabilities = clusters.scores[block].gather(1, listing.places)
            parts.append(largest(keys_of(probabilities, labels), k))
        return unpacked(torch.cat(parts))


class DeviceBeamPredictor(DeviceCopy["BeamPredictor"]):
    """A `BeamPredictor` that predicts on a device.

    Parameters
    ----------
    source
        The predictor in main memory, which is what `save` writes.
    device
        Where the copies of its tables live.
    """

    def __init__(self, source: BeamPredictor, device: str | torch.device) -> None:
        super().__init__(source)
        self.shortlister = DeviceBeamShortlister(source.shortlister, device)
        self.W = upload(source.W, device)
        self.bias = upload(source.bias, device)
        self.game = None
        self.spread = None
        if source.game is not None and source.game.mode == "paper":
            self.spread = DeviceSpread(source.game, device)
        else:
            self.game = _reranking(source.game, device)

    def predict(self, X_clusters: Vectors, X_labels: Vectors, k: int) -> TopK:
        """Return the k best labels per point; see `BeamPredictor.predict`."""
        if len(X_clusters) != len(X_labels):
            raise InputError(f"two stages see the same points, got {len(X_clusters)} and {len(X_labels)}")
        device = self.W.device

        def compute_block(block: slice) -> Found:
            for_clusters = vectors_on(X_clusters[block], device, self.shortlister.H.shape[1])
            for_labels = vectors_on(X_labels[block], device, self.W.shape[1])
            return self.predict_block(for_clusters, for_labels, k)

        return topk_from_device(len(X_labels), k, compute_block)

    def predict_block(self, X_clusters: Tensor, X_labels: Tensor, k: int) -> Found:
        """Do the same for one block of points; all stays on the device."""
        clusters = self.shortlister.clusters_of_block(X_clusters)
        if self.game is None:
            return self._score(X_labels, clusters, k)
        scores = self._score(X_labels, clusters, self.game.beam)
        reranked = self.game.rerank(scores)
        return unpacked(largest(keys_of(reranked.scores, reranked.labels), k))

    def _score(self, X: Tensor, clusters: Found, k: int) -> Found:
        """Return the k best of sigma(cluster) * sigma(label), or sigma(cluster) * spread(sigma(label))."""
        length = longest_listing(self.shortlister.indptr, clusters.labels)
        parts = []
        for block in row_blocks(len(X), BYTES_PER_ID * length, X.device):
            listing = list_entries(self.shortlister.indptr, clusters.labels[block], length)
            labels = self.shortlister.members[listing.entries].masked_fill_(~listing.is_entry, -1)
            probabilities = row_logits(X[block], self.W, self.bias, listing.entries).sigmoid_()
            if self.spread is not None:
                probabilities = self.spread.spread(labels, probabilities)
            scores = clusters.scores[block].gather(1, listing.places) * probabilities
            parts.append(largest(keys_of(scores, labels), k))
        return unpacked(torch.cat(parts))


def _reranking(game: Game | None, device: str | torch.device) -> DeviceGame | None:
    """Return GAME on the device, or None where nothing is to be reranked."""
    if game is None or game.mode == "off":
        return None
    return DeviceGame(game, device)
