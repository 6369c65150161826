"""Where xcbench keeps its files, and how it writes them so that no reader ever sees half of one."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import platformdirs

_BLOCK_BYTES = 1 << 20


def home() -> Path:
    """Return the folder of imported datasets, stage cache and run store.

    It is `XCBENCH_HOME`, or the platform's folder for user data.
    """
    configured = os.environ.get("XCBENCH_HOME")
    if configured:
        return Path(configured).expanduser().absolute()
    return Path(platformdirs.user_data_dir("xcbench"))


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`. It replaces `path` on success and is deleted on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    part = Path(name)

    try:
        yield part
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `path`. It replaces `path` on success and is deleted on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _temporary_folder(path, ".part")

    try:
        yield part
        part.chmod(0o777 & ~_umask())
        if path.exists():
            _replace_folder(part, path)
        else:
            part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _replace_folder(new: Path, path: Path) -> None:
    """Put a new folder in the place of an existing one."""
    # A folder cannot be replaced in one step: move the old one aside so that a reader sees old, none or new.
    old = _temporary_folder(path, ".old")
    path.replace(old)
    new.replace(path)
    shutil.rmtree(old, ignore_errors=True)


def _temporary_folder(path: Path, suffix: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=suffix, dir=path.parent))


def write_json(path: Path, value: Any) -> None:
    """Write JSON for people and diffs: indented, keys sorted, a newline at the end. nan and inf are refused."""
    text = json.dumps(
        value,
        indent=2,
        sort_keys=True,
        allow_nan=False,
        ensure_ascii=False,
    )
    with atomic_file(path) as part:
        # Half a character, as in file names that are not UTF-8, has no bytes; \udce9 is how JSON spells it.
        part.write_text(f"{text}\n", "utf-8", "backslashreplace")


def sha256_of(path: Path) -> str:
    """Return the digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    current = os.umask(0)
    os.umask(current)
    return current
