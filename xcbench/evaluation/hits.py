"""The one pass over predictions: which of them are true, and at which place. Every metric follows from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.evaluation.truth import Truth

NEVER = np.iinfo(np.int32).max
UNSORTED, REPEATED, OUT_OF_RANGE = 1, 2, 3
COMPLAINTS = {
    UNSORTED: "has scores that do not fall from place to place",
    REPEATED: "lists a label twice",
    OUT_OF_RANGE: "lists a label outside of the label set",
}


@dataclass(frozen=True)
class Hits:
    """The correct predictions of n points, in csr form, after filtered predictions have left their places."""

    indptr: npt.NDArray[np.int64]  # [n + 1]
    place: npt.NDArray[np.int32]  # 0 is the best; ascending within a point
    label: npt.NDArray[np.int32]
    first_prediction: npt.NDArray[np.int32]  # [L] the best place any point gave the label, right or wrong; or NEVER


def find_hits(predictions: TopK, truth: Truth) -> Hits:
    """Hold predictions against the truth. What breaks the contract of `TopK` is an `InputError`."""
    if len(predictions) != len(truth):
        raise InputError(f"expected predictions for {len(truth)} points, got {len(predictions)}")
    Y = truth.positives
    filter_indptr = np.searchsorted(truth.filter[:, 0], np.arange(len(truth) + 1))
    count, place, label, first, complaint = _match(
        np.ascontiguousarray(predictions.indices),
        np.ascontiguousarray(predictions.scores),
        Y.indptr.astype(np.int64),
        Y.indices.astype(np.int32),
        filter_indptr.astype(np.int64),
        truth.filter[:, 1].astype(np.int32),
        truth.label_count,
        numba.get_num_threads(),
    )
    if complaint.any():
        point = int(np.flatnonzero(complaint)[0])
        raise InputError(f"the prediction for point {point} {COMPLAINTS[int(complaint[point])]}")
    found = place >= 0
    return Hits(np.concatenate(([0], np.cumsum(count))), place[found], label[found], first.min(axis=0))


@numba.njit(cache=True, parallel=True)
def _match(
    indices: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    true_indptr: npt.NDArray[np.int64],
    true_labels: npt.NDArray[np.int32],
    filter_indptr: npt.NDArray[np.int64],
    filter_labels: npt.NDArray[np.int32],
    label_count: int,
    workers: int,
) -> tuple[npt.NDArray[Any], ...]:
    n, k = indices.shape
    hit_count = np.zeros(n, np.int64)
    # A point has at most as many hits as true labels, so its hits fit where its truth lies.
    hit_place = np.full(len(true_labels), -1, np.int32)
    hit_label = np.empty(len(true_labels), np.int32)
    first = np.full((workers, label_count), NEVER, np.int32)
    complaint = np.zeros(n, np.int8)
    for worker in numba.prange(workers):
        # What point i knows of a label: 4i + 1 true, 4i + 2 filtered, 4i + 3 seen. Older points leave smaller numbers,
        # so nothing is ever cleared.
        known = np.full(label_count, -1, np.int64)
        for i in range(worker * n // workers, (worker + 1) * n // workers):
            true, filtered, seen = 4 * i + 1, 4 * i + 2, 4 * i + 3
            for entry in range(true_indptr[i], true_indptr[i + 1]):
                known[true_labels[entry]] = true
            for entry in range(filter_indptr[i], filter_indptr[i + 1]):
                known[filter_labels[entry]] = filtered
            place, lowest = 0, np.float32(np.inf)
            for column in range(k):
                label = indices[i, column]
                if label == -1:
                    continue
                if label < -1 or label >= label_count:
                    complaint[i] = OUT_OF_RANGE
                    break
                if not scores[i, column] <= lowest:  # so that a nan fails too
                    complaint[i] = UNSORTED
                    break
                before = known[label]
                if before == seen:
                    complaint[i] = REPEATED
                    break
                known[label], lowest = seen, scores[i, column]
                if before == filtered:
                    continue
                if before == true:
                    slot = true_indptr[i] + hit_count[i]
                    hit_place[slot], hit_label[slot] = place, label
                    hit_count[i] += 1
                first[worker, label] = min(first[worker, label], place)
                place += 1
    return hit_count, hit_place, hit_label, first, complaint
