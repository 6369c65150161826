"""Trainings that stop before their end: what a learning curve is made of."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class EarlyStop:
    """After which share of its steps a training stops; and of each training, how many steps it had and would have."""

    share: float
    steps: list[int] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)

    def after(self, steps: int) -> int:
        """Return after how many of its steps a training stops, at least one, and note it."""
        stop = min(steps, max(1, math.ceil(self.share * steps)))
        self.steps.append(stop)
        self.whole.append(steps)
        return stop


_current: list[EarlyStop] = []


@contextlib.contextmanager
def stopping_early(share: float) -> Iterator[EarlyStop]:
    """Let every training inside stop after a share of its steps.

    Schedules stay those of the whole training, so that the result is what the whole training is at that step.

    Parameters
    ----------
    share
        Greater than 0 and at most 1.
    """
    stop = EarlyStop(share)
    _current.append(stop)
    try:
        yield stop
    finally:
        _current.pop()


def last_step(steps: int) -> int:
    """Return after how many steps a training of so many steps stops."""
    if not _current:
        return steps
    return _current[-1].after(steps)
