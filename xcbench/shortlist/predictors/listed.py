"""Label classifiers behind a shortlister of any kind: only the labels it lists are scored."""

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
from xcbench.kernels.selection import key_of, write_best
from xcbench.kernels.threads import in_blocks, rows_in_block
from xcbench.shortlist.beam import sigmoid
from xcbench.shortlist.blocks import topk_in_blocks
from xcbench.shortlist.contract import Floats, Shortlister, Vectors, as_bias, as_matrix, load_parts, save_parts
from xcbench.shortlist.load import load_shortlister


def listed_logits(X: Vectors, W: Vectors, labels: npt.NDArray[np.int32], bias: Vectors | None = None) -> Floats:
    """<x, w_l> + bias_l for the labels listed for each point; -inf where there is none (-1)."""
    W = as_matrix(W)
    X, offset = as_matrix(X, W.shape[1]), as_bias(bias, len(W))
    if len(labels) != len(X):
        raise InputError(f"a list of labels a point is needed, got {len(labels)} for {len(X)} points")
    out = np.empty(labels.shape, np.float32)
    in_blocks(len(X), rows_in_block(len(X), 64), lambda rows: _logits(X[rows], W, offset, labels[rows], out[rows]))
    return out


def ranked(labels: npt.NDArray[np.int32], scores: Floats, k: int) -> TopK:
    """The k best of each point's listed labels by new scores; unlisted places (-1) stay out."""

    def block(rows: slice) -> TopK:
        out = TopK(np.empty((rows.stop - rows.start, k), np.int32), np.empty((rows.stop - rows.start, k), np.float32))
        _rank(labels[rows], scores[rows], out.indices, out.scores)
        return out

    return topk_in_blocks(len(labels), k, block)


@dataclass(frozen=True)
class ShortlistPredictor:
    """p_l sigma(<w_l, x> + bias_l) for the `length` labels that a shortlister finds, p_l being its score in [0, 1]."""

    shortlister: Shortlister
    length: int
    W: Floats  # [L, D]
    bias: Floats  # [L], or empty

    @classmethod
    def of(cls, shortlister: Shortlister, length: int, W: Vectors, bias: Vectors | None = None) -> ShortlistPredictor:
        matrix = as_matrix(W)
        if len(matrix) != shortlister.label_count:
            raise InputError(f"{shortlister.label_count} labels need a classifier each, got {len(matrix)}")
        return cls(shortlister, min(length, len(matrix)), matrix, as_bias(bias, len(matrix)))

    def predict(self, X_shortlist: Vectors, X_labels: Vectors, k: int) -> TopK:
        """Points as the shortlister sees them, and as the classifiers do."""
        found = self.shortlister.shortlist(X_shortlist, self.length)
        likely = sigmoid(listed_logits(X_labels, self.W, found.indices, self.bias))
        return ranked(found.indices, likely * np.clip(found.scores, 0, 1), k)

    def save(self, folder: Path) -> None:
        with atomic_folder(folder) as part:
            save_parts(part, "shortlist-predictor", {"length": self.length}, {"W": self.W, "bias": self.bias})
            self.shortlister.save(part / "shortlister")

    @classmethod
    def load(cls, folder: Path) -> ShortlistPredictor:
        settings, arrays = load_parts(folder, "shortlist-predictor")
        return cls(load_shortlister(folder / "shortlister"), settings["length"], arrays["W"], arrays["bias"])


@njit(cache=True, nogil=True)
def _logits(
    X: npt.NDArray[np.float32],
    W: npt.NDArray[np.float32],
    bias: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int32],
    out: npt.NDArray[np.float32],
) -> None:
    for i in range(len(X)):
        for place, label in enumerate(labels[i]):
            if label < 0:
                out[i, place] = -np.inf
            else:
                out[i, place] = dot(X[i], W[label]) + (bias[label] if len(bias) > 0 else np.float32(0))


@njit(cache=True, nogil=True)
def _rank(
    labels: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    out_labels: npt.NDArray[np.int32],
    out_scores: npt.NDArray[np.float32],
) -> None:
    keys = np.empty(labels.shape[1], np.uint64)
    for i in range(len(labels)):
        count = 0
        for place, label in enumerate(labels[i]):
            if label >= 0:
                keys[count] = key_of(scores[i, place], label)
                count += 1
        write_best(keys, count, out_labels[i], out_scores[i])
