"""From rankings to decisions: a label is predicted where its score reaches a threshold.

A threshold is chosen on points that training did not see and that are no test points: docs/guides/thresholds.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.evaluation.arrays import BoolArray, FloatArray, IntArray
from xcbench.evaluation.truth import Truth, without_pairs

MIN_POSITIVES = 5
"""A label with fewer positives in the slice than this has the global threshold: its own would be a matter of luck."""

_NEVER = np.float32(np.inf)


@dataclass(frozen=True)
class Thresholds:
    """The scores from which labels are predicted."""

    values: npt.NDArray[np.float32]
    """[L], or [1] if all labels have the same."""

    @classmethod
    def everywhere(cls, value: float) -> Thresholds:
        """Return the same threshold for all labels."""
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or np.isnan(value):
            raise InputError(f"a threshold is a number, got {value!r}")
        return cls(np.array([value], np.float32))

    @property
    def per_label(self) -> bool:
        """Whether labels have thresholds of their own."""
        return len(self.values) > 1

    def apply(self, predictions: TopK) -> TopK:
        """Return only the predictions whose scores reach their thresholds, in their order."""
        needed = self.values[0]
        if self.per_label:
            needed = self.values[predictions.indices]
        is_kept = (predictions.indices >= 0) & (predictions.scores >= needed)

        kept_first = np.argsort(~is_kept, axis=1, kind="stable")
        is_kept = np.take_along_axis(is_kept, kept_first, axis=1)
        indices = np.take_along_axis(predictions.indices, kept_first, axis=1)
        scores = np.take_along_axis(predictions.scores, kept_first, axis=1)
        return TopK(
            np.where(is_kept, indices, np.int32(-1)),
            np.where(is_kept, scores, np.float32(-np.inf)),
        )


@dataclass(frozen=True)
class Goal:
    """What a threshold is chosen for: the highest F1, or the most labels at a wanted precision."""

    precision: float | None = None
    """The wanted precision, above 0 and at most 1; None: the highest F1."""

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Read `f1` or `precision=0.9`."""
        if not isinstance(text, str):
            raise InputError(f"unknown goal {text!r}; expected f1, or precision=0.9")
        if text.strip().lower() == "f1":
            return cls()

        match = re.fullmatch(r"\s*precision\s*=\s*([0-9.]+)\s*", text, re.IGNORECASE)
        if match is None or not re.fullmatch(r"\d*\.?\d+|\d+\.", match[1]):
            raise InputError(f"unknown goal {text!r}; expected f1, or precision=0.9")
        wanted = float(match[1])
        if not 0 < wanted <= 1:
            raise InputError(f"a wanted precision lies between 0 and 1, got {match[1]}")
        return cls(wanted)

    def __str__(self) -> str:
        if self.precision is None:
            return "f1"
        return f"precision={self.precision:g}"


def choose_thresholds(predictions: TopK, truth: Truth, goal: Goal, per_label: bool = False) -> Thresholds:
    """Choose thresholds on held-out points.

    Parameters
    ----------
    predictions
        What a model predicts for points that it was not trained on.
    truth
        Their true labels.
    goal
        What to choose for. All pairs (point, label) count alike (micro average), or those of each label.
    per_label
        Choose a threshold for each label with at least `MIN_POSITIVES` true points; the other labels have the global
        one.

    Returns
    -------
    Thresholds
        A score of a held-out pair, or one per label. A label for which no threshold reaches the wanted precision is
        never predicted.
    """
    pairs = _ranked_pairs(predictions, truth)
    overall = _choose_globally(pairs, truth, goal)
    if not per_label:
        return Thresholds(np.array([overall], np.float32))

    values = np.full(truth.label_count, overall, np.float32)
    positives = np.bincount(truth.positives.indices, minlength=truth.label_count)
    own = _choose(pairs, positives, goal)
    is_frequent = positives >= MIN_POSITIVES
    values[is_frequent] = own[is_frequent]
    return Thresholds(values)


@dataclass(frozen=True)
class _Pairs:
    """Predicted pairs (point, label), filtered ones left out."""

    label: IntArray
    score: npt.NDArray[np.float32]
    is_hit: BoolArray


def _ranked_pairs(predictions: TopK, truth: Truth) -> _Pairs:
    scores = without_pairs(predictions.to_csr(truth.label_count), truth.filter)
    is_hit = np.isin(_numbered(scores), _numbered(truth.positives))
    return _Pairs(scores.indices.astype(np.int64), scores.data.astype(np.float32), is_hit)


def _numbered(matrix: sp.csr_array) -> IntArray:
    """Return a number for each stored pair (point, label)."""
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    numbers: IntArray = rows * matrix.shape[1] + matrix.indices
    return numbers


def _choose_globally(pairs: _Pairs, truth: Truth, goal: Goal) -> float:
    everything = np.zeros(len(pairs.label), np.int64)
    positives = np.array([truth.positives.nnz])
    chosen = _choose(_Pairs(everything, pairs.score, pairs.is_hit), positives, goal)[0]
    if np.isinf(chosen):
        raise InputError(f"no threshold reaches {_wanted(goal)} on the held-out points")
    return float(chosen)


def _wanted(goal: Goal) -> str:
    if goal.precision is None:
        return "an F1 above 0"
    return f"a precision of {goal.precision:g}"


def _choose(pairs: _Pairs, positives: IntArray, goal: Goal) -> npt.NDArray[np.float32]:
    """Return the best threshold of each label, infinity where there is none.

    Parameters
    ----------
    pairs
        The predicted pairs.
    positives
        [L] the true points of each label, predicted or not.
    goal
        What to choose for.
    """
    order = np.lexsort((-pairs.score, pairs.label))
    label = pairs.label[order]
    score = pairs.score[order]
    hits_before = np.concatenate(([0], np.cumsum(pairs.is_hit[order])))

    # A threshold lies behind the last of equal scores of one label.
    is_end = np.ones(len(label), bool)
    is_end[:-1] = (label[1:] != label[:-1]) | (score[1:] != score[:-1])
    end = np.flatnonzero(is_end)
    label = label[end]
    first = np.searchsorted(pairs.label[order], label)
    predicted = end + 1 - first
    hits = hits_before[end + 1] - hits_before[first]

    if goal.precision is None:
        merit = 2 * hits / (predicted + positives[label])
    else:
        # Of the thresholds that reach the precision, the lowest finds most.
        merit = np.where(hits >= goal.precision * predicted, hits, 0)
    return _best_of_each(label, score[end], merit, len(positives))


def _best_of_each(
    label: IntArray,
    score: npt.NDArray[np.float32],
    merit: FloatArray,
    label_count: int,
) -> npt.NDArray[np.float32]:
    """Return the score of highest merit of each label; the highest score of equal merit."""
    values = np.full(label_count, _NEVER)
    useful = np.flatnonzero(merit > 0)
    best_last = useful[np.lexsort((score[useful], merit[useful], label[useful]))]
    values[label[best_last]] = score[best_last]
    return values
