"""The GPUs of this machine: which of them a process may use, and how much of their memory it used."""

from __future__ import annotations

import os

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
