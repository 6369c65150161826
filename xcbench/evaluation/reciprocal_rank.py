"""The mean reciprocal rank."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcbench.evaluation.arrays import FloatArray
from xcbench.evaluation.hits import Hits
from xcbench.evaluation.metric import MetricFamily
from xcbench.evaluation.truth import Truth


@dataclass(frozen=True)
class ReciprocalRank(MetricFamily):
    """1 / place of a point's first hit, or 0 without a hit in the first k places."""

    needs_k: ClassVar[bool] = False

    def unit_scores(self, hits: Hits, truth: Truth, k: int) -> tuple[FloatArray, FloatArray | None]:
        has_hit = np.diff(hits.indptr) > 0
        first_hit = hits.indptr[:-1][has_hit]
        rank = hits.place[first_hit] + 1.0

        reciprocal = np.zeros(len(truth))
        reciprocal[has_hit] = np.where(rank <= k, 1 / rank, 0)
        return reciprocal, None
