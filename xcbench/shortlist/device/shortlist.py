"""Prediction behind a shortlister of any kind, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from xcbench.data import TopK
from xcbench.shortlist.contract import Shortlister, Vectors
from xcbench.shortlist.device.blocks import BYTES_PER_ID, row_blocks, topk_from_device, upload, upload_ids, vectors_on
from xcbench.shortlist.device.copies import DeviceCopy
from xcbench.shortlist.device.search import row_logits
from xcbench.shortlist.device.selection import Found, keys_of, largest, unpacked

if TYPE_CHECKING:
    from xcbench.shortlist.predictors.shortlist import ShortlistPredictor


@runtime_checkable
class DeviceShortlister(Protocol):
    """A shortlister whose tables live on a device."""

    def shortlist_block(self, X: Tensor, k: int) -> Found:
        """Return the k labels that fit each point of a block best; all stays on the device."""


@runtime_checkable
class MovableShortlister(Protocol):
    """A shortlister that can search on a device."""

    def to(self, device: str | torch.device) -> Shortlister:
        """Return a copy whose tables live on the device."""


class DeviceShortlistPredictor(DeviceCopy["ShortlistPredictor"]):
    """A `ShortlistPredictor` that scores labels on a device.

    Its shortlister searches there, too, if it can. Others (`HNSWShortlister`, `TreeShortlister`) stay on the CPU.

    Parameters
    ----------
    source
        The predictor in main memory, which is what `save` writes.
    device
        Where the copies of its tables live.
    """

    def __init__(self, source: ShortlistPredictor, device: str | torch.device) -> None:
        super().__init__(source)
        self.length = source.length
        self.shortlister: Shortlister = source.shortlister
        if isinstance(source.shortlister, MovableShortlister):
            self.shortlister = source.shortlister.to(device)
        self.W = upload(source.W, device)
        self.bias = upload(source.bias, device)

    def predict(self, X_shortlist: Vectors, X_labels: Vectors, k: int) -> TopK:
        """Return the k best labels per point; see `ShortlistPredictor.predict`."""
        device = self.W.device

        def compute_block(block: slice) -> Found:
            for_shortlist = vectors_on(X_shortlist[block], device)
            for_labels = vectors_on(X_labels[block], device, self.W.shape[1])
            return self.predict_block(for_shortlist, for_labels, k)

        return topk_from_device(len(X_labels), k, compute_block)

    def predict_block(self, X_shortlist: Tensor, X_labels: Tensor, k: int) -> Found:
        """Do the same for one block of points on the device."""
        shortlist = self._shortlist(X_shortlist)
        parts = []
        for block in row_blocks(len(X_labels), BYTES_PER_ID * self.length, X_labels.device):
            labels = shortlist.labels[block]
            logits = row_logits(X_labels[block], self.W, self.bias, labels.clamp(min=0))
            scores = logits.sigmoid_() * shortlist.scores[block].clamp(0, 1)
            parts.append(largest(keys_of(scores, labels), k))
        return unpacked(torch.cat(parts))

    def _shortlist(self, X: Tensor) -> Found:
        if isinstance(self.shortlister, DeviceShortlister):
            return self.shortlister.shortlist_block(X, self.length)
        on_cpu = self.shortlister.shortlist(X.cpu(), self.length)
        return Found(upload_ids(on_cpu.indices, X.device), upload(on_cpu.scores, X.device))
