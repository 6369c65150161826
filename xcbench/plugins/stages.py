"""Stages: steps of a method that are kept, shared between runs, and survive a killed process.

A stage is declared with everything that its output depends on; these make its key. Nothing is computed until its
values are read, and then only if no finished stage with that key exists. So an ablation recomputes exactly what it
changes, and a method that ends in a cached stage does not even load the ones before it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

CORE_VERSION = 2
"""Raised whenever a change to a room that methods build on changes what they compute; nothing older is reused."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class StageWork:
    """What the function that computes a stage is given."""

    seed: int
    """The stage's own: differs between stages, runs and members, and is 0 for a stage declared as not seeded."""
    device: str
    checkpoints: Path
    """A folder that outlives a killed process and is emptied when the stage is finished."""
    log: Callable[[str], None]
    progress: Callable[..., Iterable[Any]]

    def generator(self) -> np.random.Generator:
        """A numpy generator that starts from the stage's seed."""
        return np.random.default_rng(self.seed)


class Stage(Mapping[str, Any]):
    """A declared stage; reading a value computes or loads it."""

    def __init__(
        self,
        name: str,
        inputs: Mapping[str, Any],
        after: tuple[Stage, ...],
        obtain: Callable[[Stage], dict[str, Any]],
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.key = digest(inputs)
        self.after = after
        self._obtain = obtain
        self._values: dict[str, Any] | None = None

    def read(self) -> dict[str, Any]:
        """All values, computed now if need be."""
        if self._values is None:
            self._values = self._obtain(self)
        return self._values

    def __getitem__(self, name: str) -> Any:
        return self.read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())

    def __repr__(self) -> str:
        return f"<stage {self.name} {self.key}>"

    def depends_on(self, other: Stage) -> bool:
        """Whether `other` is this stage or comes, directly or not, before it."""
        return self is other or any(stage.depends_on(other) for stage in self.after)


def canonical(value: Any) -> Any:
    """A config or any part of one as plain JSON, equal for equal settings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: canonical(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(f"a stage or a run cannot be identified by a {type(value).__name__}; use plain config values")


def digest(value: Any, length: int = 16) -> str:
    """A short hash of anything canonical."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def seed_generators(seed: int) -> None:
    """Start the process-wide generators of torch, numpy and Python from a seed.

    Done before every stage, so that even code that draws from them does not depend on what ran or was reused before.
    """
    import torch

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # for plug-ins that still use it
    torch.manual_seed(seed)


def derive_seed(*parts: int | str) -> int:
    """A seed below 2^31 (numba's limit is the tightest) that follows from its parts and from nothing else."""
    return int(digest(list(parts)), 16) & 0x7FFFFFFF
