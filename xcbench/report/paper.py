"""The papers' own figures, as tidy data shipped with the experiments."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache

from xcbench.report.experiments import Experiment, folder

_COLUMNS = {
    # Ours are measured on a CPU: where the paper has such a column, that one is the fair neighbour.
    "predict_ms": ("prediction time CPU (ms)", "prediction time (ms)"),
    "LMI": ("LMI (lower better)",),
}


@dataclass(frozen=True)
class PaperFigure:
    """One published number; None where the paper prints a dash or our copy lost it."""

    value: float | None
    note: str = ""


@lru_cache(maxsize=1)
def published() -> dict[tuple[str, str, str, str, str], PaperFigure]:
    """Every figure by (paper, place, dataset in lower case, row, metric)."""
    with (folder() / "paper" / "results.csv").open(encoding="utf-8", newline="") as file:
        return {
            (line["paper"], line["table"], line["dataset"].lower(), line["method"], line["metric"]): PaperFigure(
                float(line["value"]) if line["value"] else None, line["note"]
            )
            for line in csv.DictReader(file)
        }


def figure(experiment: Experiment, dataset: str, label: str, metric: str) -> PaperFigure | None:
    """What the paper prints for a row of ours, or None where it has no such cell (so for every dataset of ours)."""
    row = experiment.row(label).paper_row
    for column in _COLUMNS.get(metric, (metric,)):
        found = published().get((experiment.paper, experiment.place, dataset.lower(), row, column))
        if found is not None and found.value is not None:
            return found
    return None


def datasets(experiment: Experiment) -> list[str]:
    """The datasets that the paper uses in this place, in lower case."""
    return sorted({key[2] for key in published() if key[:2] == (experiment.paper, experiment.place)})
