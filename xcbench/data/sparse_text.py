"""Sparse matrices written as text, parsed by one compiled pass over the bytes.

Two kinds of line share one grammar: `id:value id:value ...` (a row of a matrix) and the same with a comma-separated
list of labels before it (a point). A header is never trusted: memory is allocated by counting the bytes, and the
header is only compared with that count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.sparse_kernels import (
    COLON,
    COMMA,
    MAX_ID,
    NEWLINE,
    NO_COLON,
    NOT_A_NUMBER,
    NOT_AN_ID,
    OK,
    OUT_OF_RANGE,
    parse_lines,
    parse_pairs,
)
from xcbench.errors import DataError

Bytes = npt.NDArray[np.uint8]

_MAX_HEADER = 200
_MESSAGE_CONTEXT = 40
_COUNTED_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Header:
    """The counts that a file's first line declares: rows, then the columns of each part."""

    rows: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Parsed:
    """The content of one file; ids may still be unsorted, and values explicit zeros."""

    header: Header | None
    features: sp.csr_array
    labels: sp.csr_array | None
    """None where the lines are rows of a matrix rather than points."""


def read_matrix(path: Path) -> Parsed:
    """Read lines `id:value ...`, after an optional header `rows columns`."""
    content = file_bytes(path)
    header = _header(path, content, expected="rows columns")
    return _parse(path, content, header, with_labels=False)


def read_points(path: Path) -> Parsed:
    """Read lines `label,label id:value ...`; with a header `points features labels`, or without one as svmlight.

    With a header every line is a point, even an empty one. svmlight skips empty lines and what follows a `#`.
    """
    content = file_bytes(path)
    header = _header(path, content, expected="points features labels")
    return _parse(path, content, header, with_labels=True)


def read_pairs(
    path: Path,
    rows: int,
    columns: int,
) -> npt.NDArray[np.int64]:
    """Read lines `row column` of whole numbers, all within the given shape; an empty file holds no pair."""
    content = file_bytes(path, may_be_empty=True)
    pairs = np.empty((_count(content, NEWLINE) + 1, 2), np.int64)
    status, line, position, count = parse_pairs(content, rows, columns, pairs)
    if status == OUT_OF_RANGE:
        raise DataError(f"expected a pair within {rows:,} points and {columns:,} labels (0-based)", path, line)
    if status != OK:
        raise DataError(f"expected two whole numbers 'point label', got {_token(content, position)}", path, line)
    return pairs[:count]


def file_bytes(path: Path, may_be_empty: bool = False) -> Bytes:
    """Memory-map the bytes of a file. Raises `DataError` for an empty file unless `may_be_empty`."""
    try:
        if path.stat().st_size == 0:
            if may_be_empty:
                return np.zeros(0, np.uint8)
            raise DataError("the file is empty", path)
        return np.asarray(np.memmap(path, np.uint8, mode="c"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path) from None


def _first_numbers(start: bytes) -> tuple[int, ...] | None:
    """Return the numbers of the first line, or None where it holds anything else than two or more numbers."""
    line, newline, _ = start.partition(b"\n")
    is_whole_line = newline or len(start) < _MAX_HEADER
    if is_whole_line and re.fullmatch(rb"[ \t]*\d+([ \t]+\d+)+[ \t\r]*", line):
        return tuple(map(int, line.split()))
    return None


def _header(path: Path, content: Bytes, expected: str) -> Header | None:
    numbers = _first_numbers(content[:_MAX_HEADER].tobytes())
    if numbers is None:
        return None

    if len(numbers) != len(expected.split()):
        raise DataError(f"expected a header '{expected}', got {len(numbers)} numbers", path, 1)
    rows = numbers[0]
    columns = numbers[1:]
    if max(columns) > MAX_ID:
        raise DataError(f"the header declares {max(columns):,} columns; at most {MAX_ID:,} are possible", path, 1)
    return Header(rows, columns)


@dataclass(frozen=True)
class _Entries:
    """The arrays that `parse_lines` fills, large enough for any content with so many separators."""

    ids: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    ends: npt.NDArray[np.int64]
    label_ids: npt.NDArray[np.int32]
    label_ends: npt.NDArray[np.int64]

    @classmethod
    def allocate(cls, body: Bytes, lines: int, with_labels: bool) -> _Entries:
        entries = _count(body, COLON)
        labels = 0
        if with_labels:
            labels = _count(body, COMMA) + lines

        return cls(
            ids=np.empty(entries, np.int32),
            values=np.empty(entries, np.float32),
            ends=np.zeros(lines + 1, np.int64),
            label_ids=np.empty(labels, np.int32),
            label_ends=np.zeros(lines + 1, np.int64),
        )


def _parse(path: Path, content: Bytes, header: Header | None, with_labels: bool) -> Parsed:
    body = content
    feature_columns = None
    label_columns = None
    if header is not None:
        body = content[_line_end(content) + 1 :]
        feature_columns = header.columns[0]
        label_columns = header.columns[-1]

    lines = _count_lines(body)
    if header and header.rows > lines:
        raise DataError(f"the header declares {header.rows:,} rows, but {lines:,} lines follow it", path, 1)

    entries = _Entries.allocate(body, lines, with_labels)
    status, line, position, rows = parse_lines(
        body,
        with_labels,
        with_labels and header is None,
        _id_limit(feature_columns),
        _id_limit(label_columns),
        entries.ids,
        entries.values,
        entries.ends,
        entries.label_ids,
        entries.label_ends,
    )
    if status != OK:
        lines_before = 0 if header is None else 1
        raise _error(status, path, lines_before + line, _token(body, position), header)

    rows = _agreed_rows(path, header, rows, entries.ends + entries.label_ends)
    features = _csr(entries.values, entries.ids, entries.ends, rows, feature_columns)
    if not with_labels:
        return Parsed(header, features, None)

    ones = np.ones(entries.label_ends[rows], np.float32)
    labels = _csr(ones, entries.label_ids, entries.label_ends, rows, label_columns)
    return Parsed(header, features, labels)


def _id_limit(columns: int | None) -> int:
    """Return the smallest id that is too large."""
    if columns is None:
        return MAX_ID + 1
    return columns


def _agreed_rows(
    path: Path,
    header: Header | None,
    rows: int,
    ends: npt.NDArray[np.int64],
) -> int:
    """Return the number of rows, without the blank lines that some editors leave after the last declared row."""
    if header is None or header.rows == rows:
        return rows
    if ends[rows] > ends[header.rows]:
        raise DataError(f"the header declares {header.rows:,} rows, but {rows:,} lines follow it", path, 1)
    return header.rows


def _csr(
    values: npt.NDArray[np.float32],
    ids: npt.NDArray[np.int32],
    ends: npt.NDArray[np.int64],
    rows: int,
    columns: int | None,
) -> sp.csr_array:
    """Make a matrix of the parsed entries; without `columns`, the largest id decides."""
    size = int(ends[rows])
    values = values[:size]
    ids = ids[:size]
    if columns is None:
        columns = int(ids.max(initial=-1)) + 1

    # scipy wants both index arrays of one width; otherwise it scans and copies.
    width = np.int32 if size <= MAX_ID else np.int64
    indices = ids.astype(width, copy=False)
    indptr = ends[: rows + 1].astype(width)
    return sp.csr_array((values, indices, indptr), shape=(rows, columns))


def _error(
    status: int,
    path: Path,
    line: int,
    token: str,
    header: Header | None,
) -> DataError:
    if status == OUT_OF_RANGE:
        if header is None:
            return DataError(f"ids are at most {MAX_ID:,}, got {token}", path, line)
        declared = " and ".join(f"{count:,}" for count in header.columns)
        return DataError(f"id {token} is out of range: the header declares {declared} columns", path, line)

    expected = {
        NOT_AN_ID: "a whole number as id",
        NO_COLON: "'id:value'",
        NOT_A_NUMBER: "a finite number after 'id:'",
    }[status]
    return DataError(f"expected {expected}, got {token}", path, line)


def _token(content: Bytes, position: int) -> str:
    """Return the word around a position, fit for one line of a message."""
    start = max(0, position - _MESSAGE_CONTEXT)
    before = content[start:position].tobytes()
    after = content[position : position + _MESSAGE_CONTEXT].tobytes()

    first_half = re.split(rb"\s", before)[-1]
    second_half = re.split(rb"\s", after)[0]
    word = first_half + second_half
    if not word:
        return "the end of the line"
    return repr(word.decode("ascii", "backslashreplace"))


def _line_end(content: Bytes) -> int:
    """Return the position of the first newline, or of the end."""
    newlines = np.flatnonzero(content[:_MAX_HEADER] == NEWLINE)
    if len(newlines) == 0:
        return len(content)
    return int(newlines[0])


def _count_lines(body: Bytes) -> int:
    lines = _count(body, NEWLINE)
    if len(body) and body[-1] != NEWLINE:
        lines += 1
    return lines


def _count(content: Bytes, byte: int) -> int:
    """Return how often a byte occurs. Counts in blocks that fit the cache, which is faster than one pass."""
    count = 0
    for start in range(0, len(content), _COUNTED_AT_ONCE):
        block = content[start : start + _COUNTED_AT_ONCE]
        count += int(np.count_nonzero(block == byte))
    return count
