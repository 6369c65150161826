"""From a path to the folder that holds the files: the path itself, a folder a few levels down, or an unpacked zip.

An archive is not trusted. Names that lead out of it are refused, and no more is unpacked than text can plausibly have
been packed into that many bytes.
"""

from __future__ import annotations

import contextlib
import lzma
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from xcbench.errors import DataError

MIN_UNPACKED_LIMIT = 256 << 20
UNPACKED_RATIO = 200
"""Sparse text and JSON pack 3 to 10 times; deflate can reach 1,032 times."""
_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, RuntimeError)
_MAX_DEPTH = 3
_BLOCK = 1 << 20


def unpacked_limit(packed: int) -> int:
    """Return the largest number of bytes that a file of `packed` bytes may unpack to."""
    return max(MIN_UNPACKED_LIMIT, UNPACKED_RATIO * packed)


@contextlib.contextmanager
def opened(path: Path, is_known: Callable[[str], bool]) -> Iterator[Path]:
    """Yield the folder below `path` (a folder or a zip) that holds files with known names."""
    if path.is_dir():
        yield _dataset_folder(path, path, is_known)
    elif path.is_file() and zipfile.is_zipfile(path):
        with tempfile.TemporaryDirectory(prefix="xcbench-") as scratch:
            _unpack(path, Path(scratch), is_known)
            try:
                yield _dataset_folder(Path(scratch), path, is_known)
            except DataError as error:
                # The user knows the zip, not the temporary folder, which is gone when the message is read.
                error.args = (str(error).replace(scratch, str(path)),)
                raise
    elif path.exists():
        raise DataError("expected a folder or a zip file", path)
    else:
        raise DataError("no such file or folder", path)


def _dataset_folder(
    root: Path,
    shown: Path,
    is_known: Callable[[str], bool],
) -> Path:
    """Return the shallowest folder with a known file; `shown` is the root's name in messages.

    Raises `DataError` where there is none, or several at one depth.
    """
    level = [root]
    for _ in range(_MAX_DEPTH + 1):
        candidates = [folder for folder in level if _holds_known(folder, is_known)]
        if len(candidates) > 1:
            names = sorted(folder.name for folder in candidates)
            raise DataError(f"holds several datasets ({', '.join(names[:5])}); name one of them", shown)
        if candidates:
            return candidates[0]

        children: list[Path] = []
        for folder in level:
            children += [child for child in folder.iterdir() if child.is_dir()]
        level = children
    raise DataError("holds no dataset in any known form; see docs/guides/data-formats.md for the file names", shown)


def _holds_known(folder: Path, is_known: Callable[[str], bool]) -> bool:
    return any(is_known(file.name) for file in folder.iterdir())


def _unpack(
    path: Path,
    target: Path,
    is_known: Callable[[str], bool],
) -> None:
    """Unpack the known files of a zip below `target`."""
    try:
        with zipfile.ZipFile(path) as archive:
            remaining = unpacked_limit(path.stat().st_size)
            for member in archive.infolist():
                name = PurePosixPath(member.filename.replace("\\", "/"))
                if name.is_absolute() or ".." in name.parts:
                    raise DataError(f"refused: its entry {member.filename!r} climbs out of the folder", path)
                if member.is_dir() or "__MACOSX" in name.parts or not is_known(name.name):
                    continue
                remaining = _unpack_member(archive, member, target / name, remaining, path)
    except _BROKEN as error:
        raise DataError(f"the zip file is damaged, or its kind is not supported: {error}", path) from None


def _unpack_member(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    target: Path,
    remaining: int,
    path: Path,
) -> int:
    """Unpack one file, and return how many bytes may still be unpacked.

    Counts the bytes that are really unpacked rather than those that the archive claims.
    """
    if target.exists():
        raise DataError(f"refused: it holds {member.filename!r} twice", path)

    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, target.open("wb") as out:
        while block := source.read(_BLOCK):
            remaining -= len(block)
            if remaining < 0:
                limit = unpacked_limit(path.stat().st_size)
                raise DataError(f"refused: unpacking it passed {limit:,} bytes", path)
            out.write(block)
    return remaining
