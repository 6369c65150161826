"""A trained model, asked by name: titles or features in, labels out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from xcbench.api.answers import Prediction, as_frame, as_lists, decided
from xcbench.api.inputs import LabelName, as_features, as_titles, check_k
from xcbench.data import TopK
from xcbench.evaluation.thresholds import Thresholds
from xcbench.runner.model import Model

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LoadedModel:
    """A model and the names of its labels."""

    model: Model
    names: tuple[LabelName, ...] | None = None
    """By default the titles of the labels; their numbers where they have none."""
    feature_count: int | None = None
    """How many features a point has, where it is known."""

    @cached_property
    def label_names(self) -> Sequence[LabelName]:
        """The name of each label."""
        if self.names is not None:
            return self.names
        if self.model.label_titles is not None:
            return list(self.model.label_titles)
        return range(self.model.label_count)

    def ranked(self, points: Any, k: int) -> TopK:
        """Return the k best labels of each point by number; a title without text has none.

        Parameters
        ----------
        points
            Titles, or sparse features.
        k
            How many labels per point.
        """
        if sp.issparse(points):
            return self.model.predict(as_features(points, self.feature_count), k)
        titles = as_titles(points)
        with_text = [row for row, title in enumerate(titles) if title.strip()]
        indices = np.full((len(titles), k), -1, np.int32)
        scores = np.full((len(titles), k), -np.inf, np.float32)
        if with_text:
            found = self.model.predict_text([titles[row] for row in with_text], k)
            indices[with_text] = found.indices
            scores[with_text] = found.scores
        return TopK(indices, scores)

    def predict(
        self,
        points: Any,
        k: int,
        threshold: float | Thresholds | None,
        frame: bool,
    ) -> list[list[Prediction]] | pd.DataFrame:
        """Return labels by name, as lists or as a frame; see `Run.predict`."""
        k = min(check_k(k), self.model.label_count)
        answers = as_lists(decided(self.ranked(points, k), threshold), self.label_names)
        if not frame:
            return answers
        titles = None
        if not sp.issparse(points):
            titles = as_titles(points)
        return as_frame(answers, titles)
