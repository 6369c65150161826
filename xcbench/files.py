"""Where xcbench keeps its files, and how it writes them so that nobody ever sees half of one."""

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


def home() -> Path:
    """Imported datasets, stage cache and run store live here: `XCBENCH_HOME`, or the platform's user data folder."""
    if configured := os.environ.get("XCBENCH_HOME"):
        return Path(configured).expanduser().absolute()
    return Path(platformdirs.user_data_dir("xcbench"))


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes the place of `path`, on failure it vanishes."""
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
    """Yield a temporary folder beside `path`; on success it becomes `path` (replacing what was there)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        yield part
        part.chmod(0o777 & ~_umask())
        if path.exists():
            # A folder cannot be replaced in one step: move the old one aside so that a reader sees old, none or new.
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
            path.replace(old)
            part.replace(path)
            shutil.rmtree(old, ignore_errors=True)
        else:
            part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON for people and diffs: indented, keys sorted, a newline at the end; nan and inf are refused."""
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"
    with atomic_file(path) as part:
        # Half a character, as in file names that are not UTF-8, has no bytes; \udce9 is how JSON spells it.
        part.write_text(text, "utf-8", "backslashreplace")


def sha256_of(path: Path) -> str:
    """The digest of a file's content, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
