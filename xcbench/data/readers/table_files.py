"""One table in one file: CSV, TSV, JSON lines, parquet, or a title per line. Read row by row, in constant memory.

CSV is read by Python's own module in its strict mode. pandas takes a row with too few fields, a field that goes on
behind its quote and two columns of one name without a word, and cannot say in which line text is no longer UTF-8.
"""

from __future__ import annotations

import csv
import importlib.util
import itertools
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xcbench.data.readers.titles import count_newlines, json_object, raw_lines, utf8_lines
from xcbench.errors import DataError, InputError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

TABLE_KINDS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
"""The endings of files that are tables with named columns."""
STANDARD_INPUT = Path("-")
_SEPARATORS = (",", ";", "\t", "|")
_JSON_PEEK = 100
"""The columns of JSON lines are the keys of so many objects."""
_PARQUET_ROWS = 10_000
_MAX_SHOWN = 20

Row = tuple[int, tuple[Any, ...]]
"""The number by which messages name a row, and its values in the columns that were asked for."""


class Table(ABC):
    """The rows of one file.

    Parameters
    ----------
    path
        The file.
    columns
        The names of its columns.
    """

    place = "line"
    """What a row's number counts."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = list(columns)

    @abstractmethod
    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield every row with the values of some columns as the file holds them; a blank line has only None."""

    @abstractmethod
    def expected_rows(self) -> int | None:
        """Return about how many rows there are, for a progress bar; None where only reading would tell."""

    def column(self, wanted: str) -> str:
        """Return the column that a user means, whatever its case. Raises `DataError`, naming those that there are."""
        matches = [name for name in self.columns if name == wanted]
        if not matches:
            matches = [name for name in self.columns if name.lower() == wanted.lower()]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise DataError(f"has several columns {wanted!r}; rename one", self.path, 1)

        found = ", ".join(self.columns[:_MAX_SHOWN])
        if len(self.columns) > _MAX_SHOWN:
            found += ", ..."
        raise DataError(f"has no column {wanted!r}; found {found}", self.path)

    def error(self, message: str, number: int, column: str | None = None) -> DataError:
        """Return the error that names a row of this file and, if it is about one, the column."""
        if column is not None:
            message = f"column {column!r}: {message}"
        return DataError(message, self.path, number, self.place)

    def text(self, value: Any, number: int, column: str) -> str:
        """Return a value as text. Nothing at all is an empty text, and whole numbers may be names."""
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise self.error(f"expected a text, got {_kind(value)}", number, column)


class CsvTable(Table):
    """Comma-separated values, or values separated by something else, with a header."""

    def __init__(self, path: Path, separator: str | None = None) -> None:
        header = next(utf8_lines(path), "")
        if not header.strip():
            raise DataError("expected a header with the names of the columns", path, 1)
        self.separator = separator or _separator_of(header)
        super().__init__(path, [name.strip() for name in next(_csv_records(path, self.separator))[1]])

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield every row; the number is that of its first line."""
        places = [self.columns.index(column) for column in columns]
        width = len(self.columns)
        nothing = (None,) * len(columns)
        for line, record in itertools.islice(_csv_records(self.path, self.separator), 1, None):
            if not record:
                yield line, nothing
            elif len(record) == width:
                yield line, tuple([record[place] for place in places])
            else:
                raise self.error(f"expected {width} fields as in the header, got {len(record)}", line)

    def expected_rows(self) -> int:
        """Return the number of lines below the header; quoted line breaks count, too."""
        return count_newlines(self.path)


class JsonTable(Table):
    """JSON lines: one object per row, whose keys are the columns. A missing key is an empty value."""

    def __init__(self, path: Path) -> None:
        first = [json_object(raw, path, line) for line, raw in itertools.islice(raw_lines(path), _JSON_PEEK)]
        if not first:
            raise DataError("the file is empty", path)
        super().__init__(path, list(dict.fromkeys(itertools.chain.from_iterable(first))))

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield every object; the number is that of its line. Lines between objects may be blank."""
        for line, raw in raw_lines(self.path):
            value = json_object(raw, self.path, line)
            yield line, tuple([value.get(column) for column in columns])

    def expected_rows(self) -> int:
        """Return the number of lines."""
        return count_newlines(self.path)


class ParquetTable(Table):
    """A parquet file, read by pyarrow."""

    place = "row"

    def __init__(self, path: Path) -> None:
        self.file = _open_parquet(path)
        super().__init__(path, self.file.schema_arrow.names)

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield every row; numbers count from 1."""
        number = 0
        try:
            for batch in self.file.iter_batches(_PARQUET_ROWS, columns=list(dict.fromkeys(columns))):
                values = [batch.column(column).to_pylist() for column in columns]
                for row in zip(*values, strict=True):
                    number += 1
                    yield number, row
        except (OSError, ValueError) as error:  # pyarrow raises both kinds
            raise DataError(f"damaged behind row {number}: {error}", self.path) from None

    def expected_rows(self) -> int:
        """Return the number of rows."""
        return int(self.file.metadata.num_rows)


class LinesTable(Table):
    """A title per line, in the one column `title`; blank lines are rows, too. The path - is the standard input."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ["title"])
        if path != STANDARD_INPUT and not path.is_file():
            raise _no_file(path)

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield every line."""
        lines: Iterable[str]
        if self.path == STANDARD_INPUT:
            lines = _standard_input()
        else:
            lines = utf8_lines(self.path)
        for number, line in enumerate(lines, 1):
            yield number, (line.strip(),) * len(columns)

    def expected_rows(self) -> int | None:
        """Return the number of lines, where the file can be read twice."""
        if self.path == STANDARD_INPUT:
            return None
        return count_newlines(self.path)


def is_table(path: Path) -> bool:
    """Whether a file is a table with named columns, by the ending of its name."""
    return path.suffix.lower() in TABLE_KINDS


def open_table(path: Path) -> Table:
    """Open a file with named columns. Raises `DataError` where it cannot be read as what its name says.

    Parameters
    ----------
    path
        A file whose name ends in .csv, .tsv, .jsonl, .ndjson or .parquet.
    """
    kind = path.suffix.lower()
    if kind not in TABLE_KINDS:
        kinds = ", ".join(TABLE_KINDS)
        raise DataError(f"expected a file that ends in {kinds}; save a spreadsheet as CSV (UTF-8)", path)
    if not path.is_file():
        raise _no_file(path)

    try:
        if kind == ".parquet":
            return ParquetTable(path)
        if kind in (".jsonl", ".ndjson"):
            return JsonTable(path)
        if kind == ".tsv":
            return CsvTable(path, "\t")
        return CsvTable(path)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path) from None


def open_titles(path: Path) -> Table:
    """Open a table, or a text file with a title per line (.txt, no ending, or - for the standard input)."""
    if path == STANDARD_INPUT or path.suffix.lower() in (".txt", ""):
        return LinesTable(path)
    return open_table(path)


def _csv_records(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of every row, the header first, with the number of the row's first line."""
    # Strict, since the lenient reader takes a forgotten quote for a field that extends to the end of the file.
    records = csv.reader(utf8_lines(path), delimiter=separator, strict=True)
    line = 1
    try:
        for record in records:
            yield line, record
            line = records.line_num + 1
    except csv.Error as error:
        raise DataError(f"expected CSV, with every quoted field closed: {error}", path, line) from None


def check_pyarrow(path: Path) -> None:
    """Raise `InputError` unless the library that reads and writes parquet files is installed."""
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError(f"{path}: parquet files need pyarrow, which is not installed: pip install pyarrow")


def _open_parquet(path: Path) -> ParquetFile:
    check_pyarrow(path)
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(path)
    except ArrowException as error:
        raise DataError(f"not a readable parquet file: {error}", path) from None


def _separator_of(header: str) -> str:
    """Return what separates most of the columns of a header; a comma where there is only one column."""
    unquoted = re.sub('"[^"]*"', "", header)
    return max(_SEPARATORS, key=unquoted.count)


def _standard_input() -> Iterator[str]:
    try:
        yield from sys.stdin
    except UnicodeDecodeError:
        raise DataError("expected UTF-8 text on the standard input; convert it first with iconv") from None


def _no_file(path: Path) -> DataError:
    if path.is_dir():
        return DataError("expected a file, this is a folder", path)
    return DataError("no such file", path)


def _kind(value: Any) -> str:
    kinds = {bool: "true or false", float: "a number with decimals", dict: "an object", list: "a list"}
    name = type(value).__name__
    return kinds.get(type(value), name)
