"""Checkpoints: one safetensors file with parameters and moments, whose header has the rest as JSON.

The file is replaced in one step, so a process that dies at any moment leaves a complete checkpoint behind.
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
        state: Mapping[str, Tensor],
        progress: Mapping[str, Any],
        shards: LabelShards | None = None,
    ) -> None:
        """Write the state of a training.

        Parameters
        ----------
        module
            The module that is trained.
        state
            All other tensors that a continued training needs. Their names begin with a word and that of a parameter.
        progress
            JSON that `restore` returns.
        shards
            How labels are split over processes, if they are. Then all processes call this, and rank 0 writes.
        """
        if self.path is None:
            return

        start = time.monotonic()
        tensors = _tensors(module, state)
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

    def restore(
        self,
        module: nn.Module,
        state: Mapping[str, Tensor],
        shards: LabelShards | None = None,
    ) -> dict[str, Any] | None:
        """Load what was saved into the given tensors. Returns its `progress`, or None if there is no such checkpoint.

        A file that cannot be read counts as no checkpoint: training then starts from the beginning. Where labels are
        split over processes, each reads its own rows, whatever number of processes wrote them.
        """
        if self.path is None or not self.path.exists():
            return None

        tensors = _tensors(module, state)
        split = _split_names(tensors, shards)
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        if shards is not None:
            for name in split:
                shapes[name][0] = shards.label_count

        try:
            with safe_open(self.path, "pt") as file, torch.no_grad():
                metadata = file.metadata() or {}
                header = json.loads(metadata.get("training", "{}"))
                saved_names = list(file.keys())
                saved_shapes = {name: file.get_slice(name).get_shape() for name in saved_names}
                if header.get("identity") != self.identity or saved_shapes != shapes:
                    return None

                for name, tensor in tensors.items():
                    if shards is not None and name in split:
                        tensor.copy_(file.get_slice(name)[shards.own.first : shards.own.last])
                    else:
                        tensor.copy_(file.get_tensor(name))
        except (SafetensorError, OSError, ValueError):
            return None

        progress: dict[str, Any] = header["progress"]
        return progress


def _tensors(module: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return every tensor that a continued training needs.

    A table that several parts share has several names; it is listed under the first one.
    """
    seen: set[int] = set()
    tensors: dict[str, Tensor] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[f"module.{name}"] = tensor.detach()
    return tensors | dict(state)


def _split_names(tensors: Mapping[str, Tensor], shards: LabelShards | None) -> set[str]:
    """Return the names of the tensors of which each process has its own rows: parameters, and what belongs to them."""
    if shards is None:
        return set()
    split = tuple(f"{parameter}." for parameter in shards.parameters)
    return {name for name in tensors if f"{name.partition('.')[2]}.".startswith(split)}
