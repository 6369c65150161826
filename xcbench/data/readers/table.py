"""A plain table: `train.csv` and `test.csv` with the columns `title` and `labels`, labels by name.

A label's text is its name, unless `labels.csv` (columns `label` and `title`) gives it another.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xcbench.data.dataset import TextColumn
from xcbench.data.readers.table_files import open_table
from xcbench.data.readers.titles import TextBuilder
from xcbench.errors import DataError


@dataclass
class LabelNames:
    """The ids of label names, and the title of each label."""

    ids: dict[str, int] = field(default_factory=dict)
    titles: list[str] = field(default_factory=list)
    listed_in: str | None = None
    """The file that lists every label; None where each new name is a new label."""

    def id_of(self, name: str, path: Path, line: int) -> int:
        """Return the id of a label; `path` and `line` say in messages where the name is."""
        if name in self.ids:
            return self.ids[name]
        if self.listed_in:
            raise DataError(f"label {name!r} is not in {self.listed_in}", path, line)
        return self.add(name, title=name)

    def add(self, name: str, title: str) -> int:
        """Add a new label, and return its id."""
        new_id = len(self.ids)
        self.ids[name] = new_id
        self.titles.append(title)
        return new_id

    @property
    def column(self) -> TextColumn:
        """The titles, by id."""
        return TextColumn.of(self.titles)


def read_label_table(path: Path) -> LabelNames:
    """Read `labels.csv`: the labels in the order of their ids, and their titles."""
    names = LabelNames(listed_in=path.name)
    table = open_table(path)
    for line, (name, title) in table.rows([table.column("label"), table.column("title")]):
        if name is None:
            continue
        if name in names.ids:
            raise DataError(f"label {name!r} is listed twice", path, line)
        names.add(name, title or name)
    return names


def read_point_table(
    path: Path,
    names: LabelNames,
    separator: str,
) -> tuple[TextColumn, sp.csr_array]:
    """Read titles and targets; new names are added to `names`."""
    text = TextBuilder()
    ids = array("i")
    ends = array("i", [0])
    table = open_table(path)
    for line, (title, labels) in table.rows([table.column("title"), table.column("labels")]):
        if title is None:
            continue
        text.add(title)
        parts = [part.strip() for part in labels.split(separator)]
        label_ids = [names.id_of(name, path, line) for name in parts if name]
        # Sorted here: the ids are ours, so that unsorted ones are nothing to report to the file's author.
        ids.extend(sorted(label_ids))
        ends.append(len(ids))
    if len(ends) == 1:
        raise DataError("the file holds no points", path)

    entries = (
        np.ones(len(ids), np.float32),
        np.array(ids, np.int32),
        np.array(ends, np.int32),
    )
    targets = sp.csr_array(entries, shape=(len(ends) - 1, len(names.ids)))
    return text.column(), targets
