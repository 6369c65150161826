"""How long something took, how busy the machine was with other work, and how much memory the process held meanwhile."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextvars import ContextVar
from types import TracebackType

import psutil

from xcbench.runner.gpus import peak_device_memory, start_of_peak

_SAMPLE_SECONDS = 0.02
_SHORTEST_SECONDS = 0.5
"""The system counts busy time in hundredths of a second, too coarse for the load within a shorter time."""

_enclosing: ContextVar[Meter | None] = ContextVar("enclosing", default=None)
"""The innermost meter that is running."""


class Meter:
    """Measures the block under `with`: `seconds`, `peak_memory` in bytes of resident memory, and `peak_device_memory`.

    `other_load` is how many cores other processes kept busy meanwhile, on average. Processes that ended within the
    block and were waited for are its own.

    A thread samples the process. It cannot run while compiled code holds the interpreter, so the operating system's
    own high-water mark decides whenever it rose within the block. What a meter inside the block saw counts too: the
    two sample at different moments, and a run must not seem to have needed less than one of its stages.

    Device memory is what torch had allocated on this process's GPU, as torch counts it; 0 if no GPU was used.
    """

    def __enter__(self) -> Meter:
        self._outer = _enclosing.get()
        self._token = _enclosing.set(self)
        self._process = psutil.Process()
        self._peak_inside = 0
        self._device_peak_inside = 0
        self._mark_before = _high_water_mark()

        # torch keeps one peak. What it was until now belongs to the enclosing block.
        peak_before = start_of_peak()
        if self._outer:
            self._outer._device_peak_inside = max(self._outer._device_peak_inside, peak_before)

        self.peak_memory = self._process.memory_info().rss
        self.peak_device_memory = 0
        self.seconds = 0.0
        self.other_load = 0.0

        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="xcbench-meter", daemon=True)
        self._busy_before = _seconds_of_others()
        self._start = time.perf_counter()
        self._sampler.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._start
        self.other_load = max(0.0, _seconds_of_others() - self._busy_before) / max(self.seconds, _SHORTEST_SECONDS)
        self._done.set()
        self._sampler.join()

        self._update_peak()
        self.peak_memory = max(self.peak_memory, self._peak_inside)
        mark = _high_water_mark()
        if mark > self._mark_before:
            self.peak_memory = max(self.peak_memory, mark)

        self.peak_device_memory = max(peak_device_memory(), self._device_peak_inside)

        _enclosing.reset(self._token)
        if self._outer:
            self._outer._peak_inside = max(self._outer._peak_inside, self.peak_memory)
            self._outer._device_peak_inside = max(self._outer._device_peak_inside, self.peak_device_memory)

    def _sample(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            self._update_peak()

    def _update_peak(self) -> None:
        self.peak_memory = max(self.peak_memory, self._process.memory_info().rss)


def _seconds_of_others() -> float:
    """Return the CPU time of all processes but this one and those that it has waited for."""
    whole = psutil.cpu_times()
    idle = whole.idle + getattr(whole, "iowait", 0.0)
    # A guest's time is part of the user's.
    in_guests = getattr(whole, "guest", 0.0) + getattr(whole, "guest_nice", 0.0)
    own = os.times()
    return sum(whole) - idle - in_guests - sum(own[:4])


def _high_water_mark() -> int:
    """Return the largest resident memory in bytes since the process started, as the operating system counts it."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)

    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak
    # Linux counts in KiB.
    return peak * 1024
