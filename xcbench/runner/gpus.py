"""The GPUs of this machine: which of them a process may use, and how much of their memory it used."""

from __future__ import annotations

import os
import sys
from typing import Any

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


def _cuda_in_use() -> Any:
    """Return `torch.cuda` if this process has used a GPU, else None. It loads neither torch nor a driver."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return torch.cuda
