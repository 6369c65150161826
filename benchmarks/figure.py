"""One measured figure, and the ways of measuring that the benchmark modules share."""

import ctypes
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

_FORGET_PEAK = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Figure:
    """What was measured: our cost, the reference's cost in the same unit, and what the ratio must reach."""

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
        """How many times our cost the reference costs."""
        if self.ours == 0:
            return float("inf")
        return self.reference / self.ours

    @property
    def holds(self) -> bool:
        """Whether the promise is kept."""
        return self.ratio >= self.at_least


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """Return the smallest wall time of several calls: noise only ever adds."""
    return _smallest(work, repeat, time.perf_counter)


def cpu_seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """Return the smallest CPU time of several calls, over all threads of this process."""
    return _smallest(work, repeat, time.process_time)


def _smallest(work: Callable[[], object], repeat: int, clock: Callable[[], float]) -> float:
    best = float("inf")
    for _ in range(repeat):
        start = clock()
        work()
        best = min(best, clock() - start)
    return best


def grown_bytes(work: Callable[[], object]) -> int:
    """Return how far the process grows during `work`; 0 where the system cannot forget an earlier peak (Linux can)."""
    if not _FORGET_PEAK.exists():
        return 0

    # Otherwise memory that earlier work has left to the allocator would hide what this work takes.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)

    _FORGET_PEAK.write_text("5")
    before = psutil.Process().memory_info().rss
    work()
    return _peak_bytes() - before


def _peak_bytes() -> int:
    """Return the largest resident memory since the kernel was last told to forget it."""
    match = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text())
    if match is None:
        raise RuntimeError(f"{_STATUS} does not show the peak memory (VmHWM)")
    return 1024 * int(match[1])
