"""How much memory a piece of work needs, estimated before it starts, in main memory and on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from xcbench.errors import XCBenchError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by what they are for, in the order in which they are printed.

    `parts` are in main memory, and `device_parts` on the device of this name; without one there are none of these.
    """

    parts: Mapping[str, int]
    device: str = ""
    device_parts: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, part: str) -> int:
        if part in self.device_parts:
            return self.device_parts[part]
        return self.parts[part]

    @property
    def in_main_memory(self) -> int:
        return sum(self.parts.values())

    @property
    def on_device(self) -> int:
        return sum(self.device_parts.values())

    @property
    def total(self) -> int:
        return self.in_main_memory + self.on_device

    def __str__(self) -> str:
        in_main_memory = _with_parts(self.in_main_memory, self.parts)
        if not self.device:
            return in_main_memory
        on_device = _with_parts(self.on_device, self.device_parts)
        return f"{on_device} on {self.device} and {in_main_memory} in main memory"

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


def free_memory(device: str | torch.device) -> int:
    """Return the bytes that can still be allocated on a device, or in main memory for the CPU.

    On a GPU, torch keeps freed blocks for later: the driver counts them as used, but they can be had again.
    """
    if not str(device).startswith("cuda"):
        return int(psutil.virtual_memory().available)

    import torch

    free_for_driver = torch.cuda.mem_get_info(device)[0]
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(free_for_driver + cached)


def binary_size(count: int) -> str:
    """Return a number of bytes in MiB or GiB."""
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB"


def _with_parts(total: int, parts: Mapping[str, int]) -> str:
    sizes = [f"{name} {binary_size(count)}" for name, count in parts.items()]
    return f"{binary_size(total)} ({', '.join(sizes)})"


def _decimal_size(count: int) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.1f} MB"
