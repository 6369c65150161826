"""The exact k best of all labels (or clusters), without ever holding n x L scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xcbench.data import TopK
from xcbench.shortlist.blocks import COLUMNS, search_memory, topk_in_blocks
from xcbench.shortlist.contract import Floats, Vectors, as_bias, as_matrix, load_parts, save_parts
from xcbench.shortlist.running import RunningTopK


def exact_topk(X: Vectors, W: Vectors, k: int, bias: Vectors | None = None) -> TopK:
    """The k largest of <x, w_l> + bias_l over all rows of W, for every row of X."""
    W = as_matrix(W)
    X = as_matrix(X, W.shape[1])
    offset = as_bias(bias, len(W))
    search_memory(len(X), k, len(W)).require(f"a search of {len(X)} points among {len(W)} vectors")
    return topk_in_blocks(len(X), k, lambda block: search_block(X[block], W, offset, k))


def search_block(X: Floats, W: Floats, bias: Floats, k: int) -> TopK:
    """`exact_topk` of one block, on the calling thread."""
    columns = min(COLUMNS, len(W))
    buffer = np.empty(len(X) * columns, np.float32)
    running = RunningTopK(len(X), min(k, len(W)))
    for first in range(0, len(W), max(1, columns)):
        part = W[first : first + columns]
        S = buffer[: len(X) * len(part)].reshape(len(X), len(part))
        np.dot(X, part.T, out=S)
        running.offer(S, bias[first : first + columns], first)
    return running.result().padded(k)


@dataclass(frozen=True)
class ExactShortlister:
    """The labels with the largest inner products: the yardstick of every approximation."""

    W: Floats  # [L, D]
    bias: Floats  # [L]

    @classmethod
    def of(cls, W: Vectors, bias: Vectors | None = None) -> ExactShortlister:
        matrix = as_matrix(W)
        return cls(matrix, as_bias(bias, len(matrix)))

    @property
    def label_count(self) -> int:
        return len(self.W)

    def shortlist(self, X: Vectors, k: int) -> TopK:
        return exact_topk(X, self.W, k, self.bias)

    def save(self, folder: Path) -> None:
        save_parts(folder, "exact", {}, {"W": self.W, "bias": self.bias})

    @classmethod
    def load(cls, folder: Path) -> ExactShortlister:
        _, arrays = load_parts(folder, "exact")
        return cls(arrays["W"], arrays["bias"])
