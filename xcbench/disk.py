"""Sharing a folder between processes: locks, sizes, and plain words for a disk that is full or read-only."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import filelock
from safetensors import SafetensorError

from xcbench.errors import XCBenchError

_log = logging.getLogger(__name__)
_DISK = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EEXIST),
}


def lock_for(folder: Path) -> filelock.BaseFileLock:
    """The lock of one folder of a store or cache. The system frees it when its process dies, however it dies."""
    locks = folder.parent / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    return filelock.FileLock(locks / f"{folder.name}.lock")


@contextlib.contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold the lock of a folder; whoever has to wait for another process says so."""
    lock = lock_for(folder)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        _log.info("%s: waiting for another process that is at work on it", what)
        lock.acquire(poll_interval=0.2)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def readable_disk_errors(folder: Path) -> Iterator[None]:
    """Turn what a full, read-only or forbidden disk raises into one line."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = _number(error)
        if number not in _DISK:
            raise
        raise XCBenchError(f"{getattr(error, 'filename', None) or folder}: {os.strerror(number)}") from error


def _number(error: Exception) -> int:
    """The system's number of an error (0: none); of a full disk, numpy and safetensors tell in words only."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if named := re.search(r"\(os error (\d+)\)", str(error)):
        return int(named[1])
    return errno.ENOSPC if re.search(r"\d requested and \d+ written|Not enough free space", str(error)) else 0


def clear_remains(folder: Path) -> None:
    """Delete what a killed process left of an attempt to write this folder. Only for who holds its lock."""
    for remainder in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(remainder, ignore_errors=True)


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
