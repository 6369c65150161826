"""Where a result came from: versions, machine, threads, device, and the code itself."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Any

import xcbench
from xcbench.errors import InputError
from xcbench.ranks import process_count

_PACKAGES = ("numpy", "scipy", "numba", "torch", "faiss-cpu", "tokenizers", "omegaconf")


def choose_device(requested: str) -> str:
    """Make the device that a run uses this process's device; returns its name, such as `cpu` or `cuda:0`.

    See `train.devices.resolve_device` for what may be requested.
    """
    # Imported here, since a run that is in the store already needs no training code.
    from xcbench.train.devices import resolve_device, use_device

    device = resolve_device(requested)
    use_device(device)
    return str(device)


def check_device(requested: str) -> None:
    """Raise an `InputError` if this machine lacks the device. `auto` and `cpu` are everywhere.

    To be called before any data is loaded.
    """
    check_device_name(requested)
    if requested in ("auto", "cpu"):
        return

    from xcbench.train.devices import resolve_device

    resolve_device(requested)


def check_device_name(requested: str) -> None:
    """Raise an `InputError` if no machine has a device of this name."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", requested):
        raise InputError(f"unknown device {requested!r}; expected auto, cpu, cuda or cuda:N")


def describe_environment(device: str, threads: int, code: str) -> dict[str, Any]:
    """Return what a reader of a result needs to judge or repeat it.

    Parameters
    ----------
    device
        What the run computed on.
    threads
        How many threads it had.
    code
        The digest of the code that can change its figures; see `runner.source_code`.
    """
    return {
        "xcbench": xcbench.__version__,
        "code": code,
        "python": platform.python_version(),
        "packages": _package_versions(),
        "platform": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "processes": process_count(),
        "device": _device_name(device),
    }


def _package_versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def _processor() -> str:
    """Return the processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []

    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _device_name(device: str) -> str:
    if not device.startswith("cuda"):
        return device

    import torch

    return f"{device} ({torch.cuda.get_device_name(device)})"
