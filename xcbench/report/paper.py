"""The papers' own figures, as tidy data shipped with the experiments."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from xcbench.report.experiments import Experiment, folder

_COLUMNS = {
    # Ours are measured on a CPU: where the paper has such a column, that one is comparable.
    "predict_ms": ("prediction time CPU (ms)", "prediction time (ms)"),
    "LMI": ("LMI (lower better)",),
}
"""What papers call our columns, where the name differs; the first that a paper has counts."""


@dataclass(frozen=True)
class PaperFigure:
    """One published number; None where the paper prints a dash or our copy lost it."""

    value: float | None
    note: str = ""


class _Key(NamedTuple):
    """Where a published figure is printed."""

    paper: str
    place: str
    dataset: str
    """In lower case."""
    row: str
    metric: str


@lru_cache(maxsize=1)
def _lines() -> tuple[dict[str, str], ...]:
    with (folder() / "paper" / "results.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


@lru_cache(maxsize=1)
def published() -> dict[_Key, PaperFigure]:
    """Return every published figure by its paper, place, dataset (in lower case), row and metric."""
    result = {}
    for line in _lines():
        key = _Key(line["paper"], line["table"], line["dataset"].lower(), line["method"], line["metric"])
        value = None
        if line["value"]:
            value = float(line["value"])
        result[key] = PaperFigure(value, line["note"])
    return result


def figure(
    experiment: Experiment,
    dataset: str,
    label: str,
    metric: str,
) -> PaperFigure | None:
    """Return what the paper prints for a row of ours; None where it has no such cell, so for all our datasets.

    Parameters
    ----------
    experiment
        The table or figure.
    dataset
        The name of the dataset; case does not matter.
    label
        The label of the row.
    metric
        The name of the column.
    """
    row = experiment.row(label).paper_row
    for column in _COLUMNS.get(metric, (metric,)):
        key = _Key(experiment.paper, experiment.place, dataset.lower(), row, column)
        result = published().get(key)
        if result is not None and result.value is not None:
            return result
    return None


def datasets(experiment: Experiment) -> list[str]:
    """Return the datasets that the paper uses in this place, in lower case."""
    names = set()
    for key in published():
        if key.paper == experiment.paper and key.place == experiment.place:
            names.add(key.dataset)
    return sorted(names)


def printed_name(dataset: str) -> str:
    """Return a dataset's name as the papers write it, of its name in lower case."""
    return next(line["dataset"] for line in _lines() if line["dataset"].lower() == dataset)
