"""Checkpoints: one safetensors file with parameters and moments, whose header has the rest as JSON.

The file is replaced in one step, so a process that dies at any moment leaves a complete checkpoint behind.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from xcbench.files import atomic_file
from xcbench.nn import Adam
from xcbench.train.label_shards import LabelShards

MAX_SHARE_OF_TIME = 0.05
"""Saving takes at most this share of the training's time: tables of many gigabytes are saved less often than asked."""


class Checkpoint:
    """The checkpoint of one training.

    Parameters
    ----------
    folder
        Where it is kept; None for a training without checkpoints.
    name
        The name of the file, without its ending.
    identity
        Settings that must be equal for a checkpoint to be continued, as JSON values.
    every
        Seconds between checkpoints.
    """

    def __init__(self, folder: Path | None, name: str, identity: Mapping[str, Any], every: float) -> None:
        self.path = None if folder is None else folder / f"{name}.safetensors"
        self.identity = json.loads(json.dumps(identity))  # in the form in which it will be read back
        self.every = every
        self._next_time = time.monotonic() + every

    def due(self) -> bool:
        """Whether it is time to save."""
        return self.path is not None and time.monotonic() >= self._next_time

    def save(
        self,
        module: nn.Module,
        optimiser: Adam,
        progress: Mapping[str, Any],
        shards: LabelShards | None = None,
    ) -> None:
        """Write the state of a training.

        Parameters
        ----------
        module
            The module.
        optimiser
            Its optimiser.
        progress
            JSON that `restore` returns. It has the key `step`.
        shards
            How labels are split over processes, if they are. Then all processes call this, and rank 0 writes.
        """
        if self.path is None:
            return

        start = time.monotonic()
        tensors = _tensors(module, optimiser)
        split = _split_names(tensors, shards)
        collected = {}
        for name, tensor in tensors.items():
            if shards is not None and name in split:
                whole = shards.collect(tensor, self.path.parent)
            else:
                whole = tensor.cpu()
            if whole is not None:
                collected[name] = whole

        if shards is None or shards.processes.rank == 0:
            header = {"identity": self.identity, "progress": dict(progress)}
            with atomic_file(self.path) as part:
                save_file(collected, part, {"training": json.dumps(header)})

        now = time.monotonic()
        pause = (now - start) / MAX_SHARE_OF_TIME
        self._next_time = now + max(self.every, pause)

    def restore(self, module: nn.Module, optimiser: Adam, shards: LabelShards | None = None) -> dict[str, Any] | None:
        """Load the saved state and return its `progress`; None if there is no checkpoint of this training.

        A file that cannot be read counts as no checkpoint: training then starts from the beginning. Where labels are
        split over processes, each reads its own rows, whatever number of processes wrote them.
        """
        tensors = _tensors(module, optimiser)
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        split = _split_names(tensors, shards)
        if shards is not None:
            for name in split:
                shapes[name][0] = shards.label_count

        def load(file: Any) -> None:
            for name, tensor in tensors.items():
                if shards is not None and name in split:
                    tensor.copy_(file.get_slice(name)[shards.own.first : shards.own.last])
                else:
                    tensor.copy_(file.get_tensor(name))

        progress = self._read(shapes, load)
        if progress is not None:
            optimiser.steps = progress["step"]
        return progress

    def continues(self, module: nn.Module) -> bool:
        """Whether there is a checkpoint of this training, given its module before anything is split."""
        shapes = {f"module.{name}": list(tensor.shape) for name, tensor in _own_tensors(module).items()}
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                shapes[f"adam.{name}.m"] = list(parameter.shape)
                shapes[f"adam.{name}.v"] = list(parameter.shape)
        return self._read(shapes) is not None

    def _read(
        self,
        shapes: Mapping[str, list[int]],
        load: Callable[[Any], None] | None = None,
    ) -> dict[str, Any] | None:
        """Return the saved `progress` and call `load` with the file, unless there is none of this training."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with safe_open(self.path, "pt") as file, torch.no_grad():
                metadata = file.metadata() or {}
                header = json.loads(metadata.get("training", "{}"))
                saved_names = list(file.keys())
                saved_shapes = {name: file.get_slice(name).get_shape() for name in saved_names}
                if header.get("identity") != self.identity or saved_shapes != shapes:
                    return None
                if load is not None:
                    load(file)
        except (SafetensorError, OSError, ValueError):
            return None

        progress: dict[str, Any] = header["progress"]
        return progress


def _own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and persistent buffers of a module.

    A table that several parts share has several names; it is listed under the first one.
    """
    seen: set[int] = set()
    tensors: dict[str, Tensor] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach()
    return tensors


def _split_names(tensors: Mapping[str, Tensor], shards: LabelShards | None) -> set[str]:
    """Return the names of the tensors of which each process has its own rows: parameters, and their moments."""
    names: set[str] = set()
    if shards is not None:
        for parameter in shards.parameters:
            names.add(f"module.{parameter}")
            names |= {name for name in tensors if name.startswith(f"adam.{parameter}.")}
    return names


def _tensors(module: nn.Module, optimiser: Adam) -> dict[str, Tensor]:
    """Return every tensor that a continued training needs."""
    tensors = {f"module.{name}": tensor for name, tensor in _own_tensors(module).items()}
    for name, moment in optimiser.state().items():
        tensors[f"adam.{name}"] = moment
    return tensors
