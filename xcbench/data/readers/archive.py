"""From a path to the folder that holds the files: directly, a level or two down, or unpacked from a zip.

An archive is a stranger's file. Names that climb out of it are refused, and no more is unpacked than text can
plausibly have been packed into that many bytes.
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

UNPACKED_FREELY = 256 << 20
UNPACKED_RATIO = 200
"""Sparse text and JSON pack 3 to 10 times; deflate can reach 1,032 times."""
_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, RuntimeError)
_DEPTH = 3
_BLOCK = 1 << 20


def unpacked_limit(packed: int) -> int:
    """The most bytes that so many packed bytes may become."""
    return max(UNPACKED_FREELY, UNPACKED_RATIO * packed)


@contextlib.contextmanager
def opened(path: Path, is_known: Callable[[str], bool]) -> Iterator[Path]:
    """Yield the folder below `path` (a folder or a zip) that holds files with known names."""
    if path.is_dir():
        yield _holding_folder(path, path, is_known)
    elif path.is_file() and zipfile.is_zipfile(path):
        with tempfile.TemporaryDirectory(prefix="xcbench-") as scratch:
            _unpack(path, Path(scratch), is_known)
            try:
                yield _holding_folder(Path(scratch), path, is_known)
            except DataError as error:
                # The user knows the zip, not the folder that is gone when the message is read.
                error.args = (str(error).replace(scratch, str(path)),)
                raise
    elif path.exists():
        raise DataError("expected a folder or a zip file", path)
    else:
        raise DataError("no such file or folder", path)


def _holding_folder(root: Path, named: Path, is_known: Callable[[str], bool]) -> Path:
    """The shallowest folder with a known file; two of them at one depth would be a guess."""
    level = [root]
    for _ in range(_DEPTH + 1):
        holding = [folder for folder in level if any(is_known(file.name) for file in folder.iterdir())]
        if len(holding) > 1:
            names = ", ".join(sorted(folder.name for folder in holding)[:5])
            raise DataError(f"holds several datasets ({names}); name one of them", named)
        if holding:
            return holding[0]
        level = [child for folder in level for child in folder.iterdir() if child.is_dir()]
    raise DataError("holds no dataset in any known form; see docs/data-formats.md for the file names", named)


def _unpack(path: Path, target: Path, is_known: Callable[[str], bool]) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            left = unpacked_limit(path.stat().st_size)
            for member in archive.infolist():
                name = PurePosixPath(member.filename.replace("\\", "/"))
                if name.is_absolute() or ".." in name.parts:
                    raise DataError(f"refused: its entry {member.filename!r} climbs out of the folder", path)
                if member.is_dir() or "__MACOSX" in name.parts or not is_known(name.name):
                    continue
                left = _unpack_member(archive, member, target / name, left, path)
    except _BROKEN as error:
        raise DataError(f"the zip file is damaged, or its kind is not supported: {error}", path) from None


def _unpack_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, left: int, path: Path) -> int:
    """Copy one file out, counting what really comes rather than what the archive claims; returns what may still."""
    if target.exists():
        raise DataError(f"refused: it holds {member.filename!r} twice", path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, target.open("wb") as out:
        while block := source.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise DataError(f"refused: unpacking it passed {unpacked_limit(path.stat().st_size):,} bytes", path)
            out.write(block)
    return left
