"""Ranges of settings: what `xcbench tune` searches. A method declares them in `search_space`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias


@dataclass(frozen=True)
class Range:
    """Any number from `low` to `high`."""

    low: float
    high: float
    is_log: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"a range goes from low to high, got {self.low} to {self.high}")
        if self.is_log and self.low <= 0:
            raise ValueError(f"a range by factors starts above 0, got {self.low}")

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class LogRange(Range):
    """Any number from `low` to `high`, by factors: as many trials from 1 to 10 as from 10 to 100."""

    is_log: ClassVar[bool] = True


@dataclass(frozen=True)
class IntRange(Range):
    """Any whole number from `low` to `high`."""

    low: int
    high: int


@dataclass(frozen=True)
class LogIntRange(IntRange):
    """Any whole number from `low` to `high`, by factors."""

    is_log: ClassVar[bool] = True


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    options: tuple[str | int | float | bool | None, ...]

    def __contains__(self, value: Any) -> bool:
        return value in self.options


AnyRange: TypeAlias = Range | Choice
