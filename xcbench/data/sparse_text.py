"""Sparse matrices written as text, parsed by one compiled pass over the bytes.

Two kinds of line share one grammar: `id:value id:value ...` (a row of a matrix) and the same with a comma-separated
list of labels before it (a point). Nothing is allocated on a header's word: the bytes are counted first, and a header
is only ever compared with what was counted.
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
    FINE,
    MAX_ID,
    NEWLINE,
    NO_COLON,
    NOT_A_NUMBER,
    NOT_AN_ID,
    OUT_OF_RANGE,
    parse_lines,
    parse_pairs,
)
from xcbench.errors import DataError

Bytes = npt.NDArray[np.uint8]

_HEADER_AT_MOST = 200


@dataclass(frozen=True)
class Header:
    """The counts a file's first line declares: rows, then the columns of each part."""

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
    """Read lines `id:value ...`, after a header `rows columns` where there is one."""
    content = file_bytes(path)
    header = _header(path, content, expected="rows columns")
    return _parse(path, content, header, with_labels=False)


def read_points(path: Path) -> Parsed:
    """Read lines `label,label id:value ...`; with a header `points features labels`, or else as svmlight.

    In the headed form every line is a point, even an empty one. svmlight skips empty lines and what follows a `#`.
    """
    content = file_bytes(path)
    header = _header(path, content, expected="points features labels")
    return _parse(path, content, header, with_labels=True)


def read_pairs(path: Path, rows: int, columns: int) -> npt.NDArray[np.int64]:
    """Read lines `row column` of whole numbers, all within the given shape; an empty file holds no pair."""
    content = file_bytes(path, may_be_empty=True)
    pairs = np.empty((_count(content, NEWLINE) + 1, 2), np.int64)
    status, line, position, found = parse_pairs(content, rows, columns, pairs)
    if status == OUT_OF_RANGE:
        raise DataError(f"expected a pair within {rows:,} points and {columns:,} labels (0-based)", path, line)
    if status != FINE:
        raise DataError(f"expected two whole numbers 'point label', got {_token(content, position)}", path, line)
    return pairs[:found]


def file_bytes(path: Path, may_be_empty: bool = False) -> Bytes:
    """The bytes of a file, mapped rather than read where there are any."""
    try:
        if path.stat().st_size == 0:
            if may_be_empty:
                return np.zeros(0, np.uint8)
            raise DataError("the file is empty", path)
        return np.asarray(np.memmap(path, np.uint8, mode="c"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path) from None


def _first_numbers(start: bytes) -> tuple[int, ...] | None:
    line, newline, _ = start.partition(b"\n")
    if (newline or len(start) < _HEADER_AT_MOST) and re.fullmatch(rb"[ \t]*\d+([ \t]+\d+)+[ \t\r]*", line):
        return tuple(map(int, line.split()))
    return None


def _header(path: Path, content: Bytes, expected: str) -> Header | None:
    numbers = _first_numbers(content[:_HEADER_AT_MOST].tobytes())
    if numbers is None:
        return None
    if len(numbers) != len(expected.split()):
        raise DataError(f"expected a header '{expected}', got {len(numbers)} numbers", path, 1)
    if max(numbers[1:]) > MAX_ID:
        raise DataError(f"the header declares {max(numbers[1:]):,} columns; at most {MAX_ID:,} are possible", path, 1)
    return Header(numbers[0], numbers[1:])


def _parse(path: Path, content: Bytes, header: Header | None, with_labels: bool) -> Parsed:
    start = 0 if header is None else _line_end(content) + 1
    body = content[start:]
    lines = _count(body, NEWLINE) + int(len(body) > 0 and body[-1] != NEWLINE)
    if header and header.rows > lines:
        raise DataError(f"the header declares {header.rows:,} rows, but {lines:,} lines follow it", path, 1)
    entries = _count(body, COLON)
    names = _count(body, COMMA) + lines if with_labels else 0
    limits = (MAX_ID + 1,) * 2 if header is None else (header.columns[0], header.columns[-1])
    ids, values, ends = np.empty(entries, np.int32), np.empty(entries, np.float32), np.zeros(lines + 1, np.int64)
    label_ids, label_ends = np.empty(names, np.int32), np.zeros(lines + 1, np.int64)
    skip_blank = with_labels and header is None
    status, line, position, rows = parse_lines(
        body, with_labels, skip_blank, *limits, ids, values, ends, label_ids, label_ends
    )
    if status != FINE:
        raise _error(status, path, line + (header is not None), _token(body, position), header)
    rows = _agreed_rows(path, header, rows, ends + label_ends)
    features = _csr(values, ids, ends, rows, None if header is None else header.columns[0])
    if not with_labels:
        return Parsed(header, features, None)
    ones = np.ones(label_ends[rows], np.float32)
    return Parsed(header, features, _csr(ones, label_ids, label_ends, rows, None if header is None else limits[1]))


def _agreed_rows(path: Path, header: Header | None, rows: int, ends: npt.NDArray[np.int64]) -> int:
    """The row count, without the blank lines that some editors leave after the last declared row."""
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
    size = int(ends[rows])
    values, ids = values[:size], ids[:size]
    if columns is None:
        columns = int(ids.max(initial=-1)) + 1
    # scipy wants both index arrays of one width; given two, it scans and copies.
    width = np.int32 if size <= MAX_ID else np.int64
    return sp.csr_array((values, ids.astype(width, copy=False), ends[: rows + 1].astype(width)), shape=(rows, columns))


def _error(status: int, path: Path, line: int, token: str, header: Header | None) -> DataError:
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
    """The word around a position, fit for one line of a message."""
    around = content[max(0, position - 40) : position + 40].tobytes()
    before, after = around[: min(40, position)], around[min(40, position) :]
    word = re.split(rb"\s", before)[-1] + re.split(rb"\s", after)[0]
    return repr(word.decode("ascii", "backslashreplace")) if word else "the end of the line"


def _line_end(content: Bytes) -> int:
    ends = np.flatnonzero(content[:_HEADER_AT_MOST] == NEWLINE)
    return int(ends[0]) if len(ends) else len(content)


def _count(content: Bytes, byte: int) -> int:
    """How often a byte occurs; in blocks that stay in the cache, where numpy counts faster than memory delivers."""
    block = 1 << 18
    return sum(int(np.count_nonzero(content[i : i + block] == byte)) for i in range(0, len(content), block))
