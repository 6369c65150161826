"""Checkpoints: one safetensors file with parameters and moments, whose header carries the rest as JSON.

One file is replaced in one step, so a process that dies at any moment leaves the last checkpoint whole.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from xcbench.files import atomic_file
from xcbench.nn import Adam

SHARE_OF_TIME = 0.05
"""Saving may take so much of the training: a table of many gigabytes is saved less often than it was asked."""


class Checkpoint:
    """A training's checkpoint in a folder (None: there is none), and when it is due."""

    def __init__(self, folder: Path | None, name: str, identity: Mapping[str, Any], every: float) -> None:
        self.path = None if folder is None else folder / f"{name}.safetensors"
        self.identity = json.loads(json.dumps(identity))  # as it will be read back
        self.every = every
        self._due = time.monotonic() + every

    def due(self) -> bool:
        return self.path is not None and time.monotonic() >= self._due

    def save(self, module: nn.Module, optimiser: Adam, progress: Mapping[str, Any]) -> None:
        """Write where training stands; `progress` is whatever JSON it wants back."""
        if self.path is None:
            return
        start = time.monotonic()
        header = {"identity": self.identity, "progress": dict(progress)}
        with atomic_file(self.path) as part:
            save_file(_tensors(module, optimiser), part, {"training": json.dumps(header)})
        now = time.monotonic()
        self._due = now + max(self.every, (now - start) / SHARE_OF_TIME)

    def restore(self, module: nn.Module, optimiser: Adam) -> dict[str, Any] | None:
        """Load what was saved and return its `progress`; None where there is nothing of this training to load."""
        if self.path is None or not self.path.exists():
            return None
        tensors = _tensors(module, optimiser)
        try:
            with safe_open(self.path, "pt") as file:
                header = json.loads((file.metadata() or {}).get("training", "{}"))
                names = list(file.keys())
                shapes = {name: file.get_slice(name).get_shape() for name in names}
                if header.get("identity") != self.identity or shapes != {n: [*t.shape] for n, t in tensors.items()}:
                    return None
                with torch.no_grad():
                    for name, t in tensors.items():
                        t.copy_(file.get_tensor(name))
        except (SafetensorError, OSError, ValueError):
            return None  # not a checkpoint of ours: training simply starts from the beginning
        progress: dict[str, Any] = header["progress"]
        optimiser.steps = progress["step"]
        return progress


def _tensors(module: nn.Module, optimiser: Adam) -> dict[str, Tensor]:
    """Every tensor that a continued training needs, once: tables shared by several parts have several names."""
    seen: set[int] = set()
    tensors: dict[str, Tensor] = {}
    for name, t in module.state_dict(keep_vars=True).items():
        if id(t) not in seen:
            seen.add(id(t))
            tensors[f"module.{name}"] = t.detach()
    tensors.update((f"adam.{name}", t) for name, t in optimiser.state().items())
    return tensors
