"""MixUp: which points are mixed with which others, as batches are cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.special import betaincinv

from xcbench.data import Split
from xcbench.data.dataset import Mixing
from xcbench.kernels.arrays import Floats, Longs
from xcbench.kernels.random import below, seed_word, stream

RESOLUTION = 1 << 24
"""In how many steps weights are drawn."""


@dataclass(frozen=True)
class DrawnPairs:
    """What the points of a batch are mixed with: weight * point + (1 - weight) * partner."""

    partners: Longs  # [B], a row of the training points each; -1 where the weight is 1
    weights: Floats  # [B]

    def part(self, points: slice) -> DrawnPairs:
        """Return the same for some points of the batch."""
        return DrawnPairs(self.partners[points], self.weights[points])

    def partners_of(self, rows: Longs) -> Longs:
        """Return the partner of each row; a row that is not mixed is its own."""
        return np.where(self.partners < 0, rows, self.partners)


@dataclass(frozen=True)
class MixedPairs:
    """Which rows of the training points an epoch goes through, and what they are mixed with."""

    points: Longs  # the rows of which an epoch has each once
    partners: Longs  # the rows that partners are drawn from
    mixing: Mixing

    def draw(self, places: Longs, key: int) -> tuple[Longs, DrawnPairs]:
        """Return the rows of a batch and what each is mixed with.

        Parameters
        ----------
        places
            Places in `points`.
        key
            The seed of the batch.
        """
        rows = self.points[places]
        partners = self.partners[_draw(seed_word(key), rows, len(self.partners))]
        weights = self._weights(rows, key)
        partners = np.where(weights < 1, partners, -1)
        return rows, DrawnPairs(partners, weights)

    def _weights(self, rows: Longs, key: int) -> Floats:
        if self.mixing.weight is not None:
            return np.full(len(rows), self.mixing.weight, np.float32)
        uniform = _draw(seed_word(key + 1), rows, RESOLUTION) / RESOLUTION
        drawn = betaincinv(self.mixing.alpha, self.mixing.alpha, uniform)
        weights: Floats = np.maximum(drawn, 1 - drawn).astype(np.float32)
        return weights


@njit(cache=True, nogil=True)
def _draw(key: np.uint64, rows: Longs, bound: int) -> Longs:
    """Draw a number below a bound for each row. It depends on key and row alone, not on the rest of the batch."""
    drawn = np.empty(len(rows), np.int64)
    for i, row in enumerate(rows):
        drawn[i] = below(stream(key, row), bound)
    return drawn


def mixed_pairs(split: Split) -> MixedPairs | None:
    """Return how training mixes the points of a split: what `Points` takes. None if it does not.

    Parameters
    ----------
    split
        The points, as they are given to `Points`: without those that are not learnt from.
    """
    if split.mixing is None:
        return None
    rows = np.arange(len(split))
    if split.mixing.partners == "points":
        return MixedPairs(rows, rows, split.mixing)
    is_title = np.zeros(len(split), bool)
    if split.label_of is not None:
        is_title = split.label_of >= 0
    if is_title.all() or not is_title.any():
        return None
    return MixedPairs(rows[~is_title], rows[is_title], split.mixing)
