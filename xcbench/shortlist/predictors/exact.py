"""Prediction by one classifier per label, over all labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from xcbench.data import TopK
from xcbench.shortlist.beam import sigmoid
from xcbench.shortlist.contract import Vectors


@dataclass(frozen=True)
class ExactPredictor:
    """Scores all labels by sigma(<w_l, x> + bias_l): what `ShortlistPredictor` is, without a shortlist.

    Parameters
    ----------
    search
        An `ExactShortlister`, or its copy on a device.
    """

    search: Any

    def predict(self, X_shortlist: Vectors, X_labels: Vectors, k: int) -> TopK:
        """Return the k best labels per point, by the vectors for the classifiers."""
        best: TopK = self.search.shortlist(X_labels, k)
        return TopK.of(best.indices, sigmoid(best.scores))

    def to(self, device: str | torch.device) -> ExactPredictor:
        return ExactPredictor(self.search.to(device))

    def save(self, folder: Path) -> None:
        self.search.save(folder)
