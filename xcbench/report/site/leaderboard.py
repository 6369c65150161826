"""The leaderboard of a dataset: every variant that has run on it, with the figures, intervals and ties of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcbench.report.columns import Column, column
from xcbench.report.costs import Conditions, usual_conditions
from xcbench.report.scores import DatasetRuns, ScoreTable
from xcbench.report.tables import Cell, column_cells
from xcbench.report.variants import Variant, variants_on

METRICS = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "MRR@10", "C@5")
COSTS = ("train_s", "predict_ms", "model_mb", "memory_mb")
SHOWN_AT_FIRST = ("P@1", "P@5", "PSP@1", "PSP@5", "train_s", "predict_ms")
"""The columns that a reader sees before choosing others."""
RANKED_BY = METRICS[0]
FLOOR = 0.5
"""What is not even this share of the best does not decide how the intervals of a column are drawn."""


@dataclass(frozen=True)
class Bar:
    """Where an interval and its figure are drawn in a cell, in percent of the column's range."""

    low: float
    value: float
    high: float


@dataclass(frozen=True)
class Entry:
    """A variant and its figures."""

    variant: Variant
    cells: Mapping[str, Cell]
    bars: Mapping[str, Bar]
    is_by_other_code: bool
    is_timed_alike: bool
    """Whether its times were measured under the conditions of most others."""


@dataclass(frozen=True)
class Leaderboard:
    """All entries on one dataset, the best first."""

    columns: tuple[Column, ...]
    entries: tuple[Entry, ...]
    conditions: Conditions | None
    """What the times of most entries were measured under."""

    @property
    def is_all_by_other_code(self) -> bool:
        """Whether no entry is of today's code: a mark at each would say nothing."""
        return all(entry.is_by_other_code for entry in self.entries)

    @property
    def has_single_seeds(self) -> bool:
        """Whether some intervals lack the noise of training."""
        return any(len(entry.variant.records) == 1 for entry in self.entries)


def leaderboard(dataset_runs: DatasetRuns) -> Leaderboard:
    """Return the leaderboard of a dataset: what its store holds, compared together.

    Parameters
    ----------
    dataset_runs
        The dataset and the store of its runs.
    """
    variants = variants_on(dataset_runs.store.records(), dataset_runs.data.fingerprint)
    columns = tuple(column(name) for name in (*METRICS, *COSTS))
    records = {variant.name: variant.records for variant in variants}
    scores = ScoreTable(dataset_runs.data, records, columns)
    by_column = {c.name: column_cells(c, scores, records) for c in columns}
    bars = {name: _bars(cells) for name, cells in by_column.items()}
    usual = usual_conditions(record for variant in variants for record in variant.records)

    entries = []
    for variant in variants:
        entry = Entry(
            variant=variant,
            cells={name: cells[variant.name] for name, cells in by_column.items() if variant.name in cells},
            bars={name: drawn[variant.name] for name, drawn in bars.items() if variant.name in drawn},
            is_by_other_code=variant.is_by_other_code,
            is_timed_alike=variant.conditions == {usual},
        )
        entries.append(entry)
    entries.sort(key=_rank)
    return Leaderboard(columns, tuple(entries), usual)


def _rank(entry: Entry) -> tuple[float, str]:
    cell = entry.cells.get(RANKED_BY)
    if cell is None:
        return (0.0, entry.variant.name)
    return (-cell.value, entry.variant.name)


def _bars(cells: Mapping[str, Cell]) -> dict[str, Bar]:
    """Return where the intervals of a column lie between the ends of them all.

    Runs far below the best do not count for that: they would squeeze the others, and are drawn at the edge.
    """
    best = max((cell.value for cell in cells.values()), default=0.0)
    lows = [cell.low for cell in cells.values() if cell.low is not None and cell.value >= FLOOR * best]
    highs = [cell.high for cell in cells.values() if cell.high is not None]
    if not lows or min(lows) == max(highs):
        return {}

    bars = {}
    for label, cell in cells.items():
        if cell.low is not None and cell.high is not None:
            ends = np.array([cell.low, cell.value, cell.high])
            places = 100 * (ends - min(lows)) / (max(highs) - min(lows))
            bars[label] = Bar(*np.clip(places, 0, 100).tolist())
    return bars


def board_data(board: Leaderboard) -> dict[str, Any]:
    """Return what the page's script draws of a leaderboard, as JSON can hold it."""
    return {
        "columns": [_column_data(shown) for shown in board.columns],
        "entries": [_entry_data(entry, board.columns) for entry in board.entries],
        "conditions": str(board.conditions),
    }


def _column_data(shown: Column) -> dict[str, Any]:
    return {
        "name": shown.name,
        "title": shown.title,
        "digits": shown.digits,
        "isMetric": shown.is_metric,
        "lowerIsBetter": shown.lower_is_better,
    }


def _entry_data(entry: Entry, columns: Sequence[Column]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for shown in columns:
        cell = entry.cells.get(shown.name)
        if cell is not None:
            figures[shown.name] = [cell.value, cell.low, cell.high]
    return {
        "name": entry.variant.name,
        "kind": entry.variant.kind,
        "figures": figures,
        "seeds": len(entry.variant.records),
        "timedAlike": entry.is_timed_alike,
        "conditions": [str(found) for found in sorted(entry.variant.conditions)],
        "otherCode": entry.is_by_other_code,
    }
