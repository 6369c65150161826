"""Runs that differ in nothing but their seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xcbench.errors import InputError
from xcbench.runner.store import Record, Store


def runs_by_seed(record: Record) -> dict[int, Record]:
    """Return the runs in a run's store that differ from it in their seed alone, itself included.

    Of several such runs with one seed, as after a new version of the core, the newest counts.

    Parameters
    ----------
    record
        The run.
    """
    wanted = _identity(record)
    found = {record.seed: record}
    for other in sorted(Store(record.folder.parent).records(), key=lambda other: other.finished):
        if other.seed != record.seed and _identity(other) == wanted:
            found[other.seed] = other
    return found


def runs_with_seeds(record: Record, seeds: Sequence[int]) -> list[Record]:
    """Return the runs with these seeds that otherwise equal a run; one that is missing is an `InputError`.

    Parameters
    ----------
    record
        The run.
    seeds
        The seeds, its own among them or not.
    """
    found = runs_by_seed(record)
    missing = [str(seed) for seed in seeds if seed not in found]
    if missing:
        raise InputError(
            f"run {record.id} is not in its store with seed {', '.join(missing)}; the command that made it, with "
            f"--seed {missing[0]}, makes such a run"
        )
    return [found[seed] for seed in seeds]


def _identity(record: Record) -> tuple[Any, ...]:
    return (
        record.method,
        record.method_version,
        record.fingerprint,
        record.ablations,
        record.augment,
        record.rerank,
        record.config,
        record.ensemble,
        # What other programs predicted has no settings; its name tells it apart.
        record.is_external,
    )
