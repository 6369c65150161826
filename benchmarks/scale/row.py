"""What one part of a step took, and the table of all of them."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xcbench.files import write_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

COLUMNS = ("step", "part", "seconds", "GB", "GB on disk", "s per step", "steps", "hours", "of matmul", "")


@dataclass(frozen=True)
class Row:
    """One part of a step. Sizes are in bytes; `memory` is the most that the process held meanwhile."""

    step: str
    part: str
    seconds: float
    memory: int
    disk: int = 0
    step_seconds: float | None = None
    """Of a training: a steady step, checkpoints not counted."""
    steps: int | None = None
    """Of a training: how many the paper's settings ask for."""
    matmul_share: float | None = None
    """Of a training: the speed of a step's dense products, all its time counted, against that of one large product."""
    note: str = ""

    @property
    def hours(self) -> float | None:
        """The whole training, by its steady step."""
        if self.step_seconds is None or self.steps is None:
            return None
        return self.step_seconds * self.steps / 3600

    def cells(self) -> list[str]:
        """Return the row of a table."""
        return [
            self.step,
            self.part,
            f"{self.seconds:.1f}",
            f"{self.memory / 1e9:.2f}",
            _or_empty(self.disk / 1e9 if self.disk else None, "{:.2f}"),
            _or_empty(self.step_seconds, "{:.3f}"),
            _or_empty(self.steps, "{:,}"),
            _or_empty(self.hours, "{:.2f}"),
            _or_empty(self.matmul_share, "{:.0%}"),
            self.note,
        ]


def save_rows(path: Path, rows: Iterable[Row]) -> None:
    """Keep the rows of a step, all at once."""
    write_json(path, [dataclasses.asdict(row) for row in rows])


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a finished step."""
    return [Row(**values) for values in json.loads(path.read_text("utf-8"))]


def as_markdown(rows: Sequence[Row]) -> str:
    """Return a table for people."""
    lines = [COLUMNS, ("---", "---", *["---:"] * 7, "---"), *[row.cells() for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def save_csv(path: Path, rows: Sequence[DataclassInstance]) -> None:
    """Write a table for programs: one line per dataclass of one kind, one column per field."""
    names = [field.name for field in dataclasses.fields(rows[0])]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([getattr(row, name) for name in names] for row in rows)


def _or_empty(value: float | None, form: str) -> str:
    if value is None:
        return ""
    return form.format(value)
