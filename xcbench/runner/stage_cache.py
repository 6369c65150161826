"""The stage cache: each finished stage is one folder, named by what it was computed from.

Finished means that the folder exists: it is moved into place whole. A lock that dies with its process keeps two
processes from computing the same stage; checkpoints of an unfinished one wait beside it for the next attempt.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock

from xcbench.disk import clear_remains, folder_size, lock_for, locked, readable_disk_errors
from xcbench.errors import DataError
from xcbench.files import atomic_folder, home, write_json
from xcbench.plugins.codec import load_values, save_values
from xcbench.runner.environment import code_digest
from xcbench.runner.meter import Meter

_log = logging.getLogger(__name__)

ATTEMPT = "attempt.json"
"""Next to a stage's checkpoints: when the process that writes them began, and what earlier ones had spent."""


@dataclass(frozen=True)
class StageNote:
    """What is known of a finished stage beside its values."""

    name: str
    owner: str
    key: str
    inputs: Mapping[str, Any]
    """Everything that the key is made of, for people."""
    seconds: float
    """Of the process that finished it, and of earlier ones as far as it went on from their checkpoints."""
    peak_memory: int
    created: float
    code: str


@dataclass(frozen=True)
class CachedStage:
    """One entry as `xcbench cache ls` shows it."""

    note: StageNote
    folder: Path
    size: int


class StageCache:
    """Finished stages in a folder; the default one lives in `XCBENCH_HOME`."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = home() / "stages" if folder is None else Path(folder).expanduser().absolute()

    def path(self, owner: str, name: str, key: str) -> Path:
        return self.folder / f"{owner}.{name}-{key}"

    def checkpoints(self, owner: str, name: str, key: str) -> Path:
        """Where a stage at work keeps its checkpoints."""
        return self.folder / f"{owner}.{name}-{key}.checkpoints"

    def note(self, owner: str, name: str, key: str) -> StageNote | None:
        """The note of a stage if it is finished."""
        return _read_note(self.path(owner, name, key))

    def read(self, owner: str, name: str, key: str) -> tuple[StageNote, dict[str, Any]] | None:
        """Note and values of a stage if it is finished; a damaged one counts as missing, and is said to be."""
        folder = self.path(owner, name, key)
        note = _read_note(folder)
        if note is None:
            return None
        try:
            return note, load_values(folder)
        except DataError as error:
            _log.warning("computing stage %s again: %s", name, error)
            return None

    def compute(
        self,
        owner: str,
        name: str,
        key: str,
        inputs: Mapping[str, Any],
        work: Callable[[Path], Mapping[str, Any]],
        redo: bool = False,
    ) -> tuple[StageNote, dict[str, Any], bool]:
        """Compute a stage unless another process just did; the last value says whether this one did.

        `work` is given a folder for checkpoints that survives until the stage is finished.
        """
        folder = self.path(owner, name, key)
        with locked(folder, f"stage {name}"):
            if not redo and (done := self.read(owner, name, key)):
                return *done, False
            checkpoints = self.checkpoints(owner, name, key)
            _prepare(folder, checkpoints, keep_checkpoints=not redo)
            earlier = _begin_attempt(checkpoints)
            with Meter() as meter:
                values = work(checkpoints)
            if not isinstance(values, Mapping):
                raise TypeError(f"stage {name} must return a dict of values, got {type(values).__name__}")
            seconds = earlier + meter.seconds
            note = StageNote(name, owner, key, inputs, seconds, meter.peak_memory, time.time(), code_digest())
            with readable_disk_errors(self.folder), atomic_folder(folder) as part:
                save_values(part, values)
                write_json(part / "stage.json", asdict(note))
            shutil.rmtree(checkpoints, ignore_errors=True)
        return note, load_values(folder), True

    def entries(self) -> list[CachedStage]:
        """All finished stages, newest first."""
        found = [
            CachedStage(note, path.parent, folder_size(path.parent))
            for path in self.folder.glob("[!.]*/stage.json")
            if (note := _read_note(path.parent))
        ]
        return sorted(found, key=lambda entry: -entry.note.created)

    def remains(self, owner: str | None = None) -> list[Path]:
        """What killed processes left, of one method or of all: half-written folders, checkpoints never finished."""
        if not self.folder.is_dir():
            return []
        left = (p for p in self.folder.iterdir() if p.name.endswith((".part", ".old", ".checkpoints")))
        return sorted(p for p in left if owner is None or _stage_of(p).startswith(f"{owner}."))

    def remove(self, path: Path) -> bool:
        """Delete an entry or a remainder, unless a living process is at work on it."""
        lock = lock_for(path.with_name(_stage_of(path)))
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            return False
        try:
            # Out of sight in one step, so that no reader meets half a folder.
            gone = path if path.name.startswith(".") else path.rename(path.with_name(f".{path.name}.removed.old"))
            shutil.rmtree(gone)
        finally:
            lock.release()
        return True


def _prepare(folder: Path, checkpoints: Path, keep_checkpoints: bool) -> None:
    """Clear what an earlier owner of the lock left half-written, and make the folder for checkpoints."""
    clear_remains(folder)
    if not keep_checkpoints:
        shutil.rmtree(checkpoints, ignore_errors=True)
    checkpoints.mkdir(parents=True, exist_ok=True)


def _begin_attempt(checkpoints: Path) -> float:
    """Note that a process sets to work; returns the seconds that earlier ones spent until their last checkpoints."""
    record = checkpoints / ATTEMPT
    try:
        last = json.loads(record.read_text("utf-8"))
        saved = max(path.stat().st_mtime for path in checkpoints.rglob("*") if path.is_file())
        seconds = float(last["earlier"]) + max(saved - float(last["started"]), 0.0)
    except (OSError, ValueError, TypeError, KeyError):
        seconds = 0.0
    write_json(record, {"started": time.time(), "earlier": seconds})
    return seconds


def _read_note(folder: Path) -> StageNote | None:
    try:
        return StageNote(**json.loads((folder / "stage.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _stage_of(path: Path) -> str:
    """The stage that a folder or one of its remains belongs to."""
    name = path.name.removesuffix(".checkpoints")
    return name[1:].rsplit(".", 2)[0] if name.startswith(".") else name
