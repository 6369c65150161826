"""One measured figure, and the ways of measuring that the benchmark modules share."""

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Figure:
    """What was measured, ours and the reference's cost in one unit, and what the ratio must reach."""

    what: str
    ours: float
    reference: float
    unit: str
    reference_name: str
    at_least: float
    """The smallest `reference / ours` that we promise."""
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.reference / self.ours if self.ours else float("inf")

    @property
    def holds(self) -> bool:
        return self.ratio >= self.at_least


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """The best wall time of several calls: noise only ever adds."""
    return _least(work, repeat, time.perf_counter)


def cpu_seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """The least CPU time of several calls, over all threads of this process."""
    return _least(work, repeat, time.process_time)


def _least(work: Callable[[], object], repeat: int, clock: Callable[[], float]) -> float:
    best = float("inf")
    for _ in range(repeat):
        start = clock()
        work()
        best = min(best, clock() - start)
    return best


def grown_bytes(work: Callable[[], object]) -> int:
    """How far the process grows while it works; 0 where the system cannot forget an earlier peak (Linux can)."""
    forget, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not forget.exists():
        return 0
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)  # else memory that earlier work has left to the allocator would hide what this work takes
    forget.write_text("5")
    before = psutil.Process().memory_info().rss
    work()
    return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0]) - before
