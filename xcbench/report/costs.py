"""Which times may be compared: those of one machine, with equally many threads and with nothing beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from xcbench.runner.store import Record

QUIET = 0.25
"""So many cores may be busy with other work, on average; a system at rest keeps a few hundredths of one busy."""


@dataclass(frozen=True, order=True)
class Conditions:
    """What a run's times were measured under. Times compare where all of it is equal."""

    processor: str
    device: str
    threads: tuple[int, ...]
    """One number, unless the run reused a stage that was computed with another; 0 where it is not known."""
    processes: int
    load: Literal["quiet", "busy", "not known"]
    """Whether other work kept cores busy; older records do not say."""
    other_load: float = field(default=0.0, compare=False)
    """How many cores that were, on average over the run or over a stage that it reused."""

    def __str__(self) -> str:
        counts = " and ".join(_threads_in_words(count) for count in self.threads)
        parts = [self.processor, self.device, counts]
        if self.load == "busy":
            parts.append(f"beside {self.other_load:.1f} busy cores")
        elif self.load == "not known":
            parts.append("other load not known")
        return ", ".join(parts)


def _threads_in_words(count: int) -> str:
    if count == 0:
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
    environment = record.environment
    reused = [stage for stage in record.stages if stage.state == "reused"]
    threads = {int(environment.get("threads", 0))}
    threads.update(stage.threads or 0 for stage in reused)

    loads = [environment.get("other_load"), *(stage.other_load for stage in reused)]
    known = [load for load in loads if load is not None]
    other_load = max(known, default=0.0)
    kind: Literal["quiet", "busy", "not known"] = "quiet"
    if other_load > QUIET:
        kind = "busy"
    elif len(known) < len(loads):
        kind = "not known"
    return Conditions(
        processor=str(environment.get("processor", "unknown processor")),
        device=str(environment.get("device", "unknown device")),
        threads=tuple(sorted(threads)),
        processes=int(environment.get("processes", 1)),
        load=kind,
        other_load=other_load,
    )


def usual_conditions(records: Iterable[Record]) -> Conditions | None:
    """Return the conditions that most runs were timed under, those beside other work left out; None if no run is left.

    Parameters
    ----------
    records
        Runs of any kind.
    """
    counts = Counter(sorted(found for found in map(conditions, records) if found.load != "busy"))
    if not counts:
        return None
    return counts.most_common(1)[0][0]


def incomparable(records: Mapping[str, Sequence[Record]]) -> dict[str, str]:
    """Return the rows whose times cannot be compared with those of most rows, and why.

    Parameters
    ----------
    records
        The runs of each row.
    """
    usual = usual_conditions(record for runs in records.values() for record in runs)
    reasons = {}
    for label, runs in records.items():
        others = [found for found in map(conditions, runs) if found != usual]
        if others:
            reasons[label] = f"not comparable: {others[0]}"
    return reasons
