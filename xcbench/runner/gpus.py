"""The GPUs of this machine: which of them a process may use, and how much of their memory it used."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from xcbench.errors import XCBenchError
from xcbench.kernels.memory import binary_size, free_memory

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable that names the GPUs which a process may use."""


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, named as `CUDA_VISIBLE_DEVICES` names them; none without a GPU."""
    # Imported here, since a launcher whose jobs stay on the CPU needs no torch.
    import torch

    if not torch.cuda.is_available():
        return []

    count = torch.cuda.device_count()
    listed = os.environ.get(VISIBLE)
    if listed is None:
        return [str(number) for number in range(count)]
    return [name.strip() for name in listed.split(",")][:count]


def start_of_peak() -> int:
    """Return the peak of device memory in bytes until now, and begin a new one."""
    peak = peak_device_memory()
    cuda = _cuda_in_use()
    if cuda is not None:
        cuda.reset_peak_memory_stats()
    return peak


def peak_device_memory() -> int:
    """Return the most bytes that this process had on its GPU since the last `start_of_peak`; 0 without one."""
    cuda = _cuda_in_use()
    if cuda is None:
        return 0
    return int(cuda.max_memory_allocated())


ESTIMATE_FACTOR = 2
"""By how much a method's own estimate of its memory may be too high."""


def check_device_memory(estimate: int | None, device: str) -> None:
    """Raise an error if a GPU cannot hold a training, before any stage is computed.

    Each module checks its own need once more before its first step, and more exactly.

    Parameters
    ----------
    estimate
        Bytes that the method expects to take there; None if it does not know.
    device
        The run's device.
    """
    if estimate is None or not device.startswith("cuda"):
        return

    free = free_memory(device)
    if estimate > ESTIMATE_FACTOR * free:
        raise XCBenchError(
            f"training needs about {binary_size(estimate)}, and {device} has {binary_size(free)} free: a smaller "
            "dimension or batch needs less, and --device cpu trains in this machine's own memory"
        )


@contextlib.contextmanager
def readable_memory_errors(device: str) -> Iterator[None]:
    """Turn a GPU that ran out of memory into an error of one line."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition("\n")[0]
        raise XCBenchError(f"out of memory on {device}: {reason}; a smaller dimension or batch needs less") from error


def _cuda_in_use() -> Any:
    """Return `torch.cuda` if this process has used a GPU, else None. It loads neither torch nor a driver."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return torch.cuda
