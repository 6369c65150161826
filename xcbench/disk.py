"""Folders that several processes share: locks, sizes, and readable errors for a full or read-only disk."""

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

_NO_ERROR_NUMBER = 0
_DISK_ERRORS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EEXIST,
}


def lock_for(folder: Path) -> filelock.BaseFileLock:
    """Return the lock of one folder of a store or cache. The system frees it when its process dies, however it dies."""
    locks = folder.parent / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    return filelock.FileLock(locks / f"{folder.name}.lock")


@contextlib.contextmanager
def locked(folder: Path, title: str) -> Iterator[None]:
    """Hold the lock of a folder. `title` names it in the log line of a process that has to wait for the lock."""
    lock = lock_for(folder)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        _log.info("%s: waiting for another process that is at work on it", title)
        lock.acquire(poll_interval=0.2)

    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def readable_disk_errors(folder: Path) -> Iterator[None]:
    """Turn the errors of a full, read-only or forbidden disk into one line; other errors pass.

    The line names the file of the error, or `folder` if the error names none.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = _error_number(error)
        if number not in _DISK_ERRORS:
            raise
        place = getattr(error, "filename", None) or folder
        raise XCBenchError(f"{place}: {os.strerror(number)}") from error


def _error_number(error: Exception) -> int:
    """Return the system's number of an error. numpy and safetensors report a full disk in words only."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno

    message = str(error)
    match = re.search(r"\(os error (\d+)\)", message)
    if match is not None:
        return int(match[1])
    if re.search(r"\d requested and \d+ written|Not enough free space", message):
        return errno.ENOSPC
    return _NO_ERROR_NUMBER


def clear_remains(folder: Path) -> None:
    """Delete what killed processes left of attempts to write this folder. Call it only while holding its lock."""
    for remainder in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(remainder, ignore_errors=True)


def folder_size(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
