"""A whole dataset in one table: a column of titles, a column of labels, and a split that is made here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.checks import reconcile
from xcbench.data.dataset import TextColumn
from xcbench.data.manifest import Manifest
from xcbench.data.raw import FileMatrix, FileTitles, Findings, RawDataset, RawSplit
from xcbench.data.readers.label_fields import LabelForm, label_form
from xcbench.data.readers.table_files import CsvTable, Table, open_table
from xcbench.data.splitting import TEST_SHARE, check_share, choose_test_rows, groups_of, near_duplicates
from xcbench.errors import DataError, InputError
from xcbench.files import sha256_of

_SIDES = {"train": False, "test": True}


@dataclass(frozen=True)
class TableColumns:
    """Which columns of a table are what, and how its rows become training and test points.

    Parameters
    ----------
    title_column
        The column of titles.
    label_column
        The column of labels.
    id_column
        The column of ids, which should be distinct; None where there is none.
    label_separator
        The text between two labels of a field; None to find out.
    split
        The share of rows that become test points; by default 0.2. Near-duplicates stay on one side.
    split_column
        A column that says `train` or `test`, in the place of a split made here.
    group_column
        A column whose equal values stay on one side, in the place of near-duplicates.
    seed
        Decides which rows become test points.
    """

    title_column: str = "title"
    label_column: str = "labels"
    id_column: str | None = None
    label_separator: str | None = None
    split: float | None = None
    split_column: str | None = None
    group_column: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.label_separator == "":
            raise InputError("a label separator is at least one character")
        if self.split_column and (self.group_column or self.split is not None):
            raise InputError("a split column leaves nothing to split: give no share and no group column with it")
        if self.split is not None:
            check_share(self.split)
        if self.seed < 0:
            raise InputError(f"a seed is a whole number from 0 up, got {self.seed}")


@dataclass
class _Rows:
    """The rows of a table, column by column; columns that nobody asked for are empty."""

    numbers: list[int] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    blank: int = 0


def read_single_table(path: Path, columns: TableColumns) -> RawDataset:
    """Read a dataset from one file. Raises `DataError`, naming the row and the column, for what cannot be read.

    Parameters
    ----------
    path
        A file that `table_files.open_table` opens.
    columns
        Which columns are what.
    """
    table = open_table(path)
    findings = Findings()
    if isinstance(table, CsvTable) and table.separator != ",":
        findings.notes.append(f"columns are separated by {table.separator!r}")

    rows = _read_rows(table, columns)
    if rows.blank:
        findings.notes.append(f"rows without title and labels: {rows.blank:,}, left out")
    findings.notes += _repeated_ids(rows, table.place)
    targets, label_names = _targets(table, rows, columns, findings)
    is_test, rule = _split(table, rows, columns)

    raw = RawDataset(
        train=_side(path, rows, targets, ~is_test),
        test=_side(path, rows, targets, is_test),
        label_titles=FileTitles(TextColumn.of(label_names), path.name),
        manifest=Manifest(path.stem, split_rule=rule),
        files={path.name: sha256_of(path)},
        findings=findings,
    )
    findings.notes.append(f"split: {rule}")
    reconcile(raw)
    return raw


def _read_rows(table: Table, columns: TableColumns) -> _Rows:
    title = table.column(columns.title_column)
    labels = table.column(columns.label_column)
    rows = _Rows()
    wanted = (
        (columns.id_column, rows.ids),
        (columns.split_column, rows.splits),
        (columns.group_column, rows.groups),
    )
    further = [(table.column(name), kept) for name, kept in wanted if name]

    for number, values in table.rows([title, labels, *(name for name, _ in further)]):
        text = table.text(values[0], number, title)
        if not text.strip() and not values[1]:
            rows.blank += 1
            continue

        rows.numbers.append(number)
        rows.titles.append(text)
        rows.labels.append(values[1])
        for (name, kept), value in zip(further, values[2:], strict=True):
            kept.append(table.text(value, number, name).strip())

    if not rows.numbers:
        raise DataError("holds no rows with a title or labels", table.path)
    return rows


def _targets(
    table: Table,
    rows: _Rows,
    columns: TableColumns,
    findings: Findings,
) -> tuple[sp.csr_array, list[str]]:
    """Return the labels of every row as a matrix, and the labels' names by number, in the order of the rows."""
    column = table.column(columns.label_column)
    texts = [value for value in rows.labels if isinstance(value, str)]
    form = label_form(texts, columns.label_separator)
    if texts:
        findings.notes.append(form.described)
    else:
        findings.notes.append("labels are lists")

    ids: dict[str, int] = {}
    indices = []
    ends = [0]
    for number, value in zip(rows.numbers, rows.labels, strict=True):
        names = _names(table, form, value, number, column)
        indices += sorted({ids.setdefault(name, len(ids)) for name in names})
        ends.append(len(indices))
    if not ids:
        raise DataError(f"column {column!r}: no row has a label", table.path)

    ones = np.ones(len(indices), np.float32)
    entries = (ones, np.array(indices, np.int32), np.array(ends, np.int32))
    return sp.csr_array(entries, shape=(len(rows.numbers), len(ids))), list(ids)


def _names(table: Table, form: LabelForm, value: Any, number: int, column: str) -> Iterator[str]:
    """Yield the labels of one row."""
    values = [value]
    if isinstance(value, list):
        values = value
    elif isinstance(value, str):
        try:
            values = form.names(value)
        except ValueError as error:
            raise table.error(f"{error}, got {_shown(value)}", number, column) from None

    for part in values:
        name = table.text(part, number, column).strip()
        if name:
            yield name


def _split(table: Table, rows: _Rows, columns: TableColumns) -> tuple[npt.NDArray[np.bool_], str]:
    """Return whether each row is a test point, and the rule in words."""
    if columns.split_column:
        return _given_split(table, rows, columns.split_column), f"as column {columns.split_column!r} says"

    if columns.group_column:
        groups = groups_of(rows.groups, rows.titles)
        kept_together = f"rows of one {columns.group_column!r}"
    else:
        groups = near_duplicates(rows.titles)
        kept_together = "rows whose titles have the same words, but for words with digits,"

    share = columns.split or TEST_SHARE
    try:
        is_test = choose_test_rows(groups, share, columns.seed)
    except InputError as error:
        raise DataError(str(error), table.path) from None
    return is_test, f"{share:g} of the rows for test, seed {columns.seed}; {kept_together} stay together"


def _given_split(table: Table, rows: _Rows, wanted: str) -> npt.NDArray[np.bool_]:
    column = table.column(wanted)
    is_test = np.zeros(len(rows.numbers), bool)
    for row, side in enumerate(rows.splits):
        if side.lower() not in _SIDES:
            raise table.error(f"expected train or test, got {_shown(side)}", rows.numbers[row], column)
        is_test[row] = _SIDES[side.lower()]

    for side, is_there in (("test", is_test.any()), ("train", not is_test.all())):
        if not is_there:
            raise DataError(f"column {column!r}: no row is in {side}", table.path)
    return is_test


def _side(path: Path, rows: _Rows, targets: sp.csr_array, is_chosen: npt.NDArray[np.bool_]) -> RawSplit:
    chosen = np.flatnonzero(is_chosen)
    titles = TextColumn.of([rows.titles[row] for row in chosen])
    return RawSplit(
        Y=FileMatrix(targets[chosen], path.name, columns_declared=True),
        titles=FileTitles(titles, path.name),
    )


def _repeated_ids(rows: _Rows, place: str) -> list[str]:
    """Return what there is to say about ids; `rows.ids` is empty where the table has none."""
    first: dict[str, int] = {}
    repeated = []
    for number, name in zip(rows.numbers, rows.ids, strict=False):
        if name in first:
            repeated.append(f"{_shown(name)} in {place}s {first[name]} and {number}")
        elif name:
            first[name] = number

    notes = []
    if repeated:
        notes.append(f"rows with the id of an earlier row: {len(repeated):,}, such as {repeated[0]}")
    if rows.ids and "" in rows.ids:
        notes.append(f"rows without an id: {rows.ids.count(''):,}")
    return notes


def _shown(value: Sequence[Any]) -> str:
    shown = repr(value)
    if len(shown) > 60:
        return shown[:57] + "..."
    return shown
