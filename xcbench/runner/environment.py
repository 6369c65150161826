"""Where a result came from: versions, machine, threads, device, and the code itself."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

import xcbench
from xcbench.ranks import process_count

_PACKAGES = ("numpy", "scipy", "numba", "torch", "faiss-cpu", "tokenizers", "omegaconf")


def choose_device(requested: str) -> str:
    """Return the name of the device that a run uses, such as `cpu` or `cuda:0`; see `train.devices.resolve_device`."""
    # Imported here, since a run that is in the store already needs no training code.
    from xcbench.train.devices import resolve_device

    return str(resolve_device(requested))


def describe_environment(device: str, threads: int) -> dict[str, Any]:
    """Return what a reader of a result needs to judge or repeat it."""
    return {
        "xcbench": xcbench.__version__,
        "code": code_digest(),
        "python": platform.python_version(),
        "packages": _package_versions(),
        "platform": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "processes": process_count(),
        "device": _device_name(device),
    }


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a short hash of all our source files, by which results of other code are recognised."""
    import xcbench.methods

    core = Path(xcbench.__file__).parent
    methods = [Path(folder) for folder in xcbench.methods.__path__]

    digest = hashlib.sha256()
    for root in (core, *methods):
        for path in sorted(root.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


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
