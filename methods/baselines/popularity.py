"""The same labels for every point: the most frequent ones. Whatever does not beat this has learnt nothing."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.plugins import Method, NoConfig, Predictor, Run, load_values, register_method, save_values


class PopularityPredictor(Predictor):
    """The share of training points that have each label."""

    def __init__(self, share: npt.NDArray[np.float32]) -> None:
        self.share = share

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        row = TopK.of(np.arange(len(self.share))[None], self.share[None]).cut(k)
        row = row.padded(k) if row.k < k else row
        return row.rows(np.zeros(X.shape[0], np.intp))

    def save(self, folder: Path) -> None:
        save_values(folder, {"share": self.share})

    @classmethod
    def load(cls, folder: Path) -> "PopularityPredictor":
        return cls(**load_values(folder))


@register_method("popularity")
class Popularity(Method[NoConfig]):
    """Label popularity: every point gets the most frequent labels"""

    predictor_type = PopularityPredictor

    def fit(self, data: Dataset, run: Run) -> PopularityPredictor:
        return PopularityPredictor((data.label_frequency / max(1, len(data.train))).astype(np.float32))
