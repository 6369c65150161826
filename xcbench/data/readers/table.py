"""A plain table: `train.csv` and `test.csv` with the columns `title` and `labels`, labels by name.

A label's text is its name, unless `labels.csv` (columns `label` and `title`) gives it a better one.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xcbench.data.dataset import TextColumn
from xcbench.data.readers.titles import TextBuilder, utf8_text
from xcbench.errors import DataError


@dataclass
class LabelNames:
    """Label names in the order of their ids, and the text of each."""

    ids: dict[str, int] = field(default_factory=dict)
    titles: list[str] = field(default_factory=list)
    closed_by: str | None = None
    """The file that lists every label, where there is one."""

    def id_of(self, name: str, path: Path, line: int) -> int:
        known = self.ids.get(name)
        if known is None:
            if self.closed_by:
                raise DataError(f"label {name!r} is not in {self.closed_by}", path, line)
            known = self.ids[name] = len(self.ids)
            self.titles.append(name)
        return known

    @property
    def column(self) -> TextColumn:
        return TextColumn.of(self.titles)


def read_label_table(path: Path) -> LabelNames:
    """Read `labels.csv`: the labels' order, and their texts."""
    names = LabelNames(closed_by=path.name)
    for line, (name, title) in _rows(path, ("label", "title")):
        if name in names.ids:
            raise DataError(f"label {name!r} is listed twice", path, line)
        names.ids[name] = len(names.ids)
        names.titles.append(title or name)
    return names


def read_point_table(path: Path, names: LabelNames, separator: str) -> tuple[TextColumn, sp.csr_array]:
    """Read titles and targets; names not met before are added to `names`."""
    text, ids, ends = TextBuilder(), array("i"), array("i", [0])
    for line, (title, labels) in _rows(path, ("title", "labels")):
        text.add(title)
        # Sorted here: the numbers are ours, so their order in the file is nothing to report to its author.
        named = (names.id_of(name, path, line) for part in labels.split(separator) if (name := part.strip()))
        ids.extend(sorted(named))
        ends.append(len(ids))
    if len(ends) == 1:
        raise DataError("the file holds no points", path)
    arrays = np.ones(len(ids), np.float32), np.array(ids, np.int32), np.array(ends, np.int32)
    return text.column(), sp.csr_array(arrays, shape=(len(ends) - 1, len(names.ids)))


def _rows(path: Path, columns: tuple[str, str]) -> Iterator[tuple[int, tuple[str, str]]]:
    """The wanted two fields of each row, with the row's first line."""
    # Strict, for the lenient reader takes a forgotten quote for a field that goes on to the end of the file.
    rows, line = csv.reader(io.StringIO(utf8_text(path), newline=""), strict=True), 1
    try:
        header = [column.strip().lower() for column in next(rows, [])]
        if not set(columns) <= set(header):
            raise DataError(f"expected a header with the columns {columns[0]} and {columns[1]}", path, 1)
        first, second = map(header.index, columns)
        line = rows.line_num + 1
        for row in rows:
            if row and len(row) != len(header):
                raise DataError(f"expected {len(header)} fields, got {len(row)}", path, line)
            if row:
                yield line, (row[first], row[second])
            line = rows.line_num + 1
    except csv.Error as error:
        raise DataError(f"expected CSV, with every quoted field closed: {error}", path, line) from None
