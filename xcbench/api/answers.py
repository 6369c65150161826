"""Predictions for people and programs: labels by name, as lists or as a frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from xcbench.api.inputs import LabelName
from xcbench.data import TopK
from xcbench.evaluation.thresholds import Thresholds

if TYPE_CHECKING:
    import pandas as pd


class Prediction(NamedTuple):
    """One predicted label."""

    label: LabelName
    """Its name; its number where labels have no names."""
    score: float


def as_lists(predictions: TopK, names: Sequence[LabelName] | None) -> list[list[Prediction]]:
    """Return the predictions of each point, best first.

    Parameters
    ----------
    predictions
        The ranked labels of each point; -1 is padding.
    names
        The names of the labels; None leaves their numbers.
    """
    answers = []
    for labels, scores in zip(predictions.indices.tolist(), predictions.scores.tolist(), strict=True):
        answer = []
        for label, score in zip(labels, scores, strict=True):
            if label < 0:
                continue
            name = label
            if names is not None:
                name = names[label]
            answer.append(Prediction(name, score))
        answers.append(answer)
    return answers


def as_frame(answers: Sequence[Sequence[Prediction]], titles: Sequence[str] | None) -> pd.DataFrame:
    """Return one row per predicted label: `row`, `title`, `rank` (from 1), `label`, `score`.

    Parameters
    ----------
    answers
        The predictions of each point.
    titles
        The points as text, if they were.
    """
    import pandas as pd

    rows = []
    for row, answer in enumerate(answers):
        for rank, prediction in enumerate(answer, 1):
            rows.append((row, rank, prediction.label, prediction.score))
    frame: pd.DataFrame = pd.DataFrame(rows, columns=["row", "rank", "label", "score"])
    if titles is not None:
        frame.insert(1, "title", [titles[row] for row in frame["row"]])
    return frame


def decided(predictions: TopK, threshold: float | Thresholds | None) -> TopK:
    """Return only the predictions whose scores reach a threshold; None keeps all."""
    if threshold is None:
        return predictions
    if not isinstance(threshold, Thresholds):
        threshold = Thresholds.everywhere(threshold)
    return threshold.apply(predictions)
