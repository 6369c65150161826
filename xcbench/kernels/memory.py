"""How much memory a piece of work needs, estimated before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from xcbench.errors import XCBenchError


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by what they are for, in the order in which they are printed."""

    parts: Mapping[str, int]

    def __getitem__(self, part: str) -> int:
        return self.parts[part]

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def __str__(self) -> str:
        parts = [f"{name} {binary_size(count)}" for name, count in self.parts.items()]
        return f"{binary_size(self.total)} ({', '.join(parts)})"

    def require(self, what: str) -> None:
        """Raise an error that names `what` if more memory is needed than is free: better now than in the middle."""
        free = psutil.virtual_memory().available
        if self.total <= free:
            return
        parts = [f"{_decimal_size(count)} {name}" for name, count in self.parts.items() if count]
        raise XCBenchError(
            f"{what} needs {_decimal_size(self.total)} ({', '.join(parts)}), "
            f"but only {_decimal_size(free)} of memory are free"
        )


def binary_size(count: int) -> str:
    """Return a number of bytes in MiB or GiB."""
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB"


def _decimal_size(count: int) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.1f} MB"
