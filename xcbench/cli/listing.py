"""The verb `list`: what there is, by kind."""

import json
import logging
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from xcbench.cli.console import columns, show_log

Kind = Literal["methods", "ablations", "augmentations", "rerankers", "datasets", "tables", "runs"]
_log = logging.getLogger(__name__)


def list_(
    kind: Kind,
    *,
    method: str | None = None,
    store: str | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
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
        print(json.dumps(rows, indent=2))
    elif not rows:
        print(f"there are no {kind} yet")
    else:
        print(columns(list(rows[0]), [[_text(value) for value in row.values()] for row in rows]))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {json.dumps(old)} -> {json.dumps(new)}" for key, (old, new) in value.items())
    return "" if value is None else str(value)


def _rows(kind: Kind, method: str | None, store: str | None) -> list[dict[str, Any]]:
    if kind == "methods":
        return _plugins("method")
    if kind == "augmentations":
        return _plugins("augmentation")
    if kind == "rerankers":
        return _plugins("reranker")
    if kind == "ablations":
        return _ablations(method)
    if kind == "datasets":
        from xcbench.data.catalog import dataset_entries

        return [{"name": e.name, "origin": e.origin, "folder": str(e.folder)} for e in dataset_entries()]
    if kind == "tables":
        from xcbench.report import experiments

        return [{"name": name, "title": experiments.load(name).title} for name in experiments.names()]
    return _runs(store)


def _plugins(kind: Literal["method", "augmentation", "reranker"]) -> list[dict[str, Any]]:
    from xcbench.plugins.registry import entries

    return [{"name": e.name, "title": e.title, "origin": e.origin, "note": e.problem} for e in entries(kind)]


def _ablations(method: str | None) -> list[dict[str, Any]]:
    from xcbench.plugins.config import changes
    from xcbench.plugins.registry import get_method

    return [
        {
            "method": found.name,
            "ablation": name,
            "title in the paper": ablation.title,
            "changes": {c.key: (c.old, c.new) for c in changes(found.config_type, ablation.patch)},
        }
        for found in map(get_method, _usable_methods() if method is None else [method])
        for name, ablation in found.ablations.items()
    ]


def _usable_methods() -> Iterator[str]:
    """Those that can be asked; what is the matter with the others is said, so that nobody misses them silently."""
    from xcbench.plugins.registry import entries, unavailable_reason

    for entry in entries("method"):
        if problem := unavailable_reason(entry):
            _log.warning("%s is %s", entry.name, problem)
        else:
            yield entry.name


def _runs(store: str | None) -> list[dict[str, Any]]:
    from xcbench.runner.store import Store

    return [
        {
            "run": record.id,
            "ablation": "+".join(record.ablations),
            "augment": "+".join(record.augment),
            "rerank": record.rerank or "",
            "set": ", ".join(f"{key}={value}" for key, value in record.overrides.items()),
            "ensemble": record.ensemble,
            "dataset": record.dataset,
            "seed": record.seed,
            "P@1": round(record.metrics["P@1"].value, 2) if "P@1" in record.metrics else None,
            "finished": record.finished,
        }
        for record in Store(store).records()
    ]
