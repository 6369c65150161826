"""Metrics as sums of gains over places. P, nDCG, R and their propensity-scored forms are one computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from xcbench.evaluation.hits import Hits
from xcbench.evaluation.metric import GainFamily, Norm
from xcbench.evaluation.points import FloatArray
from xcbench.evaluation.truth import Truth

PLACES, TRUTH = int(Norm.PLACES), int(Norm.TRUTH)  # as numba knows them


@dataclass(frozen=True)
class RankedGains:
    """Gains at the places of n rankings, in csr form, and how they are normalised."""

    indptr: npt.NDArray[np.int64]  # [n + 1]
    place: npt.NDArray[np.int32]  # ascending within a point
    gain: FloatArray
    norm: Norm
    true_count: npt.NDArray[np.int64]  # [n]

    def within(self, ks: Sequence[int], start: int = 0, stop: int | None = None) -> FloatArray:
        """What points start to stop collect in their first k places, for each k of an ascending list: [points, ks]."""
        ideal_discount = np.concatenate(([1.0], np.cumsum(_discounts(int(self.true_count.max(initial=0))))))
        stop = len(self.true_count) if stop is None else stop
        where = (self.indptr, self.place, self.gain, self.true_count)
        return np.asarray(_collect(*where, np.asarray(ks, np.int64), int(self.norm), ideal_discount, start, stop))


def achieved_gains(
    hits: Hits, truth: Truth, family: GainFamily, counted: npt.NDArray[np.bool_] | None = None
) -> RankedGains:
    """What the predictions collect; with `counted` [L], only hits of those labels are worth anything."""
    gain = truth.label_weights[hits.label] if family.propensity_scored else np.ones(len(hits.label))
    if family.discounted:
        gain = gain * _discounts(int(hits.place.max(initial=-1)) + 1)[hits.place]
    if counted is not None:
        gain = gain * counted[hits.label]
    return RankedGains(hits.indptr, hits.place, gain, family.norm, truth.true_count)


def ideal_gains(truth: Truth, family: GainFamily) -> RankedGains | None:
    """What ideal predictions would collect; None where that is 1 by construction or not part of the metric."""
    if not family.propensity_scored:
        return None
    indptr = truth.positives.indptr.astype(np.int64)
    place = (np.arange(indptr[-1]) - np.repeat(indptr[:-1], truth.true_count)).astype(np.int32)
    gain = truth.ideal_gains
    if family.discounted:
        gain = gain * _discounts(int(truth.true_count.max(initial=0)))[place]
    return RankedGains(indptr, place, gain, family.norm, truth.true_count)


def _discounts(places: int) -> FloatArray:
    return 1 / np.log2(np.arange(2, places + 2))


@numba.njit(cache=True)
def _collect(
    indptr: npt.NDArray[np.int64],
    place: npt.NDArray[np.int32],
    gain: FloatArray,
    true_count: npt.NDArray[np.int64],
    ks: npt.NDArray[np.int64],
    norm: int,
    ideal_discount: FloatArray,
    start: int,
    stop: int,
) -> FloatArray:
    collected = np.zeros((stop - start, len(ks)))
    for row in range(stop - start):
        i = start + row
        entry, total = indptr[i], 0.0
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
