"""Coverage: how many of the labels that could be found are found at all."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcbench.evaluation.arrays import FloatArray
from xcbench.evaluation.hits import NEVER, Hits
from xcbench.evaluation.metric import MetricFamily, Unit
from xcbench.evaluation.truth import Truth


@dataclass(frozen=True)
class Coverage(MetricFamily):
    """The share of labels that are in the first k places of some point, of the labels that have a test positive.

    Parameters
    ----------
    only_hits
        Whether a label counts only where it is a hit, or wherever it is predicted.
    """

    only_hits: bool

    unit: ClassVar[Unit] = Unit.LABELS

    def unit_scores(self, hits: Hits, truth: Truth, k: int) -> tuple[FloatArray, FloatArray | None]:
        best_place = hits.first_prediction
        if self.only_hits:
            best_place = np.full(truth.label_count, NEVER, np.int32)
            np.minimum.at(best_place, hits.label, hits.place)

        positives = np.bincount(truth.positives.indices, minlength=truth.label_count)
        covered = best_place[positives > 0] < k
        return covered.astype(np.float64), None
