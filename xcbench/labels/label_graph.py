"""ECLARE's label graph as one recipe: what is counted, what is cut, how it is normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.labels.graph import cooccurrence, prune_by_cosine
from xcbench.labels.normalise import perron, two_sided
from xcbench.labels.walk import random_walk_graph


@dataclass(frozen=True)
class LabelGraph:
    """G = A^-1/2 G^c B^-1/2, where G^c_lm says how often a random walk from label l comes by label m."""

    counts: Literal["walk", "cooccurrence"] = "walk"
    walk_length: int = 400
    restart: float = 0.8
    head_threshold: int = 500
    """Labels with more training points than this have no edges."""
    top: int = 10
    """How many labels a row keeps, and itself in any case."""
    farthest: float = 1.0
    """Where labels have vectors, edges of a greater cosine distance are dropped."""
    normalisation: Literal["two-sided", "perron"] = "two-sided"

    def __post_init__(self) -> None:
        if min(self.walk_length, self.top) < 1 or not 0 <= self.restart <= 1:
            raise ValueError("walk_length and top are at least 1, restart is between 0 and 1")

    def count(self, Y: sp.csr_array, seed: int, vectors: npt.NDArray[np.float32] | None = None) -> sp.csr_array:
        """G^c of the labels of Y; with their vectors, without neighbours that are far away."""
        if self.counts == "cooccurrence":
            graph = cooccurrence(Y, self.head_threshold, self.top)
            return graph if vectors is None else prune_by_cosine(graph, vectors, self.farthest)
        walk = self.walk_length, self.restart, self.head_threshold, self.top
        return random_walk_graph(Y, *walk, seed, vectors, self.farthest)

    def normalise(self, counts: sp.csr_array) -> sp.csr_array:
        """G of G^c, for labels or for clusters of them."""
        return two_sided(counts) if self.normalisation == "two-sided" else perron(counts)
