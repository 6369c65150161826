"""Prediction behind a shortlister of any kind: only the labels of the shortlist are scored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numba import njit

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.files import atomic_folder
from xcbench.kernels.arrays import Floats, Ints
from xcbench.kernels.csr import dot
from xcbench.kernels.parallel import in_blocks, rows_in_block
from xcbench.kernels.selection import key_of, write_best
from xcbench.shortlist.beam import sigmoid
from xcbench.shortlist.blocks import empty_topk, topk_in_blocks
from xcbench.shortlist.contract import Shortlister, Vectors, as_bias, as_matrix, load_parts, save_parts
from xcbench.shortlist.device.blocks import is_cpu
from xcbench.shortlist.device.search import logits_on_device
from xcbench.shortlist.device.shortlist import DeviceShortlistPredictor
from xcbench.shortlist.load import load_shortlister

MIN_BLOCKS = 64
"""Into how many blocks points are cut at least, so that all threads have something to do."""


def shortlist_logits(
    X: Vectors,
    W: Vectors,
    labels: Ints,
    bias: Vectors | None = None,
) -> Floats:
    """Return <x, w_l> + bias_l for the labels in each point's shortlist.

    Parameters
    ----------
    X
        [n, D] vectors, one per point.
    W
        [L, D] classifiers, one per label. Where they are a tensor on another device than the CPU, the products are
        computed there.
    labels
        [n, k] label ids. Places without a label (-1) get -inf.
    bias
        [L] numbers, one per label, or None.
    """
    if isinstance(W, torch.Tensor) and not is_cpu(W.device):
        return logits_on_device(X, W, labels, bias)

    W = as_matrix(W)
    X = as_matrix(X, W.shape[1])
    biases = as_bias(bias, len(W))
    if len(labels) != len(X):
        raise InputError(f"needs a list of labels per point, got {len(labels)} for {len(X)} points")

    logits = np.empty(labels.shape, np.float32)

    def score(rows: slice) -> None:
        _logits(X[rows], W, biases, labels[rows], logits[rows])

    in_blocks(len(X), rows_in_block(len(X), MIN_BLOCKS), score)
    return logits


def rank_shortlist(labels: Ints, scores: Floats, k: int) -> TopK:
    """Return the k best labels of each point's shortlist by new scores.

    Parameters
    ----------
    labels
        [n, m] label ids. Places without a label (-1) are left out.
    scores
        [n, m] their scores.
    k
        The number of labels per point.
    """

    def rank(rows: slice) -> TopK:
        result = empty_topk(rows.stop - rows.start, k)
        _rank(labels[rows], scores[rows], result.indices, result.scores)
        return result

    return topk_in_blocks(len(labels), k, rank)


@dataclass(frozen=True)
class ShortlistPredictor:
    """Scores the labels of a shortlist by p_l sigma(<w_l, x> + bias_l), where p_l is the shortlister's score.

    `ShortlistPredictor.of` checks its parameters and takes arrays or tensors of any type.

    Parameters
    ----------
    shortlister
        Finds the labels. Its scores are cut to [0, 1].
    length
        How many labels it finds per point.
    W
        [L, D] classifiers, one per label.
    bias
        [L] numbers, one per label, or an empty array.
    """

    shortlister: Shortlister
    length: int
    W: Floats
    bias: Floats

    @classmethod
    def of(
        cls,
        shortlister: Shortlister,
        length: int,
        W: Vectors,
        bias: Vectors | None = None,
    ) -> ShortlistPredictor:
        """Check and convert the parameters; see the class. A length of more than all labels is cut to all."""
        matrix = as_matrix(W)
        if len(matrix) != shortlister.label_count:
            raise InputError(f"{shortlister.label_count} labels need a classifier each, got {len(matrix)}")
        return cls(
            shortlister,
            min(length, len(matrix)),
            matrix,
            as_bias(bias, len(matrix)),
        )

    def predict(self, X_shortlist: Vectors, X_labels: Vectors, k: int) -> TopK:
        """Return the k best labels per point.

        Parameters
        ----------
        X_shortlist
            [n, D] the points' vectors for the shortlister.
        X_labels
            [n, D] the same points' vectors for the classifiers. They may come from another encoder.
        k
            The number of labels per point.
        """
        shortlist = self.shortlister.shortlist(X_shortlist, self.length)
        logits = shortlist_logits(X_labels, self.W, shortlist.indices, self.bias)
        scores = sigmoid(logits) * np.clip(shortlist.scores, 0, 1)
        return rank_shortlist(shortlist.indices, scores, k)

    def to(self, device: str | torch.device) -> ShortlistPredictor | DeviceShortlistPredictor:
        """Return a copy that predicts on a device; on the CPU that is the predictor itself."""
        if is_cpu(device):
            return self
        return DeviceShortlistPredictor(self, device)

    def save(self, folder: Path) -> None:
        with atomic_folder(folder) as part:
            settings = {"length": self.length}
            arrays = {"W": self.W, "bias": self.bias}
            save_parts(part, "shortlist-predictor", settings, arrays)
            self.shortlister.save(part / "shortlister")

    @classmethod
    def load(cls, folder: Path) -> ShortlistPredictor:
        settings, arrays = load_parts(folder, "shortlist-predictor")
        shortlister = load_shortlister(folder / "shortlister")
        return cls(shortlister, settings["length"], arrays["W"], arrays["bias"])


@njit(cache=True, nogil=True)
def _logits(
    X: Floats,
    W: Floats,
    bias: Floats,
    labels: Ints,
    out: Floats,
) -> None:
    for i in range(len(X)):
        for place, label in enumerate(labels[i]):
            if label < 0:
                out[i, place] = -np.inf
                continue
            offset = np.float32(0)
            if len(bias) > 0:
                offset = bias[label]
            out[i, place] = dot(X[i], W[label]) + offset


@njit(cache=True, nogil=True)
def _rank(
    labels: Ints,
    scores: Floats,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    keys = np.empty(labels.shape[1], np.uint64)
    for i in range(len(labels)):
        count = 0
        for place, label in enumerate(labels[i]):
            if label >= 0:
                keys[count] = key_of(scores[i, place], label)
                count += 1
        write_best(keys, count, out_labels[i], out_scores[i])
