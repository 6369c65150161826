"""Learning-rate schedules as functions of (step, total steps), so that they fit data of any size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from xcbench.errors import InputError, unknown_name

Kind: TypeAlias = Literal["constant", "halving", "onecycle", "linear"]

BETA1_SWING = 0.05
"""PyTorch's `OneCycleLR` moves beta1 between 0.85 and 0.95."""


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes over a training. All times are shares of the training, from 0 to 1.

    - `constant`;
    - `halving`: halved at each share in `at`;
    - `onecycle`: from 1/`div` up along a cosine until `warmup`, then down to 1/(`div` `final_div`); beside it, Adam's
      beta1 falls from 0.05 above its setting to 0.05 below it and rises again;
    - `linear`: from 0 up until `warmup`, then down to 0, both in straight lines.

    Parameters
    ----------
    kind
        One of these.
    at
        Where `halving` halves.
    warmup
        Where `onecycle` and `linear` reach the full learning rate.
    div, final_div
        The start and the end of `onecycle`, relative to the full learning rate.
    """

    kind: Kind = "halving"
    at: tuple[float, ...] = (0.5, 0.75)
    warmup: float = 0.3
    div: float = 25.0
    final_div: float = 1e4

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise unknown_name("schedule", self.kind, get_args(Kind))
        if not all(0 <= share <= 1 for share in (self.warmup, *self.at)):
            raise ValueError(f"warmup and at are shares of a training, 0 to 1, got {self.warmup} and {self.at}")
        if min(self.div, self.final_div) < 1:
            raise ValueError(f"div and final_div are at least 1, got {self.div} and {self.final_div}")

    def factor(self, step: int, total: int) -> float:
        """Return what the learning rate of a step is multiplied by. Steps are numbered 0, 1, ... total - 1."""
        if self.kind == "constant":
            return 1.0
        if self.kind == "halving":
            halvings = sum(step >= round(share * total) for share in self.at)
            return 0.5**halvings
        if self.kind == "onecycle":
            return self._onecycle(step, total)
        return self._linear(step, total)

    def beta1(self, step: int, total: int, setting: float) -> float:
        """Return Adam's beta1 of a step, which is the setting in all but `onecycle`."""
        if self.kind != "onecycle":
            return setting
        highest = min(setting + BETA1_SWING, 0.99)
        lowest = max(setting - BETA1_SWING, 0.0)
        return self._cycle(step, total, highest, lowest, highest)

    def _onecycle(self, step: int, total: int) -> float:
        start = 1 / self.div
        end = 1 / (self.div * self.final_div)
        return self._cycle(step, total, start, 1.0, end)

    def _cycle(self, step: int, total: int, start: float, middle: float, end: float) -> float:
        """Along a cosine from start to middle until `warmup`, then along another one to the end."""
        peak = self.warmup * total - 1
        last = total - 1
        if step <= peak:
            return _cosine(start, middle, _share(step, peak))
        return _cosine(middle, end, _share(step - peak, last - peak))

    def _linear(self, step: int, total: int) -> float:
        peak = round(self.warmup * total)
        if step < peak:
            return (step + 1) / peak
        return (total - step) / (total - peak)


def halving_after(first: int, epochs: int) -> Schedule:
    """Return the schedule of DECAF and ECLARE: halve after `first` epochs, and then after every max(5, first // 2).

    Parameters
    ----------
    first
        The epoch after which the rate is halved for the first time.
    epochs
        The length of the training.
    """
    if first < 1 or epochs < 1:
        raise InputError(f"halving needs at least one epoch, got first {first} of {epochs}")
    pause = max(5, first // 2)
    shares = tuple(epoch / epochs for epoch in range(first, epochs, pause))
    return Schedule("halving", at=shares)


def _share(done: float, length: float) -> float:
    """Return done / length; 1 for a phase without length."""
    if length > 0:
        return done / length
    return 1.0


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
