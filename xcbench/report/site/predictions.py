"""What runs predict for each test point, as data that a page searches and shows side by side.

A page holds titles and true labels; what a run says about them is a file of its own, read when the run is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcbench.data import Dataset
from xcbench.evaluation import Truth
from xcbench.evaluation.hit_file import MISSING, FirstHits
from xcbench.report.variants import Variant
from xcbench.runner.store import Record

PLACES = 5
"""How many predictions of each point are shown."""
DEPTH = 20
"""Down to which place a true label is looked for."""
MOST_POINTS = 50_000
"""A browser holds no more titles at ease; of more test points, every so-many-th is shown."""


@dataclass(frozen=True)
class ShownPoints:
    """The test points that a page shows, with what is true of them."""

    data: Dataset
    truth: Truth
    points: npt.NDArray[np.int64]

    @classmethod
    def of(cls, data: Dataset) -> ShownPoints:
        """Return the shown points of a dataset."""
        step = -(-len(data.test) // MOST_POINTS)
        return cls(data, Truth.of(data), np.arange(0, len(data.test), step))


def can_show(data: Dataset) -> bool:
    """Return whether a dataset has the titles that a page of predictions needs."""
    return data.test.titles is not None and data.label_titles is not None


def points_data(shown: ShownPoints, variants: list[Variant], files: dict[str, str]) -> dict[str, Any]:
    """Return titles, true labels and pairs that do not count, and which runs there are.

    Parameters
    ----------
    shown
        The points.
    variants
        What may be chosen.
    files
        The file of each variant, by name.
    """
    data = shown.data
    assert data.test.titles is not None
    assert data.label_titles is not None
    filtered = _filtered(shown)
    return {
        "points": shown.points.tolist(),
        "titles": [data.test.titles[int(point)] for point in shown.points],
        "labels": [data.label_titles[label] for label in range(data.label_count)],
        "frequency": data.label_frequency.tolist(),
        "trueLabels": [_true(shown, int(point)) for point in shown.points],
        "filtered": [filtered.get(int(point), []) for point in shown.points],
        "places": PLACES,
        "depth": DEPTH,
        "runs": [_choice(variant, files[variant.name]) for variant in variants],
    }


def _choice(variant: Variant, file: str) -> dict[str, Any]:
    return {"name": variant.name, "file": file, "hasPredictions": variant.records[0].has_predictions}


def run_data(record: Record, shown: ShownPoints) -> dict[str, Any]:
    """Return where a run has each true label, and its first predictions if they are kept.

    Parameters
    ----------
    record
        The run.
    shown
        The points.
    """
    depth = min(DEPTH, record.depth)
    found = FirstHits.of(record.hits(shown.truth), shown.truth, depth)
    # Counted from 1; 0 where the label is not among the places that are kept.
    places = np.where(found.places == MISSING, 0, found.places.astype(np.int64) + 1)
    starts = shown.truth.positives.indptr
    return {
        "depth": depth,
        "places": [places[starts[point] : starts[point + 1]].tolist() for point in shown.points],
        "predictions": _predictions(record, shown),
    }


def _predictions(record: Record, shown: ShownPoints) -> list[list[int]] | None:
    """Return the first labels of each point; None if the store has only hits of this run."""
    if not record.has_predictions:
        return None
    predictions = record.predictions()
    rows = predictions.cut(min(PLACES, predictions.k)).indices[shown.points]
    return [[label for label in row if label >= 0] for row in rows.tolist()]


def _true(shown: ShownPoints, point: int) -> list[int]:
    Y = shown.truth.positives
    labels: list[int] = Y.indices[Y.indptr[point] : Y.indptr[point + 1]].tolist()
    return labels


def _filtered(shown: ShownPoints) -> dict[int, list[int]]:
    """Return the labels that do not count, by point."""
    result: dict[int, list[int]] = {}
    for point, label in shown.truth.filter.tolist():
        result.setdefault(point, []).append(label)
    return result
