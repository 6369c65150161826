"""Inner products on a device: with all labels (exact search), and with the labels of a shortlist."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from xcbench.data import TopK
from xcbench.kernels.arrays import Floats, Ints
from xcbench.shortlist.contract import Vectors
from xcbench.shortlist.device import blocks
from xcbench.shortlist.device.blocks import (
    BYTES_PER_ID,
    bias_on,
    bytes_at_once,
    row_blocks,
    topk_from_device,
    upload,
    upload_ids,
    vectors_on,
)
from xcbench.shortlist.device.copies import DeviceCopy
from xcbench.shortlist.device.selection import NO_KEY, Found, keys_of, largest, unpacked

if TYPE_CHECKING:
    from xcbench.shortlist.exact import ExactShortlister


def topk_on_device(X: Vectors, W: Tensor, k: int, bias: Vectors | None) -> TopK:
    """Return the k largest of <x, w_l> + bias_l over all labels l, for every point x, computed where W lives.

    Parameters
    ----------
    X
        [n, D] vectors, in main memory or on the device.
    W
        [L, D] vectors on a device.
    k
        The number of labels per point. The result has k columns, padded where L is smaller.
    bias
        [L] numbers, an empty array, or None.
    """
    W = vectors_on(W, W.device)
    biases = bias_on(bias, W.device, len(W))

    def search_block(block: slice) -> Found:
        return search(vectors_on(X[block], W.device, W.shape[1]), W, biases, k)

    return topk_from_device(len(X), k, search_block)


def search(X: Tensor, W: Tensor, bias: Tensor, k: int) -> Found:
    """Do the same for one block of points on the device, without an n x L matrix of scores. nan is never found."""
    best = torch.empty((len(X), 0), dtype=torch.int64, device=X.device)
    for columns in row_blocks(len(W), BYTES_PER_ID * len(X), X.device):
        scores = X @ W[columns].T
        if len(bias):
            scores += bias[columns]
        ids = torch.arange(columns.start, columns.stop, device=X.device)
        keys = keys_of(scores, ids)
        keys.masked_fill_(~(scores > -math.inf), NO_KEY)
        best_of_both = torch.cat([best, largest(keys, k)], dim=1)
        best = largest(best_of_both, k)
    return unpacked(largest(best, k))


def row_logits(X: Tensor, W: Tensor, bias: Tensor, rows: Tensor) -> Tensor:
    """Return <x, w_r> + bias_r for the rows r that each point lists.

    Parameters
    ----------
    X
        [n, D] vectors, one per point.
    W
        [L, D] classifiers. Rows are copied next to each other, `bytes_at_once` at a time.
    bias
        [L] numbers, or an empty tensor.
    rows
        [n, m] row numbers.
    """
    logits = torch.empty(rows.shape, dtype=X.dtype, device=X.device)
    bytes_per_vector = X.element_size() * X.shape[1]
    columns_at_once = max(1, bytes_at_once(X.device) // bytes_per_vector)
    bytes_per_point = bytes_per_vector * min(columns_at_once, rows.shape[1])
    for points in row_blocks(len(X), bytes_per_point, X.device):
        x = X[points].unsqueeze(2)
        for columns in row_blocks(rows.shape[1], bytes_per_vector * (points.stop - points.start), X.device):
            vectors = embedding(rows[points, columns], W)
            logits[points, columns] = torch.bmm(vectors, x).squeeze(2)
    if len(bias):
        logits += bias[rows]
    return logits


def logits_on_device(X: Vectors, W: Tensor, labels: Ints, bias: Vectors | None) -> Floats:
    """Return <x, w_l> + bias_l for the labels l of each point's shortlist, computed where W lives.

    Parameters
    ----------
    X
        [n, D] vectors, in main memory or on the device.
    W
        [L, D] classifiers on a device.
    labels
        [n, k] label ids. Places without a label (-1) get -inf.
    bias
        [L] numbers, an empty array, or None.
    """
    W = vectors_on(W, W.device)
    biases = bias_on(bias, W.device, len(W))
    logits = np.empty(labels.shape, np.float32)
    for start in range(0, len(labels), blocks.POINTS_AT_ONCE):
        block = slice(start, start + blocks.POINTS_AT_ONCE)
        x = vectors_on(X[block], W.device, W.shape[1])
        rows = upload_ids(labels[block], W.device)
        values = row_logits(x, W, biases, rows.clamp(min=0))
        logits[block] = values.masked_fill_(rows < 0, -math.inf).cpu().numpy()
    return logits


class DeviceExactShortlister(DeviceCopy["ExactShortlister"]):
    """An `ExactShortlister` that searches on a device.

    Parameters
    ----------
    source
        The shortlister in main memory, which is what `save` writes.
    device
        Where the copies of its tables live.
    """

    def __init__(self, source: ExactShortlister, device: str | torch.device) -> None:
        super().__init__(source)
        self.W = upload(source.W, device)
        self.bias = upload(source.bias, device)

    @property
    def label_count(self) -> int:
        return len(self.W)

    def shortlist(self, X: Vectors, k: int) -> TopK:
        """Return the k labels with the largest <x, w_l> + bias_l."""
        return topk_on_device(X, self.W, k, self.bias)

    def shortlist_block(self, X: Tensor, k: int) -> Found:
        """Do the same for one block of points; all stays on the device."""
        return search(X, self.W, self.bias, k)
