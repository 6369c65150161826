"""Which device trains, and in which precision."""

from __future__ import annotations

import contextlib
import os

import torch

from xcbench.errors import InputError


def resolve_device(wanted: str = "auto") -> torch.device:
    """`auto` is the GPU where there is one. Under torchrun each process takes the GPU of its local rank."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except (RuntimeError, ValueError):
        raise InputError(f"unknown device {wanted!r}; expected auto, cpu, cuda or cuda:0, cuda:1, ...") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"cannot train on {device.type!r}; expected auto, cpu or cuda")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError(f"device {wanted!r} was asked for, but torch finds no GPU")
        if ":" not in wanted:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    return device


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """bfloat16 for matrix products where it pays (`auto`: on GPUs that have it), else float32 throughout.

    float16 is not offered: the mean over points and labels makes gradients of 1e-8, below its range.
    """
    if precision not in ("auto", "float32", "bfloat16"):
        raise InputError(f"unknown precision {precision!r}; expected auto, float32 or bfloat16")
    if precision == "bfloat16" and device.type == "cpu":
        raise InputError("bfloat16 is for GPUs; on a CPU our kernels work in float32")
    if precision == "auto":
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
        precision = "bfloat16" if fast else "float32"
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()
