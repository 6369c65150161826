"""Where a result came from: versions, machine, threads, device, and the code itself."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

import xcbench
from xcbench.errors import InputError
from xcbench.ranks import process_count

_PACKAGES = ("numpy", "scipy", "numba", "torch", "faiss-cpu", "tokenizers", "omegaconf")


def choose_device(wanted: str) -> str:
    """`auto` is a GPU where torch sees one; anything else must be a device that torch can use here."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise InputError(f"unknown device {wanted!r}; expected auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError(f"device {wanted!r}: torch sees no GPU on this machine")
        if (device.index or 0) >= torch.cuda.device_count():
            raise InputError(f"device {wanted!r}: torch sees {torch.cuda.device_count()} GPUs here")
    return str(device)


def describe_environment(device: str, threads: int) -> dict[str, Any]:
    """What a reader of a result needs to judge or repeat it."""
    return {
        "xcbench": xcbench.__version__,
        "code": code_digest(),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "platform": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "processes": process_count(),
        "device": _device_name(device),
    }


@lru_cache(maxsize=1)
def code_digest() -> str:
    """A short hash of every source file of ours, so that a result made by other code can be told."""
    import xcbench.methods

    digest = hashlib.sha256()
    for root in (Path(xcbench.__file__).parent, *map(Path, xcbench.methods.__path__)):
        for path in sorted(root.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _device_name(device: str) -> str:
    if not device.startswith("cuda"):
        return device
    import torch

    return f"{device} ({torch.cuda.get_device_name(device)})"
