"""The device that trains, and the precision of its matrix products."""

from __future__ import annotations

import contextlib
import os

import torch

from xcbench.errors import InputError
from xcbench.ranks import local_process_count


def resolve_device(requested: str = "auto") -> torch.device:
    """Return the device that `requested` names on this machine, or raise an `InputError` that says what is wrong.

    Parameters
    ----------
    requested
        `cpu`, `cuda`, `cuda:N`, or `auto`: the GPU if torch finds one, else the CPU. `cuda` without a number is the
        GPU of this process's local rank under torchrun, and the first GPU otherwise. `cuda:N` is for a single process.
    """
    if requested == "auto":
        requested = "cuda" if torch.cuda.is_available() else "cpu"

    try:
        device = torch.device(requested)
    except (RuntimeError, ValueError):
        raise InputError(f"unknown device {requested!r}; expected auto, cpu, cuda or cuda:N") from None

    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise InputError(f"device {requested!r}: cannot train on {device.type}; expected auto, cpu, cuda or cuda:N")
    return _gpu(device, requested)


def use_device(device: torch.device) -> None:
    """Make a GPU the current one of this process; without this, what names no number goes to the first GPU."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def use_gpu_of_local_rank() -> None:
    """Make the GPU of this process's local rank the current one: NCCL must not find two processes on the same GPU.

    Nothing happens if there are more processes than GPUs: they may be meant for the CPU.
    """
    index = _local_rank()
    if index < torch.cuda.device_count():
        use_device(torch.device("cuda", index))


def _gpu(device: torch.device, requested: str) -> torch.device:
    """Return a GPU with its number, after checking that this machine has it."""
    if not torch.cuda.is_available():
        raise InputError(f"device {requested!r}: torch finds no GPU on this machine")

    if ":" in requested:
        if local_process_count() > 1:
            raise InputError(f"device {requested!r}: under torchrun each process has a GPU of its own; write cuda")
        index = device.index
    else:
        index = _local_rank()

    count = torch.cuda.device_count()
    if index >= count:
        raise InputError(f"device {requested!r}: there is no GPU {index}, torch finds {count} (numbered from 0)")
    return torch.device("cuda", index)


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", 0))


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return the context in which a training step runs: bfloat16 matrix products, or float32 throughout.

    float16 is not offered: the mean over points and labels makes gradients of 1e-8, which is below its range.
    """
    if precision not in ("float32", "bfloat16"):
        raise InputError(f"unknown precision {precision!r}; expected float32 or bfloat16")
    if precision == "bfloat16" and device.type == "cpu":
        raise InputError("bfloat16 is for GPUs; on a CPU our kernels work in float32")

    if precision == "bfloat16":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()
