"""Predictions side by side: a few titles, what each row of an experiment predicts for them, and what is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from xcbench.data import Dataset, TopK
from xcbench.errors import InputError
from xcbench.evaluation import Truth
from xcbench.report.availability import unavailable
from xcbench.report.experiments import Experiment
from xcbench.report.grid import EMPTY_CELL, Grid, Text
from xcbench.report.scores import DatasetRuns

PLACES = 5
WIDTH = 36
"""Longer titles are cut: six columns of them are still to be read side by side."""


def examples_grid(experiment: Experiment, dataset_runs: DatasetRuns, seeds: Sequence[int]) -> Grid:
    """Return the table of an experiment that shows examples instead of metrics. Runs have the first of the seeds.

    Parameters
    ----------
    experiment
        The rows, each of which becomes a column, and how many examples there are.
    dataset_runs
        The dataset, which must have titles, and the store of its runs.
    seeds
        The seeds of the experiment.
    """
    data = dataset_runs.data
    if data.test.titles is None or data.label_titles is None:
        raise InputError(f"examples need the titles of points and labels, which dataset {data.name!r} does not have")

    notes = []
    predictions: dict[str, TopK] = {}
    for row in experiment.rows:
        reason = unavailable(row)
        record = None
        if reason is None:
            record = dataset_runs.records(row, seeds[:1]).get(seeds[0])
            reason = "not run yet"
        if record is None:
            notes.append(f"{row.label}: {reason}")
        else:
            predictions[row.label] = record.predictions()

    points = chosen_points(data, experiment.examples)
    rows: list[tuple[Text, ...]] = []
    for point in points:
        rows += _rows_of(int(point), data, predictions)
    return Grid(
        title=f"{experiment.title}: {data.name}, seed {seeds[0]}",
        header=("point", "true labels", *predictions),
        rows=tuple(rows),
        notes=tuple(notes),
        legend=(
            "{best}: a true label. Pairs that the metrics leave out are left out here, too.",
            "Points in the order of their rarest true label's training points: the middles of equal parts.",
        ),
        is_words=True,
    )


def chosen_points(data: Dataset, count: int) -> npt.NDArray[np.int64]:
    """Return test points from rare to popular labels, by a rule that knows no predictions.

    Points with a true label are sorted by the number of training points of their rarest one, and divided into equal
    parts; the middle of each is chosen.
    """
    Y = Truth.of(data).positives
    has_labels = np.flatnonzero(np.diff(Y.indptr))
    if not len(has_labels):
        return has_labels
    starts = Y.indptr[has_labels]
    rarest = np.minimum.reduceat(data.label_frequency[Y.indices], starts)
    order = has_labels[np.argsort(rarest, kind="stable")]
    count = min(count, len(order))
    middles = (np.arange(count) + 0.5) * len(order) / count
    return order[middles.astype(np.int64)]


def _rows_of(point: int, data: Dataset, predictions: Mapping[str, TopK]) -> list[tuple[Text, ...]]:
    """Return the rows of a point: one per place."""
    assert data.test.titles is not None
    assert data.label_titles is not None
    Y = Truth.of(data).positives
    true = Y.indices[Y.indptr[point] : Y.indptr[point + 1]].tolist()
    ignored = set(data.test.filter[data.test.filter[:, 0] == point, 1].tolist())
    listed = {name: _listed(found, point, ignored) for name, found in predictions.items()}

    rows = []
    for place in range(PLACES):
        title = data.test.titles[point] if place == 0 else ""
        cells = [_title_cell(title), _label_cell(true, place, data, ())]
        cells += [_label_cell(labels, place, data, true) for labels in listed.values()]
        rows.append(tuple(cells))
    return rows


def _listed(predictions: TopK, point: int, ignored: set[int]) -> list[int]:
    """Return the labels that are predicted for a point, without those that do not count."""
    return [label for label in predictions.indices[point].tolist() if label >= 0 and label not in ignored]


def _label_cell(labels: Sequence[int], place: int, data: Dataset, true: Sequence[int]) -> Text:
    assert data.label_titles is not None
    if place >= len(labels):
        return Text(EMPTY_CELL)
    label = labels[place]
    return _title_cell(data.label_titles[label], label in true)


def _title_cell(title: str, is_true: bool = False) -> Text:
    if len(title) <= WIDTH:
        return Text(title, best=is_true)
    return Text(f"{title[: WIDTH - 1].rstrip()}…", best=is_true, hover=title)
