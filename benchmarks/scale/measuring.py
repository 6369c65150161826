"""The ways of measuring that steps share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import torch

from benchmarks.scale.row import Row
from xcbench.runner.meter import Meter

Result = TypeVar("Result")


def measured(step: str, part: str, work: Callable[[], Result]) -> tuple[Row, Result]:
    """Do something, and return what it took and its result."""
    with Meter() as meter:
        result = work()
    return Row(step, part, meter.seconds, meter.peak_memory), result


def matmul_speed(size: int = 2048, repeat: int = 5) -> float:
    """Return the floating-point operations per second of one large product, with the threads of this process."""
    a = torch.rand(size, size)
    b = torch.rand(size, size)
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best
