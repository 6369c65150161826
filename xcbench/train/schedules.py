"""Learning-rate schedules as pure functions of (step, total steps), so that they fit data of any size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from xcbench.errors import InputError, unknown_name

Kind: TypeAlias = Literal["constant", "halving", "onecycle", "linear"]


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes over a training.

    - `constant`;
    - `halving`: half of it from each share `at` of the training on;
    - `onecycle`: up from 1/`div` along a cosine until the share `warmup`, then down to 1/(`div` `final_div`);
    - `linear`: up from nothing until the share `warmup`, then down to nothing, both in straight lines.
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
        """What the learning rate of step 0, 1, ... total - 1 is multiplied by."""
        if self.kind == "constant":
            return 1.0
        if self.kind == "halving":
            return 0.5 ** sum(step >= round(share * total) for share in self.at)
        if self.kind == "onecycle":
            return self._onecycle(step, total)
        return self._linear(step, total)

    def _onecycle(self, step: int, total: int) -> float:
        low, end = 1 / self.div, 1 / (self.div * self.final_div)
        peak = self.warmup * total - 1
        if step <= peak:
            return _cosine(low, 1.0, step / peak if peak > 0 else 1.0)
        return _cosine(1.0, end, (step - peak) / (total - 1 - peak) if total - 1 > peak else 1.0)

    def _linear(self, step: int, total: int) -> float:
        rising = round(self.warmup * total)
        return (step + 1) / rising if step < rising else (total - step) / (total - rising)


def halving_after(first: int, epochs: int) -> Schedule:
    """The schedule of DECAF and ECLARE: halve after `first` epochs, and from then on every max(5, first // 2)."""
    if first < 1 or epochs < 1:
        raise InputError(f"halving needs at least one epoch, got first {first} of {epochs}")
    return Schedule("halving", at=tuple(epoch / epochs for epoch in range(first, epochs, max(5, first // 2))))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
