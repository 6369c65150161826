"""The verbs `cache ls` and `cache clean`: list finished stages, and delete them."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import cyclopts
from cyclopts import Parameter

from xcbench.cli.console import columns, duration, show_log, size
from xcbench.cli.options import Flag

if TYPE_CHECKING:
    from xcbench.runner.stage_cache import CachedStage, StageCache

app = cyclopts.App(name="cache", help="Look at the stages that runs share, or delete them.")

_SECONDS_PER_DAY = 86400


@app.command
def ls() -> None:
    """List finished stages, newest first, and what killed runs left."""
    show_log()
    from xcbench.disk import folder_size
    from xcbench.runner.stage_cache import StageCache

    cache = StageCache()
    entries = cache.entries()
    remains = cache.remains()

    if entries:
        header = ("method", "stage", "key", "size", "took", "age")
        print(columns(header, [_row(entry) for entry in entries], "   rrr"))

    total = sum(entry.size for entry in entries)
    print(f"{len(entries)} stages, {size(total)}, in {cache.folder}")

    if remains:
        left = sum(folder_size(path) for path in remains)
        print(f"unfinished: {len(remains)} folders, {size(left)} (checkpoints of killed runs continue from there)")


def _row(entry: "CachedStage") -> tuple[str, ...]:
    note = entry.note
    return (
        note.owner,
        note.name,
        note.key,
        size(entry.size),
        duration(note.seconds),
        _age(note.created),
    )


def _age(created: float) -> str:
    days = (time.time() - created) / _SECONDS_PER_DAY
    if days >= 1:
        return f"{days:.0f} d"
    return f"{24 * days:.0f} h"


@app.command
def clean(
    *,
    method: str | None = None,
    older_than: float | None = None,
    unfinished: Flag = False,
    all_: Annotated[bool, Parameter(name="--all", negative=())] = False,
) -> None:
    """Delete cached stages; run records stay. Stages that a living process is computing are left alone.

    Parameters
    ----------
    method
        Delete the finished stages of this method; with --unfinished, its unfinished ones, too.
    older_than
        Delete only what is older than so many days.
    unfinished
        Delete what killed runs left, checkpoints included.
    all_
        Delete everything.
    """
    show_log()
    from xcbench.errors import InputError
    from xcbench.runner.stage_cache import StageCache

    finished = all_ or method is not None or older_than is not None
    if not (finished or unfinished):
        raise InputError("say what to delete: --all, --unfinished, --method NAME or --older-than DAYS")
    if older_than is not None and not older_than >= 0:
        raise InputError(f"--older-than is a number of days from 0 up, got {older_than:g}")

    cache = StageCache()
    newest = time.time() - _SECONDS_PER_DAY * (older_than or 0)

    folders = []
    if finished:
        folders += _finished_stages(cache, method, newest)
    if all_ or unfinished:
        folders += [path for path in cache.remains(method) if path.stat().st_mtime <= newest]
    _delete(cache, folders)


def _finished_stages(cache: "StageCache", method: str | None, newest: float) -> list[Path]:
    """Return the folders of the finished stages of a method (None: of all), made at `newest` or before."""
    folders = []
    for entry in cache.entries():
        if method is not None and entry.note.owner != method:
            continue
        if entry.note.created <= newest:
            folders.append(entry.folder)
    return folders


def _delete(cache: "StageCache", folders: list[Path]) -> None:
    """Delete folders of the cache, and print how much that was."""
    from xcbench.disk import folder_size, readable_disk_errors

    deleted = 0
    freed = 0
    with readable_disk_errors(cache.folder):
        for folder in folders:
            folder_bytes = folder_size(folder)
            if cache.remove(folder):
                deleted += 1
                freed += folder_bytes

    in_use = ""
    if deleted < len(folders):
        in_use = f", {len(folders) - deleted} in use left alone"
    print(f"deleted {deleted} folders, {size(freed)}{in_use}")
