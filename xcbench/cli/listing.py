"""The verb `list`: what there is, by kind."""

import json
from typing import TYPE_CHECKING, Any, Literal

from xcbench.cli.console import columns, print_json, show_log
from xcbench.cli.options import JsonFlag

if TYPE_CHECKING:
    from xcbench.runner.store import Record

Kind = Literal["methods", "ablations", "augmentations", "rerankers", "datasets", "metrics", "tables", "runs"]

_KINDS: dict[Kind, str] = {
    "methods": "what --method takes",
    "ablations": "named variations of the methods: --ablation",
    "augmentations": "changes of the training data: --augment",
    "rerankers": "changes of the predictions: --rerank",
    "datasets": "what --dataset takes, embedded and imported ones, with their sizes",
    "metrics": "what --metrics takes",
    "tables": "tables and figures of papers: xcbench table NAME",
    "runs": "what is in the store: --run",
}


def list_(
    kind: Kind | None = None,
    *,
    method: str | None = None,
    store: str | None = None,
    json_: JsonFlag = False,
) -> None:
    """List what can be named in other commands.

    Parameters
    ----------
    kind
        What to list; without it, the kinds there are.
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
        raise InputError("--method goes with `list ablations` only")

    rows = _rows(kind, method, store)
    if json_:
        print_json(rows)
    elif rows:
        print(_table(rows))
    else:
        print(f"there are no {kind} yet")


def _table(rows: list[dict[str, Any]]) -> str:
    """Return aligned columns; one that is empty in every row is left out."""
    names = [name for name in rows[0] if any(_cell(row[name]) for row in rows)]
    cells = [[_cell(row[name]) for name in names] for row in rows]
    return columns(names, cells)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        changes = [f"{key}: {json.dumps(old)} -> {json.dumps(new)}" for key, (old, new) in value.items()]
        return ", ".join(changes)
    return str(value)


def _rows(kind: Kind | None, method: str | None, store: str | None) -> list[dict[str, Any]]:
    """Return an object per line of the list; all have the same keys."""
    if kind is None:
        return [{"list": name, "what it shows": text} for name, text in _KINDS.items()]
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
    if kind == "metrics":
        return _metrics()
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
    from xcbench.plugins.ablations import ablations_of, all_ablations

    if method is not None:
        return ablations_of(method)
    return all_ablations()


def _datasets() -> list[dict[str, Any]]:
    from xcbench.data.catalog import dataset_entries

    rows = []
    for entry in dataset_entries():
        row: dict[str, Any] = {"name": entry.name, "origin": entry.origin}
        row |= dict.fromkeys(("train", "test", "labels"))
        sizes = entry.sizes()
        if sizes is not None:
            row |= {"train": sizes.train, "test": sizes.test, "labels": sizes.labels}
        rows.append(row | {"folder": str(entry.folder)})
    return rows


def _metrics() -> list[dict[str, Any]]:
    from xcbench.evaluation.registry import METRICS, SYNONYMS, TITLES

    rows = []
    for family in METRICS:
        synonyms = [synonym for synonym, name in SYNONYMS.items() if name == family.name]
        example = family.name
        if family.needs_k:
            example = f"{family.name}@5"
        row = {"metric": example, "title": TITLES.get(family.name, ""), "also known as": ", ".join(synonyms)}
        rows.append(row)
    return rows


def _tables() -> list[dict[str, Any]]:
    from xcbench.report import experiments

    return [{"name": name, "title": experiments.load(name).title} for name in experiments.names()]


def _runs(store: str | None) -> list[dict[str, Any]]:
    from xcbench.runner.store import Store

    newest_first = sorted(Store(store).records(), key=lambda record: record.finished, reverse=True)
    return [_run(record) for record in newest_first]


def _run(record: "Record") -> dict[str, Any]:
    overrides = [f"{key}={value}" for key, value in record.overrides.items()]

    precision = None
    if "P@1" in record.metrics:
        precision = round(record.metrics["P@1"].value, 2)

    return {
        "run": record.id,
        "name": record.name or "",
        "ablation": "+".join(record.ablations),
        "augment": "+".join(record.augment),
        "rerank": record.rerank or "",
        "preset": record.preset or "",
        "set": ", ".join(overrides),
        "ensemble": record.ensemble,
        "dataset": record.dataset,
        "seed": record.seed,
        "P@1": precision,
        "finished": record.finished,
    }
