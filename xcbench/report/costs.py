"""Which times may be compared: those that were measured with equally many threads and with nothing beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcbench.runner.store import Record

QUIET = 0.25
"""So many cores may be busy with other work, on average; a system at rest keeps a few hundredths of one busy."""


@dataclass(frozen=True)
class Conditions:
    """What a run's times were measured under. Of older records some of it is not known."""

    threads: frozenset[int | None]
    """One number, unless the run reused a stage that was computed with another."""
    other_load: float | None
    """The most cores that other processes kept busy, on average over a stage or over the run."""

    @property
    def is_quiet(self) -> bool:
        """Whether next to nothing ran beside."""
        return self.other_load is not None and self.other_load <= QUIET

    def __str__(self) -> str:
        counts = " and ".join(_threads_in_words(count) for count in sorted(self.threads, key=lambda count: count or 0))
        if self.other_load is None:
            return f"{counts}, other load not known"
        if self.is_quiet:
            return counts
        return f"{counts}, beside {self.other_load:.1f} busy cores"


def _threads_in_words(count: int | None) -> str:
    if count is None:
        return "an unknown number of threads"
    if count == 1:
        return "1 thread"
    return f"{count} threads"


def conditions(record: Record) -> Conditions:
    """Return what a run's times were measured under, the stages that it reused included.

    Parameters
    ----------
    record
        The run.
    """
    reused = [stage for stage in record.stages if stage.state == "reused"]
    threads: set[int | None] = {record.environment.get("threads")}
    threads.update(stage.threads for stage in reused)

    loads = [record.environment.get("other_load"), *(stage.other_load for stage in reused)]
    known = [load for load in loads if load is not None]
    if len(known) < len(loads):
        return Conditions(frozenset(threads), None)
    return Conditions(frozenset(threads), max(known))


def incomparable(records: Mapping[str, Sequence[Record]]) -> dict[str, str]:
    """Return the rows whose times cannot be compared with the others', and why.

    The number of threads that most quiet runs had is what times are shown for.

    Parameters
    ----------
    records
        The runs of each row.
    """
    of_rows = {label: [conditions(record) for record in runs] for label, runs in records.items()}
    quiet = [found.threads for all_found in of_rows.values() for found in all_found if found.is_quiet]
    usual = None
    if quiet:
        usual = Counter(quiet).most_common(1)[0][0]

    reasons = {}
    for label, all_found in of_rows.items():
        others = [found for found in all_found if not found.is_quiet or found.threads != usual]
        if others:
            reasons[label] = f"not comparable: {others[0]}"
    return reasons
