"""The exact k best of all labels (or clusters), without an n x L matrix of scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from xcbench.data import TopK
from xcbench.kernels.arrays import Floats
from xcbench.kernels.running_topk import RunningTopK
from xcbench.shortlist.blocks import COLUMNS, search_memory, topk_in_blocks
from xcbench.shortlist.contract import Vectors, as_bias, as_matrix, load_parts, save_parts
from xcbench.shortlist.device.blocks import is_cpu
from xcbench.shortlist.device.search import DeviceExactShortlister, topk_on_device


def exact_topk(
    X: Vectors,
    W: Vectors,
    k: int,
    bias: Vectors | None = None,
) -> TopK:
    """Return the k largest of <x, w_l> + bias_l over all labels l, for every point x.

    Parameters
    ----------
    X
        [n, D] vectors, one per point.
    W
        [L, D] vectors, one per label. Where they are a tensor on another device than the CPU, the search happens there.
    k
        The number of labels per point. The result has k columns, padded where L is smaller.
    bias
        [L] numbers, one per label, or None.
    """
    if isinstance(W, torch.Tensor) and not is_cpu(W.device):
        return topk_on_device(X, W, k, bias)

    W = as_matrix(W)
    X = as_matrix(X, W.shape[1])
    biases = as_bias(bias, len(W))
    memory = search_memory(len(X), k, len(W))
    memory.require(f"a search of {len(X)} points among {len(W)} vectors")
    return topk_in_blocks(len(X), k, lambda block: search_block(X[block], W, biases, k))


def search_block(X: Floats, W: Floats, bias: Floats, k: int) -> TopK:
    """Do the same for one block of points, on the calling thread. An empty bias means none."""
    columns = min(COLUMNS, len(W))
    buffer = np.empty(len(X) * columns, np.float32)
    running = RunningTopK(len(X), min(k, len(W)))
    for first in range(0, len(W), max(1, columns)):
        part = W[first : first + columns]
        shape = (len(X), len(part))
        scores = buffer[: len(X) * len(part)].reshape(shape)
        np.dot(X, part.T, out=scores)
        running.offer(scores, bias[first : first + columns], first)
    return TopK(*running.result()).padded(k)


@dataclass(frozen=True)
class ExactShortlister:
    """Finds the labels with the largest inner products: the reference for all approximate searches.

    `ExactShortlister.of` makes one of arrays or tensors of any type.

    Parameters
    ----------
    W
        [L, D] vectors, one per label.
    bias
        [L] numbers, one per label, or an empty array.
    """

    W: Floats
    bias: Floats

    @classmethod
    def of(cls, W: Vectors, bias: Vectors | None = None) -> ExactShortlister:
        """Take W [L, D] and, if there is one, a bias per label."""
        matrix = as_matrix(W)
        return cls(matrix, as_bias(bias, len(matrix)))

    @property
    def label_count(self) -> int:
        return len(self.W)

    def shortlist(self, X: Vectors, k: int) -> TopK:
        """Return the k labels with the largest <x, w_l> + bias_l."""
        return exact_topk(X, self.W, k, self.bias)

    def to(self, device: str | torch.device) -> ExactShortlister | DeviceExactShortlister:
        """Return a copy that searches on a device; on the CPU that is the shortlister itself."""
        if is_cpu(device):
            return self
        return DeviceExactShortlister(self, device)

    def save(self, folder: Path) -> None:
        save_parts(folder, "exact", {}, {"W": self.W, "bias": self.bias})

    @classmethod
    def load(cls, folder: Path) -> ExactShortlister:
        _, arrays = load_parts(folder, "exact")
        return cls(arrays["W"], arrays["bias"])
