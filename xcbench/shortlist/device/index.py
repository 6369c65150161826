"""Shortlists by an index of weighted edges, on a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from xcbench.data import TopK
from xcbench.shortlist.contract import Vectors
from xcbench.shortlist.device.blocks import BYTES_PER_ID, DeviceCsr, row_blocks, topk_from_device, upload, vectors_on
from xcbench.shortlist.device.rows import list_entries, longest_listing
from xcbench.shortlist.device.selection import NO_KEY, Found, keys_of, largest, unpacked

if TYPE_CHECKING:
    from xcbench.shortlist.index import IndexShortlister


class DeviceIndexShortlister:
    """An `IndexShortlister` that searches on a device.

    Parameters
    ----------
    source
        The shortlister in main memory, which is what `save` writes.
    device
        Where the copies of its tables live.
    """

    def __init__(self, source: IndexShortlister, device: str | torch.device) -> None:
        self.source = source
        self.H = upload(source.H, device)
        self.bias = upload(source.bias, device)
        self.edges = DeviceCsr(source.edges, device)

    @property
    def label_count(self) -> int:
        return self.source.label_count

    def shortlist(self, X: Vectors, k: int) -> TopK:
        """Return the k labels with the largest y_l."""

        def compute_block(block: slice) -> Found:
            return self.shortlist_block(vectors_on(X[block], self.H.device, self.H.shape[1]), k)

        return topk_from_device(len(X), k, compute_block)

    def shortlist_block(self, X: Tensor, k: int) -> Found:
        """Do the same for one block of points; all stays on the device."""
        clusters = self._clusters(X)
        length = longest_listing(self.edges.indptr, clusters.labels)
        parts = []
        for block in row_blocks(len(X), BYTES_PER_ID * length, X.device):
            listing = list_entries(self.edges.indptr, clusters.labels[block], length)
            labels = self.edges.indices[listing.entries].masked_fill_(~listing.is_entry, -1)
            cluster_scores = clusters.scores[block].gather(1, listing.places)
            keys = keys_of(cluster_scores * self.edges.data[listing.entries], labels)
            parts.append(largest(_best_of_equal_labels(keys, labels), k))
        return unpacked(torch.cat(parts))

    def _clusters(self, X: Tensor) -> Found:
        logits = X @ self.H.T
        if len(self.bias):
            logits += self.bias
        shares = logits.softmax(1)
        ids = torch.arange(shares.shape[1], device=X.device)
        best = unpacked(largest(keys_of(shares, ids), self.source.beam))
        return Found(best.labels, (self.source.alpha * best.scores).clamp_(max=1))

    def save(self, folder: Path) -> None:
        self.source.save(folder)

    def to(self, device: str | torch.device) -> IndexShortlister | DeviceIndexShortlister:
        """Return a copy on another device, or the shortlister in main memory."""
        return self.source.to(device)


def _best_of_equal_labels(keys: Tensor, labels: Tensor) -> Tensor:
    """Keep the largest key of each label of a row; all others become `NO_KEY`.

    Parameters
    ----------
    keys
        [n, T] keys in any order.
    labels
        [n, T] their labels.
    """
    keys, order = keys.sort(dim=1, descending=True)
    labels, by_label = labels.gather(1, order).sort(dim=1, stable=True)
    keys = keys.gather(1, by_label)
    follows_same = labels[:, 1:] == labels[:, :-1]
    keys[:, 1:] = keys[:, 1:].masked_fill(follows_same, NO_KEY)
    return keys
