"""The stage cache: each finished stage is one folder, named by what it was computed from.

Finished means that the folder exists: it is moved into place as a whole. A lock that ends with its process keeps two
processes from computing the same stage. The checkpoints of an unfinished stage stay next to it for the next attempt.
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
from xcbench.runner.meter import Meter
from xcbench.threads import thread_count

_log = logging.getLogger(__name__)

ATTEMPT = "attempt.json"
"""Next to a stage's checkpoints: when the process that writes them began, what earlier ones had spent, which code."""

_REMAINS = (".part", ".old", ".checkpoints")
"""How the names of unfinished folders end."""


@dataclass(frozen=True)
class StageNote:
    """What is known of a finished stage besides its values."""

    name: str
    owner: str
    key: str
    inputs: Mapping[str, Any]
    """Everything that the key is made of, for people."""
    seconds: float
    """Of the process that finished it, and of earlier ones up to the checkpoints from which it continued."""
    peak_memory: int
    created: float
    code: str
    """The digest of the code that can change what the stage makes; see `runner.source_code`."""
    peak_device_memory: int = 0
    """Of a GPU. Older notes do not have it."""
    threads: int | None = None
    """How many it was computed with. Older notes do not have this, nor the next."""
    other_load: float | None = None
    """How many cores other processes kept busy meanwhile, on average."""


@dataclass(frozen=True)
class CachedStage:
    """One entry as `xcbench cache ls` shows it."""

    note: StageNote
    folder: Path
    size: int


class StageCache:
    """Finished stages in a folder.

    Parameters
    ----------
    folder
        Where the stages are; by default in `XCBENCH_HOME`.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        if folder is None:
            self.folder = home() / "stages"
        else:
            self.folder = Path(folder).expanduser().absolute()

    def path(self, owner: str, name: str, key: str) -> Path:
        """Return the folder of a stage, whether it exists or not."""
        return self.folder / f"{owner}.{name}-{key}"

    def checkpoints(self, owner: str, name: str, key: str) -> Path:
        """Return the folder in which a stage keeps its checkpoints while it is computed."""
        return self.folder / f"{owner}.{name}-{key}.checkpoints"

    def note(self, owner: str, name: str, key: str, code: str | None = None) -> StageNote | None:
        """Return the note of a stage if it is finished. One that other code has made counts as missing."""
        note = _read_note(self.path(owner, name, key))
        if note is None or code not in (None, note.code):
            return None
        return note

    def read(
        self,
        owner: str,
        name: str,
        key: str,
        code: str | None = None,
    ) -> tuple[StageNote, dict[str, Any]] | None:
        """Return note and values of a stage if it is finished.

        One that other code has made, or, with a warning, one that is damaged, counts as missing.
        """
        note = self.note(owner, name, key, code)
        if note is None:
            return None

        folder = self.path(owner, name, key)

        try:
            values = load_values(folder)
        except DataError as error:
            _log.warning("computing stage %s again: %s", name, error)
            return None
        return note, values

    def compute(
        self,
        owner: str,
        name: str,
        key: str,
        inputs: Mapping[str, Any],
        work: Callable[[Path], Mapping[str, Any]],
        code: str,
        redo: bool = False,
    ) -> tuple[StageNote, dict[str, Any], bool]:
        """Compute a stage, unless another process has just finished it.

        Returns note, values, and whether this process computed them.

        Parameters
        ----------
        owner
            The method, augmentation or reranker that the stage belongs to.
        name
            The stage's name.
        key
            What identifies the stage's inputs.
        inputs
            What the key is made of, to be kept with the values.
        work
            Computes the values. It is given a folder for checkpoints, which is kept until the stage is finished.
        code
            The digest of the code that computes it.
        redo
            Compute the stage although it is finished.
        """
        folder = self.path(owner, name, key)
        with locked(folder, f"stage {name}"):
            if not redo:
                finished = self.read(owner, name, key, code)
                if finished is not None:
                    return *finished, False

            checkpoints = self.checkpoints(owner, name, key)
            continues = not redo and _code_of_attempt(checkpoints) == code
            _prepare(folder, checkpoints, continues)
            earlier_seconds = _begin_attempt(checkpoints, code)
            with Meter() as meter:
                values = work(checkpoints)
            if not isinstance(values, Mapping):
                raise TypeError(f"stage {name} must return a dict of values, got {type(values).__name__}")

            note = StageNote(
                name=name,
                owner=owner,
                key=key,
                inputs=inputs,
                seconds=earlier_seconds + meter.seconds,
                peak_memory=meter.peak_memory,
                created=time.time(),
                code=code,
                peak_device_memory=meter.peak_device_memory,
                threads=thread_count(),
                other_load=meter.other_load,
            )
            self._write(folder, note, values)
            shutil.rmtree(checkpoints, ignore_errors=True)

        return note, load_values(folder), True

    def _write(self, folder: Path, note: StageNote, values: Mapping[str, Any]) -> None:
        with readable_disk_errors(self.folder), atomic_folder(folder) as part:
            save_values(part, values)
            write_json(part / "stage.json", asdict(note))

    def entries(self) -> list[CachedStage]:
        """Return all finished stages, newest first."""
        entries = []
        for path in self.folder.glob("[!.]*/stage.json"):
            folder = path.parent
            note = _read_note(folder)
            if note is not None:
                entries.append(CachedStage(note, folder, folder_size(folder)))

        return sorted(entries, key=lambda entry: -entry.note.created)

    def remains(self, owner: str | None = None) -> list[Path]:
        """Return what killed processes left: half-written folders, and checkpoints of unfinished stages.

        `owner` restricts them to one method.
        """
        if not self.folder.is_dir():
            return []

        paths = [path for path in self.folder.iterdir() if path.name.endswith(_REMAINS)]
        if owner is not None:
            paths = [path for path in paths if _stage_of(path).startswith(f"{owner}.")]
        return sorted(paths)

    def remove(self, path: Path) -> bool:
        """Delete an entry or a remainder; returns False if a living process is at work on it, so that it stays."""
        lock = lock_for(path.with_name(_stage_of(path)))
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            return False

        try:
            if not path.name.startswith("."):
                # Renamed first, which is one step, so that no reader meets half a folder.
                path = path.rename(path.with_name(f".{path.name}.removed.old"))
            shutil.rmtree(path)
        finally:
            lock.release()
        return True


def _prepare(folder: Path, checkpoints: Path, keep_checkpoints: bool) -> None:
    """Clear what an earlier owner of the lock left half-written, and make the folder for checkpoints."""
    clear_remains(folder)
    if not keep_checkpoints:
        shutil.rmtree(checkpoints, ignore_errors=True)
    checkpoints.mkdir(parents=True, exist_ok=True)


def _code_of_attempt(checkpoints: Path) -> str | None:
    """Return which code wrote the checkpoints, if there are any."""
    try:
        attempt = json.loads((checkpoints / ATTEMPT).read_text("utf-8"))
        return str(attempt["code"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _begin_attempt(checkpoints: Path, code: str) -> float:
    """Write down that an attempt begins; returns the seconds that earlier ones spent until their last checkpoints."""
    record = checkpoints / ATTEMPT
    try:
        seconds = _seconds_spent(record, checkpoints)
    except (OSError, ValueError, TypeError, KeyError):
        seconds = 0.0
    write_json(record, {"started": time.time(), "earlier": seconds, "code": code})
    return seconds


def _seconds_spent(record: Path, checkpoints: Path) -> float:
    """Return the seconds of all earlier attempts, the last one counted up to its last checkpoint."""
    last_attempt = json.loads(record.read_text("utf-8"))
    last_write = max(path.stat().st_mtime for path in checkpoints.rglob("*") if path.is_file())
    return float(last_attempt["earlier"]) + max(last_write - float(last_attempt["started"]), 0.0)


def _read_note(folder: Path) -> StageNote | None:
    try:
        text = (folder / "stage.json").read_text("utf-8")
        return StageNote(**json.loads(text))
    except (OSError, ValueError, TypeError):
        return None


def _stage_of(path: Path) -> str:
    """Return the folder name of the stage that a folder or one of its remains belongs to."""
    name = path.name.removesuffix(".checkpoints")
    if not name.startswith("."):
        return name
    # A temporary folder is called ".STAGE.RANDOM.part" or ".STAGE.RANDOM.old".
    return name[1:].rsplit(".", 2)[0]
