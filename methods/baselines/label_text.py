"""The labels whose text is most like the point's: no training at all, and the floor for zero-shot labels."""

from __future__ import annotations

import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.errors import InputError
from xcbench.plugins import (
    Method,
    NoConfig,
    Predictor,
    Run,
    SavedByArguments,
    register_method,
)
from xcbench.shortlist.sparse_topk import best_of_product


class LabelTextPredictor(SavedByArguments, Predictor):
    """The transposed label text, so that a point's words lead straight to the labels that have them."""

    def __init__(self, Zt: sp.csr_array) -> None:
        self.Zt = Zt

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return best_of_product(X, self.Zt, k)


@register_method("label-text")
class LabelText(Method[NoConfig]):
    """Label-text nearest neighbour: cosine of TF-IDF rows of point and label"""

    predictor_type = LabelTextPredictor

    def check_data(self, data: Dataset) -> None:
        if data.Z is None:
            raise InputError(f"method 'label-text' needs label text, which dataset {data.name!r} does not have")

    def fit(self, data: Dataset, run: Run) -> LabelTextPredictor:
        assert data.Z is not None
        return LabelTextPredictor(data.Z.T.tocsr())
