"""Raw text: one JSON object per line (plain or gzipped), or one title per line.

Text is UTF-8. A file in another encoding is refused with the line where it shows, since a wrong guess would change
the words unnoticed.
"""

from __future__ import annotations

import codecs
import gzip
import json
import math
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import TextColumn
from xcbench.data.readers.archive import unpacked_limit
from xcbench.data.sparse_kernels import MAX_ID
from xcbench.data.sparse_text import file_bytes
from xcbench.errors import DataError

_MAX_LINE = 64 << 20
_BLOCK = 1 << 20
_NEWLINE = 10
_BOM = codecs.BOM_UTF8


@dataclass(frozen=True)
class JsonLines:
    """The content of a file of JSON objects."""

    titles: TextColumn
    targets: sp.csr_array | None
    """From `target_ind` and `target_rel`; None where no object has the former."""
    contents: int
    """The number of objects with a `content` that is not empty."""
    repeated: tuple[str, ...] = ()
    """The objects with the `uid` of an earlier one, in words."""


class TextBuilder:
    """Builds a `TextColumn` string by string, without keeping the strings."""

    def __init__(self) -> None:
        self.utf8 = bytearray()
        self.offsets = array("q", [0])

    def add(self, text: str) -> None:
        """Append a string."""
        self.utf8 += text.encode("utf-8", "replace")  # JSON can spell half a character (a lone surrogate)
        self.offsets.append(len(self.utf8))

    def column(self) -> TextColumn:
        """Return all strings."""
        utf8 = np.frombuffer(self.utf8, np.uint8)
        offsets = _as_array(self.offsets, np.int64)
        return TextColumn(utf8, offsets)


class _TargetsBuilder:
    """Builds the targets of points one by one."""

    def __init__(self, labels: int | None) -> None:
        self.labels = labels
        self.any_given = False
        self.ids = array("i")
        self.values = array("f")
        self.ends = array("q", [0])

    def add(
        self,
        point: dict[str, Any],
        path: Path,
        line: int,
    ) -> None:
        """Append the targets of a point, which are none where it has no key `target_ind`."""
        if "target_ind" in point:
            self.any_given = True
            limit = MAX_ID + 1 if self.labels is None else self.labels
            labels = _label_ids(point["target_ind"], limit, path, line)
            relevance = _relevance(point.get("target_rel"), len(labels), path, line)
            self.ids.extend(labels)
            self.values.extend(relevance)
        self.ends.append(len(self.ids))

    @property
    def points(self) -> int:
        return len(self.ends) - 1

    def matrix(self) -> sp.csr_array | None:
        """Return the targets of all points; None where no point had any."""
        if not self.any_given:
            return None

        columns = self.labels
        if columns is None:
            columns = max(self.ids, default=-1) + 1
        width = np.int32 if len(self.ids) <= MAX_ID else np.int64
        entries = (
            _as_array(self.values, np.float32),
            _as_array(self.ids, width),
            _as_array(self.ends, width),
        )
        return sp.csr_array(entries, shape=(self.points, columns))


def read_lines(path: Path) -> TextColumn:
    """Read one title per line."""
    content = utf8_text(path).encode().replace(b"\r\n", b"\n")
    if not content.endswith(b"\n"):
        content += b"\n"

    utf8 = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(utf8 == _NEWLINE)
    offsets = np.zeros(len(ends) + 1, np.int64)
    offsets[1:] = ends - np.arange(len(ends))  # each string loses its own newline and those before it
    return TextColumn(utf8[utf8 != _NEWLINE], offsets)


def utf8_text(path: Path) -> str:
    """Return the text of a file, without the byte order mark that some editors put before it."""
    content = file_bytes(path).tobytes()
    try:
        return content.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise _not_utf8(path, line, content) from None


def utf8_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file with their ends, without the byte order mark. Memory does not grow with the file."""
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            yield from file
    except UnicodeDecodeError:
        raise _first_not_utf8(path) from None


def count_newlines(path: Path) -> int:
    """Return the number of line ends in a file."""
    count = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            count += block.count(b"\n")
    return count


def read_json_lines(path: Path, labels: int | None = None, with_content: bool = False) -> JsonLines:
    """Read the keys `title`, `target_ind`, `target_rel` and `content` of one JSON object per line.

    Objects may hold further keys.

    Parameters
    ----------
    path
        The file, gzipped where its name ends in `.gz`.
    labels
        The number of labels, where it is known; ids must be below it.
    with_content
        Append the content to the title.
    """
    text = TextBuilder()
    targets = _TargetsBuilder(labels)
    contents = 0
    uids = set()
    repeated = []
    for line, raw in raw_lines(path):
        point = json_object(raw, path, line)
        title = _string(point, "title", path, line)
        content = _string(point, "content", path, line)
        if content:
            contents += 1
        if content and with_content:
            title = f"{title} {content}".strip()
        text.add(title)
        targets.add(point, path, line)
        uid = point.get("uid")
        if isinstance(uid, str | int):
            if uid in uids:
                repeated.append(f"{uid!r} in line {line}")
            uids.add(uid)

    if targets.points == 0:
        raise DataError("the file is empty", path)
    return JsonLines(text.column(), targets.matrix(), contents, tuple(repeated))


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a plain or gzipped file that are not blank, with their numbers."""
    is_packed = path.suffix == ".gz"
    remaining = unpacked_limit(path.stat().st_size)
    line = 0
    with path.open("rb") as file:
        stream: BinaryIO = file
        if is_packed:
            stream = cast("BinaryIO", gzip.GzipFile(fileobj=file))
        try:
            while raw := stream.readline(_MAX_LINE):
                line += 1
                remaining -= len(raw)
                if len(raw) == _MAX_LINE or (is_packed and remaining < 0):
                    raise DataError("refused: unpacks to more than titles can be", path, line)
                if not raw.strip():
                    continue
                if line == 1:
                    raw = raw.removeprefix(_BOM)
                yield line, raw
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise DataError(f"the gzip file is damaged: {error}", path, line + 1) from None


def json_object(raw: bytes, path: Path, line: int) -> dict[str, Any]:
    """Parse the one JSON object of a line."""
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise _not_utf8(path, line, raw) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected one JSON object a line: {error}", path, line) from None

    if not isinstance(value, dict):
        raise DataError(f"expected one JSON object a line, got {type(value).__name__}", path, line)
    return value


def _string(
    point: dict[str, Any],
    key: str,
    path: Path,
    line: int,
) -> str:
    value = point.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"expected a text as {key!r}, got {type(value).__name__}", path, line)
    return value


def _label_ids(
    value: Any,
    limit: int,
    path: Path,
    line: int,
) -> list[int]:
    if not isinstance(value, list) or not all(type(label) is int for label in value):
        raise DataError("expected a list of whole numbers as 'target_ind'", path, line)
    if value and not (min(value) >= 0 and max(value) < limit):
        raise DataError(f"expected label ids from 0 to {limit - 1:,} in 'target_ind'", path, line)
    return value


def _relevance(
    value: Any,
    count: int,
    path: Path,
    line: int,
) -> list[float]:
    if value is None:
        return [1.0] * count
    if not isinstance(value, list) or len(value) != count:
        raise DataError(f"expected a list of {count} numbers as 'target_rel'", path, line)
    if not all(_fits_float32(number) for number in value):
        raise DataError("expected finite numbers in 'target_rel'", path, line)
    return value


def _fits_float32(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < 2**127
    return type(value) is float and math.isfinite(value) and abs(value) < 2.0**127


def _as_array(values: array[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    if not values:
        return np.zeros(0, dtype)  # numpy refuses an empty buffer
    return np.frombuffer(values, values.typecode).astype(dtype, copy=False)


def _first_not_utf8(path: Path) -> DataError:
    """Return the error for the first line that is not UTF-8; reading in blocks only tells that there is one."""
    try:
        utf8_text(path)
    except DataError as error:
        return error
    return DataError("expected UTF-8 text; the file was changed while it was read", path)


def _not_utf8(path: Path, line: int, start: bytes) -> DataError:
    """Return the error for text in another encoding, of which `start` is the first line or all that there is."""
    encoding = "LATIN1"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "UTF-16"
    command = f"iconv -f {encoding} -t UTF-8 {path.name} > {path.stem}-utf8{path.suffix}"
    return DataError(f"expected UTF-8 text; convert it first, e.g. with '{command}'", path, line)
