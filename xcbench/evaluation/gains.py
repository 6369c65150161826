"""Metrics that add up a gain for each hit: P, nDCG, R and their propensity-scored forms are one computation."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from xcbench.evaluation.arrays import FloatArray, Int32Array, IntArray
from xcbench.evaluation.hits import Hits
from xcbench.evaluation.metric import MetricFamily
from xcbench.evaluation.truth import Truth

POINTS_AT_ONCE = 8192


class Norm(enum.IntEnum):
    """What the gain collected in the first k places is divided by."""

    PLACES = 0  # k
    TRUTH = 1  # the number of true labels
    IDEAL_DISCOUNT = 2  # the discounts of the first min(k, true labels) places


# numba compiles plain integers, not enums.
PLACES = int(Norm.PLACES)
TRUTH = int(Norm.TRUTH)


@dataclass(frozen=True)
class GainMetric(MetricFamily):
    """The gain collected in the first k places, normalised per point and averaged over points.

    Propensity-scored metrics divide this average by the average of an ideal prediction. For the others the ideal is 1
    by construction, or not part of the metric.

    Parameters
    ----------
    norm
        What the gain of a point is divided by.
    discounted
        Whether a hit at place j (from 1) is worth 1 / log2(j + 1) rather than 1.
    propensity_scored
        Whether a hit is worth the inverse propensity of its label.
    """

    norm: Norm
    discounted: bool = False
    propensity_scored: bool = False

    is_sum_over_hits: ClassVar[bool] = True

    @property
    def needs_propensities(self) -> bool:
        return self.propensity_scored

    def unit_scores(self, hits: Hits, truth: Truth, k: int) -> tuple[FloatArray, FloatArray | None]:
        achieved = self._achieved(hits, truth).within([k])[:, 0]
        if not self.propensity_scored:
            return achieved, None

        ideal = self._ideal(truth).within([k])[:, 0]
        return achieved, ideal

    def values(self, hits: Hits, truth: Truth, ks: Sequence[int]) -> list[float]:
        """The metric in percent for each k, all from one pass over the hits."""
        ascending = sorted(set(ks))
        achieved = self._achieved(hits, truth).total(ascending)
        if self.propensity_scored:
            ideal = self._ideal(truth).total(ascending)
        else:
            ideal = np.full(len(ascending), float(len(truth)))

        percents = 100 * achieved / np.where(ideal > 0, ideal, 1)
        by_k = dict(zip(ascending, percents, strict=True))
        return [float(by_k[k]) for k in ks]

    def _achieved(self, hits: Hits, truth: Truth) -> RankedGains:
        """What the predictions collect."""
        if self.propensity_scored:
            gain = truth.label_weights[hits.label]
        else:
            gain = np.ones(len(hits.label))

        if self.discounted:
            places = int(hits.place.max(initial=-1)) + 1
            gain = gain * _discounts(places)[hits.place]

        return RankedGains(
            indptr=hits.indptr,
            place=hits.place,
            gain=gain,
            norm=self.norm,
            true_count=truth.true_count,
        )

    def _ideal(self, truth: Truth) -> RankedGains:
        """What ideal predictions would collect: the true labels, the heaviest first."""
        indptr = truth.positives.indptr.astype(np.int64)
        row_start = np.repeat(indptr[:-1], truth.true_count)
        place = (np.arange(indptr[-1]) - row_start).astype(np.int32)

        gain = truth.ideal_gains
        if self.discounted:
            places = int(truth.true_count.max(initial=0))
            gain = gain * _discounts(places)[place]

        return RankedGains(
            indptr=indptr,
            place=place,
            gain=gain,
            norm=self.norm,
            true_count=truth.true_count,
        )


@dataclass(frozen=True)
class RankedGains:
    """Gains at the places of n rankings, in csr form, and how they are normalised."""

    indptr: IntArray  # [n + 1]
    place: Int32Array  # ascending within a point
    gain: FloatArray
    norm: Norm
    true_count: IntArray  # [n]

    def within(self, ks: Sequence[int], start: int = 0, stop: int | None = None) -> FloatArray:
        """Normalised gains of points start to stop in their first k places, [points, ks]; `ks` must ascend."""
        if stop is None:
            stop = len(self.true_count)

        most_true = int(self.true_count.max(initial=0))
        # The first entry is for points without a true label: nothing to collect, so any divisor but 0 will do.
        ideal_discount = np.concatenate(([1.0], np.cumsum(_discounts(most_true))))

        collected = _collect(
            self.indptr,
            self.place,
            self.gain,
            self.true_count,
            np.asarray(ks, np.int64),
            int(self.norm),
            ideal_discount,
            start,
            stop,
        )
        return np.asarray(collected)

    def total(self, ks: Sequence[int]) -> FloatArray:
        """Sums of `within` over all points; blocks of points keep the [points, ks] table out of memory."""
        points = len(self.true_count)
        sums = []
        for start in range(0, points, POINTS_AT_ONCE):
            stop = min(start + POINTS_AT_ONCE, points)
            block = self.within(ks, start, stop)
            sums.append(block.sum(axis=0))
        return np.asarray(np.sum(sums, axis=0))


def _discounts(places: int) -> FloatArray:
    """1 / log2(j + 1) for places j = 1, 2, ..."""
    return 1 / np.log2(np.arange(2, places + 2))


@numba.njit(cache=True)
def _collect(
    indptr: IntArray,
    place: Int32Array,
    gain: FloatArray,
    true_count: IntArray,
    ks: IntArray,
    norm: int,
    ideal_discount: FloatArray,
    start: int,
    stop: int,
) -> FloatArray:
    collected = np.zeros((stop - start, len(ks)))
    for row in range(stop - start):
        i = start + row
        entry = indptr[i]
        total = 0.0

        for column, k in enumerate(ks):
            while entry < indptr[i + 1] and place[entry] < k:
                total += gain[entry]
                entry += 1

            if norm == PLACES:
                collected[row, column] = total / k
            elif norm == TRUTH:
                collected[row, column] = total / max(1, true_count[i])
            else:
                collected[row, column] = total / ideal_discount[min(k, true_count[i])]

    return collected
