"""ECLARE's label graph as one recipe: what is counted, what is cut, how it is normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import scipy.sparse as sp

from xcbench.kernels.arrays import Floats
from xcbench.labels.graph import cooccurrence, prune_by_cosine
from xcbench.labels.normalise import perron, two_sided
from xcbench.labels.walk import random_walk_graph


@dataclass(frozen=True)
class LabelGraph:
    """G = A^-1/2 G^c B^-1/2, where G^c_lm counts how often a random walk from label l visits label m."""

    counts: Literal["walk", "cooccurrence"] = "walk"
    """What is counted: visits of random walks, or points that two labels share."""
    walk_length: int = 400
    restart: float = 0.8
    """The probability that a walk returns to its first label before a step."""
    head_threshold: int = 500
    """Labels with more training points than this have no edges."""
    top: int = 10
    """How many labels a row keeps, besides itself."""
    farthest: float = 1.0
    """If labels have vectors, edges of a greater cosine distance are dropped."""
    normalisation: Literal["two-sided", "perron"] = "two-sided"

    def __post_init__(self) -> None:
        if min(self.walk_length, self.top) < 1 or not 0 <= self.restart <= 1:
            raise ValueError("walk_length and top are at least 1, restart is between 0 and 1")

    def count(
        self,
        Y: sp.csr_array,
        seed: int,
        vectors: Floats | None = None,
    ) -> sp.csr_array:
        """Return G^c for the labels of Y. With `vectors`, one per label, edges to distant labels are dropped."""
        if self.counts == "cooccurrence":
            counts = cooccurrence(Y, self.head_threshold, self.top)
            if vectors is None:
                return counts
            return prune_by_cosine(counts, vectors, self.farthest)

        # Without vectors `farthest` must not be read: a stage that reads it would count as depending on it.
        limit = 1.0
        if vectors is not None:
            limit = self.farthest
        return random_walk_graph(
            Y,
            self.walk_length,
            self.restart,
            self.head_threshold,
            self.top,
            seed,
            label_vectors=vectors,
            limit=limit,
        )

    def normalise(self, counts: sp.csr_array) -> sp.csr_array:
        """Return G for counts G^c between labels, or between clusters of them."""
        if self.normalisation == "two-sided":
            return two_sided(counts)
        return perron(counts)
