"""The verb `list`: what there is, by kind."""

import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from xcbench.cli.console import columns, print_json, show_log
from xcbench.cli.options import JsonFlag

if TYPE_CHECKING:
    from xcbench.runner.store import Record

Kind = Literal["methods", "ablations", "augmentations", "rerankers", "datasets", "tables", "runs"]

_log = logging.getLogger(__name__)


def list_(
    kind: Kind,
    *,
    method: str | None = None,
    store: str | None = None,
    json_: JsonFlag = False,
) -> None:
    """List what can be named in other commands.

    Parameters
    ----------
    kind
        What to list.
    method
        Only the ablations of this method, which may also be a file.
    store
        The folder of run records, for runs; by default in XCBENCH_HOME.
    json_
        Print a JSON list of objects.
    """
    from xcbench.errors import InputError

    show_log()
    if method is not None and kind != "ablations":
        raise InputError(f"--method goes with `list ablations`, not with `list {kind}`")

    rows = _rows(kind, method, store)
    if json_:
        print_json(rows)
    elif rows:
        cells = [[_cell(value) for value in row.values()] for row in rows]
        print(columns(list(rows[0]), cells))
    else:
        print(f"there are no {kind} yet")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        changes = [f"{key}: {json.dumps(old)} -> {json.dumps(new)}" for key, (old, new) in value.items()]
        return ", ".join(changes)
    return str(value)


def _rows(kind: Kind, method: str | None, store: str | None) -> list[dict[str, Any]]:
    """Return an object per line of the list; all have the same keys."""
    if kind == "methods":
        return _plugins("method")
    if kind == "augmentations":
        return _plugins("augmentation")
    if kind == "rerankers":
        return _plugins("reranker")
    if kind == "ablations":
        return _ablations(method)
    if kind == "datasets":
        return _datasets()
    if kind == "tables":
        return _tables()
    return _runs(store)


def _plugins(kind: Literal["method", "augmentation", "reranker"]) -> list[dict[str, Any]]:
    from xcbench.plugins.registry import entries

    rows = []
    for entry in entries(kind):
        row = {"name": entry.name, "title": entry.title, "origin": entry.origin, "note": entry.problem}
        rows.append(row)
    return rows


def _ablations(method: str | None) -> list[dict[str, Any]]:
    from xcbench.plugins.config import changes
    from xcbench.plugins.registry import get_method

    names = [method] if method is not None else _usable_methods()

    rows = []
    for method_name in names:
        method_type = get_method(method_name)
        for name, ablation in method_type.ablations.items():
            changed = changes(method_type.config_type, ablation.patch)
            row = {
                "method": method_type.name,
                "ablation": name,
                "title in the paper": ablation.title,
                "changes": {change.key: (change.old, change.new) for change in changed},
            }
            rows.append(row)
    return rows


def _usable_methods() -> Iterator[str]:
    """Yield the methods that can be loaded; for the others a warning says why they are missing from the list."""
    from xcbench.plugins.registry import entries, unavailable_reason

    for entry in entries("method"):
        reason = unavailable_reason(entry)
        if reason:
            _log.warning("%s is %s", entry.name, reason)
        else:
            yield entry.name


def _datasets() -> list[dict[str, Any]]:
    from xcbench.data.catalog import dataset_entries

    rows = []
    for entry in dataset_entries():
        row = {"name": entry.name, "origin": entry.origin, "folder": str(entry.folder)}
        rows.append(row)
    return rows


def _tables() -> list[dict[str, Any]]:
    from xcbench.report import experiments

    return [{"name": name, "title": experiments.load(name).title} for name in experiments.names()]


def _runs(store: str | None) -> list[dict[str, Any]]:
    from xcbench.runner.store import Store

    return [_run(record) for record in Store(store).records()]


def _run(record: "Record") -> dict[str, Any]:
    overrides = [f"{key}={value}" for key, value in record.overrides.items()]

    precision = None
    if "P@1" in record.metrics:
        precision = round(record.metrics["P@1"].value, 2)

    return {
        "run": record.id,
        "ablation": "+".join(record.ablations),
        "augment": "+".join(record.augment),
        "rerank": record.rerank or "",
        "set": ", ".join(overrides),
        "ensemble": record.ensemble,
        "dataset": record.dataset,
        "seed": record.seed,
        "P@1": precision,
        "finished": record.finished,
    }
