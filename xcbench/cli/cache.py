"""The verbs `cache ls` and `cache clean`: what finished stages take, and how to be rid of them."""

import time
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from xcbench.cli.console import columns, duration, show_log, size

app = cyclopts.App(name="cache", help="Look at the stages that runs share, or delete them.")


@app.command
def ls() -> None:
    """List finished stages, newest first, and what killed runs left."""
    show_log()
    from xcbench.disk import folder_size
    from xcbench.runner.stage_cache import StageCache

    cache = StageCache()
    entries, remains = cache.entries(), cache.remains()
    rows = [
        (e.note.owner, e.note.name, e.note.key, size(e.size), duration(e.note.seconds), _age(e.note.created))
        for e in entries
    ]
    if rows:
        print(columns(("method", "stage", "key", "size", "took", "age"), rows, "   rrr"))
    left = sum(map(folder_size, remains))
    print(f"{len(entries)} stages, {size(sum(e.size for e in entries))}, in {cache.folder}")
    if remains:
        print(f"unfinished: {len(remains)} folders, {size(left)} (checkpoints of killed runs continue from there)")


@app.command
def clean(
    *,
    method: str | None = None,
    older_than: float | None = None,
    unfinished: Annotated[bool, Parameter(negative=())] = False,
    all_: Annotated[bool, Parameter(name="--all", negative=())] = False,
) -> None:
    """Delete cached stages; run records stay. What a living process works on is left alone.

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
    from xcbench.disk import folder_size, readable_disk_errors
    from xcbench.errors import InputError
    from xcbench.runner.stage_cache import StageCache

    if not (all_ or unfinished or method is not None or older_than is not None):
        raise InputError("say what to delete: --all, --unfinished, --method NAME or --older-than DAYS")
    if older_than is not None and not older_than >= 0:
        raise InputError(f"--older-than is a number of days from 0 up, got {older_than:g}")
    cache = StageCache()
    oldest = time.time() - 86400 * (older_than or 0)
    finished = all_ or method is not None or older_than is not None
    doomed = [
        entry.folder
        for entry in cache.entries()
        if finished and method in (None, entry.note.owner) and entry.note.created <= oldest
    ]
    if all_ or unfinished:
        doomed += [path for path in cache.remains(method) if path.stat().st_mtime <= oldest]
    freed = kept = 0
    with readable_disk_errors(cache.folder):
        for path in doomed:
            amount = folder_size(path)
            removed = cache.remove(path)
            freed += amount * removed
            kept += not removed
    in_use = f", {kept} in use left alone" if kept else ""
    print(f"deleted {len(doomed) - kept} folders, {size(freed)}{in_use}")


def _age(created: float) -> str:
    days = (time.time() - created) / 86400
    return f"{days:.0f} d" if days >= 1 else f"{24 * days:.0f} h"
