"""Names of runs that people can type, and what tells runs apart."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xcbench.errors import InputError
from xcbench.files import write_json

if TYPE_CHECKING:
    from xcbench.runner.store import Record

LATEST = "latest"
"""The name of the run that finished last."""
_LONGEST_NAME = 100


def check_run_name(name: str) -> str:
    """Return the name of a run, or raise an `InputError` if it cannot be one."""
    is_plain = name == name.strip() and name.isprintable() and not set(name) & set("@/\\")
    if not is_plain or not 0 < len(name) <= _LONGEST_NAME:
        raise InputError(f"a run's name is a line of up to {_LONGEST_NAME} characters without @ and /, got {name!r}")
    if name == LATEST:
        raise InputError(f"{LATEST!r} names the run that finished last; choose another name")
    return name


def renamed(record: Record, name: str) -> Record:
    """Give a stored run a name; it loses an earlier one."""
    record = dataclasses.replace(record, name=check_run_name(name))
    write_json(record.folder / "record.json", record.to_json())
    return record


def named_runs(records: Sequence[Record], wanted: str) -> list[Record]:
    """Return the runs that a name fits, the newest first.

    Parameters
    ----------
    records
        The runs to choose from.
    wanted
        `latest`, the name that a run was given, or METHOD@DATASET.
    """
    newest_first = sorted(records, key=lambda record: record.finished, reverse=True)
    if wanted == LATEST:
        return newest_first[:1]

    method, at, dataset = wanted.partition("@")
    if at:
        return [record for record in newest_first if record.method == method and record.dataset == dataset]
    return [record for record in newest_first if record.name == wanted]


def differences(records: Sequence[Record]) -> list[str]:
    """Say of each run what tells it from the others: settings, ablations, augmentations, seed.

    Runs that agree in all of these are told apart by the time at which they finished.

    Parameters
    ----------
    records
        The runs.
    """
    traits = _with_all_settings(records)
    differing = [trait for trait in _keys(traits) if len({each.get(trait) for each in traits}) > 1]
    texts = [", ".join(_words(trait, each.get(trait)) for trait in differing) for each in traits]
    if len(set(texts)) == len(records):
        return texts

    joined = []
    for text, record in zip(texts, records, strict=True):
        finished = f"finished {record.finished}"
        joined.append(", ".join(filter(None, (text, finished))))
    return joined


def _traits(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "method": record.method,
        "on": record.dataset,
        "ablation": " ".join(record.ablations),
        "augmentation": " ".join(record.augment),
        "reranker": record.rerank,
        "preset": record.preset,
        "members": record.ensemble,
        "seed": record.seed,
    }


def _with_all_settings(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the traits of each run, with every setting that one of the runs was given."""
    from xcbench.plugins.config import leaves

    changed = sorted({key for record in records for key in record.overrides})
    result = []
    for record in records:
        traits = _traits(record)
        settings = leaves(record.config)
        for key in changed:
            if key in settings:
                traits[f"{key}="] = json.dumps(settings[key])
        result.append(traits)
    return result


def _keys(traits: Sequence[dict[str, Any]]) -> list[str]:
    """Return the keys of all dictionaries, in the order in which they are found."""
    return list(dict.fromkeys(key for each in traits for key in each))


def _words(trait: str, value: Any) -> str:
    """Return a trait as people say it: `nograph`, `no ablation`, `seed 1`, `dim=64`."""
    if trait.endswith("="):
        if value is None:
            return f"no {trait[:-1]}"
        return f"{trait}{value}"
    if not value and trait != "seed":
        return f"no {trait}"
    if trait in ("method", "ablation", "augmentation", "reranker"):
        return str(value)
    if trait == "name":
        return f"{value!r}"
    if trait == "members":
        return "1 member" if value == 1 else f"{value} members"
    return f"{trait} {value}"
