"""What has run on a dataset: every method as it is, and every variation of one, by its newest runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from xcbench.report.costs import Conditions, conditions
from xcbench.runner.source_code import is_by_other_code
from xcbench.runner.store import Record

Kind = Literal["method", "added", "augmented", "reranked", "ensemble", "ablation", "settings"]
KINDS: dict[Kind, str] = {
    "method": "methods as they are",
    "added": "predictions of other programs",
    "augmented": "with an augmentation",
    "reranked": "reranked",
    "ensemble": "ensembles",
    "ablation": "ablations",
    "settings": "other settings",
}
"""Every kind of variant, with what the readers of reports are told."""


@dataclass(frozen=True)
class Variant:
    """A method with whatever was varied of it, and its newest runs on one dataset: one per seed."""

    name: str
    kind: Kind
    records: tuple[Record, ...]

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.records[0].method

    @property
    def conditions(self) -> frozenset[Conditions]:
        """What its times were measured under."""
        return frozenset(conditions(record) for record in self.records)

    @property
    def is_by_other_code(self) -> bool:
        """Whether other code than today's made one of its runs."""
        return any(is_by_other_code(record) for record in self.records)


def name_of(record: Record) -> str:
    """Return a run in a few words: method, ablations, augmentations, reranker and settings that were overridden.

    Parameters
    ----------
    record
        The run.
    """
    parts = [record.method, *record.ablations, *record.augment]
    if record.rerank:
        parts.append(record.rerank)
    for key, value in record.overrides.items():
        shown = value if isinstance(value, str) else json.dumps(value)
        parts.append(f"{key}={shown}")
    if record.ensemble > 1:
        parts.append(f"{record.ensemble} members")
    return " + ".join(parts)


def kind_of(record: Record) -> Kind:
    """Return what was varied of a method; of several things, the one that changes it most."""
    if record.is_external:
        return "added"
    if record.overrides:
        return "settings"
    if record.ablations:
        return "ablation"
    if record.ensemble > 1:
        return "ensemble"
    if record.rerank:
        return "reranked"
    if record.augment:
        return "augmented"
    return "method"


def variants_on(records: Iterable[Record], fingerprint: str) -> list[Variant]:
    """Return every variant that has run on a dataset, sorted by name.

    Runs count that are like the newest of their name: of the same version of the method, with the same config.

    Parameters
    ----------
    records
        Runs of any kind.
    fingerprint
        That of the dataset; runs on other data are left out.
    """
    by_name: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.finished):
        if record.fingerprint == fingerprint:
            by_name.setdefault(name_of(record), []).append(record)
    return [Variant(name, kind_of(by_name[name][0]), _newest(by_name[name])) for name in sorted(by_name)]


def _newest(records: Sequence[Record]) -> tuple[Record, ...]:
    """Return the runs that are like the newest, one per seed; `records` are in the order in which they finished."""
    newest = records[-1]
    by_seed: dict[int, Record] = {}
    for record in records:
        if record.method_version == newest.method_version and record.config == newest.config:
            by_seed[record.seed] = record
    return tuple(by_seed[seed] for seed in sorted(by_seed))
