"""The one pass over predictions: which of them are true, and at which place. Every metric follows from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.evaluation.arrays import BoolArray, Int32Array, IntArray
from xcbench.evaluation.truth import Truth

NEVER = np.iinfo(np.int32).max

UNSORTED = 1
REPEATED = 2
OUT_OF_RANGE = 3
COMPLAINTS = {
    UNSORTED: "has scores that do not fall from place to place",
    REPEATED: "lists a label twice",
    OUT_OF_RANGE: "lists a label outside of the label set",
}


@dataclass(frozen=True)
class Hits:
    """The correct predictions of n points, in csr form, after filtered predictions have left their places."""

    indptr: IntArray  # [n + 1]
    place: Int32Array  # 0 is the best; ascending within a point
    label: Int32Array
    first_prediction: Int32Array  # [L] the best place any point gave the label, right or wrong; or NEVER

    def of_labels(self, counted: BoolArray) -> Hits:
        """Only the hits of some labels, at the places they have now; `counted` [L] says of which."""
        keep = counted[self.label]
        kept_before = np.concatenate(([0], np.cumsum(keep)))
        return Hits(
            indptr=kept_before[self.indptr],
            place=self.place[keep],
            label=self.label[keep],
            first_prediction=self.first_prediction,
        )


def find_hits(predictions: TopK, truth: Truth) -> Hits:
    """Compare predictions with the truth.

    Parameters
    ----------
    predictions
        The ranked labels of each test point.
    truth
        The true labels of the same points.

    Raises
    ------
    InputError
        Where the numbers of points differ, or where predictions are no ranking: scores rise from place to place, or a
        label is listed twice or does not exist.
    """
    if len(predictions) != len(truth):
        raise InputError(f"expected predictions for {len(truth)} points, got {len(predictions)}")

    Y = truth.positives
    filter_indptr = np.searchsorted(truth.filter[:, 0], np.arange(len(truth) + 1))
    hit_count, place, label, first, complaint = _match(
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

    is_hit = place >= 0
    return Hits(
        indptr=np.concatenate(([0], np.cumsum(hit_count))),
        place=place[is_hit],
        label=label[is_hit],
        first_prediction=first.min(axis=0),
    )


@numba.njit(cache=True, parallel=True)
def _match(
    indices: Int32Array,
    scores: npt.NDArray[np.float32],
    true_indptr: IntArray,
    true_labels: Int32Array,
    filter_indptr: IntArray,
    filter_labels: Int32Array,
    label_count: int,
    workers: int,
) -> tuple[npt.NDArray[Any], ...]:
    """Per point: the number of hits, their places and labels, and what is wrong with its predictions (0: nothing).

    A point has at most as many hits as true labels, so its hits are written where its true labels lie; unused slots
    have place -1. Each worker collects the first predictions of its own points.
    """
    n, k = indices.shape
    hit_count = np.zeros(n, np.int64)
    hit_place = np.full(len(true_labels), -1, np.int32)
    hit_label = np.empty(len(true_labels), np.int32)
    first = np.full((workers, label_count), NEVER, np.int32)
    complaint = np.zeros(n, np.int8)

    for worker in numba.prange(workers):
        # The state of a label for point i: 4i + 1 true, 4i + 2 filtered, 4i + 3 seen. Earlier points leave smaller
        # numbers, so the array is never cleared.
        state = np.full(label_count, -1, np.int64)

        for i in range(worker * n // workers, (worker + 1) * n // workers):
            true = 4 * i + 1
            filtered = 4 * i + 2
            seen = 4 * i + 3
            for entry in range(true_indptr[i], true_indptr[i + 1]):
                state[true_labels[entry]] = true
            for entry in range(filter_indptr[i], filter_indptr[i + 1]):
                state[filter_labels[entry]] = filtered

            place = 0
            lowest = np.float32(np.inf)
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
                before = state[label]
                if before == seen:
                    complaint[i] = REPEATED
                    break

                state[label] = seen
                lowest = scores[i, column]
                if before == filtered:
                    continue

                if before == true:
                    slot = true_indptr[i] + hit_count[i]
                    hit_place[slot] = place
                    hit_label[slot] = label
                    hit_count[i] += 1
                first[worker, label] = min(first[worker, label], place)
                place += 1

    return hit_count, hit_place, hit_label, first, complaint
