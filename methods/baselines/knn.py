"""The labels of the nearest training points, weighted by how near these are.

s(x) = sum_i w_i y_i / sum_i w_i over the nearest points i, w_i = cos(x, x_i)^power; with `text_weight` t the label's
own text joins in: s(x) + t Z x. Both sums are one sparse product, [w, t x] times [Y; Z^T].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.errors import InputError
from xcbench.plugins import (
    Ablation,
    LogIntRange,
    Method,
    Predictor,
    Range,
    Run,
    SavedByArguments,
    register_method,
)
from xcbench.shortlist.sparse_topk import best_of_product


@dataclass(frozen=True)
class KnnConfig:
    """How many training points vote, and how much more a near one counts than a far one."""

    neighbours: int = 50
    power: float = 2.0
    text_weight: float = 0.0
    """What the cosine with the label's own text adds; 0 leaves label text out."""

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise ValueError(f"neighbours must be at least 1, got {self.neighbours}")
        if self.power < 0 or self.text_weight < 0:
            raise ValueError("power and text_weight must not be negative")


class KnnPredictor(SavedByArguments, Predictor):
    """The training points themselves, words first, and what each votes for: [Y], or [Y; Z^T] with label text."""

    def __init__(
        self,
        Xt: sp.csr_array,
        votes: sp.csr_array,
        neighbours: int,
        power: float,
        text_weight: float,
    ) -> None:
        self.Xt = Xt
        self.votes = votes
        self.neighbours = neighbours
        self.power = power
        self.text_weight = text_weight

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        W = self._neighbour_weights(X)
        if self.text_weight:
            W = sp.hstack([W, self.text_weight * X], format="csr")
        return best_of_product(W, self.votes, k)

    def _neighbour_weights(self, X: sp.csr_array) -> sp.csr_array:
        """w_i / sum_i w_i of the nearest training points, one row per point."""
        point_count = self.Xt.shape[1]
        nearest = best_of_product(X, self.Xt, min(self.neighbours, point_count))
        W = nearest.to_csr(point_count)
        W.data = np.maximum(W.data, 0) ** self.power

        total = W.sum(axis=1)
        divisor = np.where(total > 0, total, 1)
        W.data /= np.repeat(divisor, np.diff(W.indptr))
        return W


@register_method("knn")
class Knn(Method[KnnConfig]):
    """k nearest training points by cosine of TF-IDF rows, weighted votes"""

    config_type = KnnConfig
    predictor_type = KnnPredictor
    search_space: ClassVar = {
        "neighbours": LogIntRange(5, 200),
        "power": Range(0.5, 4.0),
    }
    ablations: ClassVar = {"text": Ablation("kNN + label text", {"text_weight": 0.25})}

    def check_data(self, data: Dataset) -> None:
        if self.config.text_weight and data.Z is None:
            raise InputError(f"knn with text_weight needs label text, which dataset {data.name!r} does not have")

    def fit(self, data: Dataset, run: Run) -> KnnPredictor:
        c = self.config
        votes = data.train.Y
        if c.text_weight:
            assert data.Z is not None
            votes = sp.vstack([votes, data.Z.T], format="csr")
        Xt = data.train.X.T.tocsr()
        return KnnPredictor(Xt, votes, c.neighbours, c.power, c.text_weight)
