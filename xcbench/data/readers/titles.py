"""Raw text: one JSON object a line (plain or gzipped), or one title a line.

Text is UTF-8. A file in another encoding is refused with the line where it shows, since a wrong guess would change
the words without anyone noticing.
"""

from __future__ import annotations

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

_LINE_AT_MOST = 64 << 20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class JsonLines:
    """What the objects of one file hold."""

    titles: TextColumn
    targets: sp.csr_array | None
    """From `target_ind` and `target_rel`; None where no object has the former."""
    contents: int
    """How many objects have a `content` that is not empty."""


class TextBuilder:
    """Grows a `TextColumn` string by string, without keeping the strings."""

    def __init__(self) -> None:
        self.utf8, self.offsets = bytearray(), array("q", [0])

    def add(self, text: str) -> None:
        self.utf8 += text.encode("utf-8", "replace")  # JSON can spell half a character (a lone surrogate)
        self.offsets.append(len(self.utf8))

    def column(self) -> TextColumn:
        return TextColumn(np.frombuffer(self.utf8, np.uint8), _as_array(self.offsets, np.int64))


def read_lines(path: Path) -> TextColumn:
    """Read one title a line."""
    content = utf8_text(path).encode().replace(b"\r\n", b"\n")
    if not content.endswith(b"\n"):
        content += b"\n"
    utf8 = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(utf8 == 10)
    offsets = np.zeros(len(ends) + 1, np.int64)
    offsets[1:] = ends - np.arange(len(ends))  # each string loses its own newline and those before it
    return TextColumn(utf8[utf8 != 10], offsets)


def utf8_text(path: Path) -> str:
    """The text of a file, without the mark that some editors put before it."""
    content = file_bytes(path).tobytes()
    try:
        return content.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, content[: error.start].count(b"\n") + 1) from None


def read_json_lines(path: Path, labels: int | None = None, with_content: bool = False) -> JsonLines:
    """Read `title`, `target_ind`, `target_rel` and, where wanted, `content` appended to the title.

    Ids must lie below `labels` where that is known. Objects may hold further keys.
    """
    text, contents, any_target = TextBuilder(), 0, False
    ids, values, ends = array("i"), array("f"), array("q", [0])
    for line, raw in _raw_lines(path):
        point = _json_object(raw, path, line)
        title, content = _string(point, "title", path, line), _string(point, "content", path, line)
        contents += bool(content)
        text.add(f"{title} {content}".strip() if with_content and content else title)
        if "target_ind" in point:
            any_target = True
            _add_targets(point, ids, values, MAX_ID + 1 if labels is None else labels, path, line)
        ends.append(len(ids))
    if len(ends) == 1:
        raise DataError("the file is empty", path)
    if not any_target:
        return JsonLines(text.column(), None, contents)
    columns = labels if labels is not None else max(ids, default=-1) + 1
    width = np.int32 if len(ids) <= MAX_ID else np.int64
    arrays = _as_array(values, np.float32), _as_array(ids, width), _as_array(ends, width)
    return JsonLines(text.column(), sp.csr_array(arrays, shape=(len(ends) - 1, columns)), contents)


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that hold anything, with their numbers."""
    packed = path.suffix == ".gz"
    left = unpacked_limit(path.stat().st_size)
    with path.open("rb") as file:
        stream = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file
        line = 0
        try:
            while raw := stream.readline(_LINE_AT_MOST):
                line += 1
                left -= len(raw)
                if len(raw) == _LINE_AT_MOST or (packed and left < 0):
                    raise DataError("refused: unpacks to more than titles can be", path, line)
                if raw.strip():
                    yield line, raw.removeprefix(_BOM) if line == 1 else raw
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise DataError(f"the gzip file is damaged: {error}", path, line + 1) from None


def _json_object(raw: bytes, path: Path, line: int) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise _not_utf8(path, line) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected one JSON object a line: {error}", path, line) from None
    if not isinstance(value, dict):
        raise DataError(f"expected one JSON object a line, got {type(value).__name__}", path, line)
    return value


def _string(point: dict[str, Any], key: str, path: Path, line: int) -> str:
    value = point.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"expected a text as {key!r}, got {type(value).__name__}", path, line)
    return value


def _add_targets(
    point: dict[str, Any], ids: array[int], values: array[float], limit: int, path: Path, line: int
) -> None:
    targets = point["target_ind"]
    if not isinstance(targets, list) or not all(type(label) is int for label in targets):
        raise DataError("expected a list of whole numbers as 'target_ind'", path, line)
    if targets and not (min(targets) >= 0 and max(targets) < limit):
        raise DataError(f"expected label ids from 0 to {limit - 1:,} in 'target_ind'", path, line)
    relevance = point.get("target_rel")
    if relevance is None:
        relevance = [1.0] * len(targets)
    elif not isinstance(relevance, list) or len(relevance) != len(targets):
        raise DataError(f"expected a list of {len(targets)} numbers as 'target_rel'", path, line)
    elif not all(_fits_float32(value) for value in relevance):
        raise DataError("expected finite numbers in 'target_rel'", path, line)
    ids.extend(targets)
    values.extend(relevance)


def _fits_float32(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < 2**127
    return type(value) is float and math.isfinite(value) and abs(value) < 2.0**127


def _as_array(values: array[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.frombuffer(values, values.typecode).astype(dtype, copy=False) if values else np.zeros(0, dtype)


def _not_utf8(path: Path, line: int) -> DataError:
    return DataError("expected UTF-8 text; convert it first, e.g. with 'iconv -f LATIN1 -t UTF-8'", path, line)
