"""Every ablation of every method, as a list that is shown at once.

Ablations are attributes of classes, so the methods must be imported to read them, and with them torch: that takes
seconds. The list is therefore kept in XCBENCH_HOME for as long as no source file changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

import xcbench
from xcbench.files import atomic_file, home
from xcbench.plugins import registry

_log = logging.getLogger(__name__)


def ablations_of(method: str) -> list[dict[str, Any]]:
    """Return the ablations of one method, each with the settings that it changes.

    Parameters
    ----------
    method
        The name of a method, or the path of a file that registers one.
    """
    from xcbench.plugins.config import changes

    method_type = registry.get_method(method)
    rows = []
    for name, ablation in method_type.ablations.items():
        changed = changes(method_type.config_type, ablation.patch)
        row = {
            "method": method_type.name,
            "ablation": name,
            "title in the paper": ablation.title,
            "changes": {change.key: [change.old, change.new] for change in changed},
        }
        rows.append(row)
    return rows


def all_ablations() -> list[dict[str, Any]]:
    """Return the ablations of all methods that can be loaded; a warning says why others are missing."""
    path = home() / "lists" / f"ablations-{_sources_digest()}.json"
    listed = _read(path)
    if listed is None:
        listed = _list_all()
        # Where the folder cannot be written, listing merely takes as long the next time.
        with contextlib.suppress(OSError):
            _keep_only(path, listed)

    for name, reason in listed["missing"].items():
        _log.warning("%s is %s", name, reason)
    rows: list[dict[str, Any]] = listed["rows"]
    return rows


def _list_all() -> dict[str, Any]:
    rows = []
    missing = {}
    for entry in registry.entries("method"):
        reason = registry.unavailable_reason(entry)
        if reason:
            missing[entry.name] = reason
        else:
            rows += ablations_of(entry.name)
    return {"rows": rows, "missing": missing}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        listed = json.loads(path.read_text("utf-8"))
        if isinstance(listed["rows"], list) and isinstance(listed["missing"], dict):
            return dict(listed)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _keep_only(path: Path, listed: dict[str, Any]) -> None:
    """Write the list; those of older sources go."""
    with atomic_file(path) as part:
        part.write_text(json.dumps(listed), "utf-8")
    for older in path.parent.glob("ablations-*.json"):
        if older != path:
            older.unlink(missing_ok=True)


def _sources_digest() -> str:
    """Return what changes with any file of ours, and with the packages that methods come from or miss."""
    digest = hashlib.sha256(f"{sys.version} {xcbench.__version__}".encode())
    for entry in registry.entries("method"):
        digest.update(f"{entry.name} {entry.origin} {entry.problem}".encode())
    for folder in (Path(xcbench.__file__).parent, *registry.method_folders()):
        for path in sorted(folder.rglob("*.py")):
            state = path.stat()
            digest.update(f"{path} {state.st_size} {state.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
