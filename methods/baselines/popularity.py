"""The same labels for every point: the most frequent ones. A method that does not beat this has learnt nothing."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.kernels.arrays import Floats
from xcbench.plugins import (
    Method,
    NoConfig,
    Predictor,
    Run,
    SavedByArguments,
    register_method,
)


class PopularityPredictor(SavedByArguments, Predictor):
    """The share of training points that have each label."""

    def __init__(self, share: Floats) -> None:
        self.share = share

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        labels = np.arange(len(self.share))
        best = TopK.of(labels[None], self.share[None]).cut(k).padded(k)
        same_row_for_all = np.zeros(X.shape[0], np.intp)
        return best.rows(same_row_for_all)


@register_method("popularity")
class Popularity(Method[NoConfig]):
    """Label popularity: every point gets the most frequent labels"""

    predictor_type = PopularityPredictor

    def fit(self, data: Dataset, run: Run) -> PopularityPredictor:
        original = run.unaugmented
        share = original.label_frequency / max(1, len(original.train))
        return PopularityPredictor(share.astype(np.float32))
