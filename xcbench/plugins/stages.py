"""Stages: steps of a method that are kept, shared between runs, and survive a killed process.

A stage is a function under `@stage(...)`. The decorator declares which settings, which data and which earlier stages
the function reads; these make the key under which its output is kept. The function is given exactly these: reading a
setting, a dataset or a stage that was not declared raises. So no key can forget an input, and an ablation computes
anew exactly the stages that read what it changes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from xcbench.data import Dataset
from xcbench.errors import XCBenchError

CORE_VERSION = 2
"""Raised whenever a change to a room that methods build on changes what they compute; nothing older is reused."""

Config = TypeVar("Config")
Source: TypeAlias = Literal["data", "unaugmented"]
Values: TypeAlias = Mapping[str, Any]

IDENTITY = "identity"
"""Key in a config field's metadata: a function from the field's value to what identifies it in a stage's key."""

LATER = "later"
"""In the metadata of a setting that a plug-in got later: the value at which a run is what it was before, and has the
same id."""


@dataclass(frozen=True)
class AllBut:
    """All settings of a config but these; see `all_but`."""

    keys: tuple[str, ...]


def all_but(*keys: str) -> AllBut:
    """Declare that a stage reads every setting except those named."""
    return AllBut(keys)


@dataclass(frozen=True, eq=False)
class Stage:
    """A declared step of a method. Made by `@stage`; `run.stage(step, data)` computes it or reads it from the cache."""

    name: str
    function: Callable[[StageWork[Any]], Values]
    settings: tuple[str, ...] | AllBut
    sources: tuple[Source, ...]
    after: tuple[Stage, ...]
    seeded: bool
    shared: bool
    version: str | None

    def depends_on(self, other: Stage) -> bool:
        """Whether `other` is this stage or comes, directly or not, before it."""
        if self is other:
            return True
        return any(earlier.depends_on(other) for earlier in self.after)

    def reads(self, key: str) -> bool:
        """Whether the setting with this dotted key, or a group that contains it, is declared."""
        if isinstance(self.settings, AllBut):
            return not any(_contains(excluded, key) for excluded in self.settings.keys)
        return any(_contains(declared, key) for declared in self.settings)

    def reads_inside(self, key: str) -> bool:
        """Whether some of the settings in the group with this dotted key are declared."""
        if isinstance(self.settings, AllBut):
            return self.reads(key)
        return any(_contains(key, declared) for declared in self.settings)

    def identity(self, config: Any) -> dict[str, Any]:
        """The declared settings by dotted key, as they enter the stage's key."""
        return {key: value for key, value in _identities(config) if self.reads(key)}


def stage(
    *,
    settings: Iterable[str] | AllBut = (),
    data: Source | Iterable[Source] = "data",
    after: Iterable[Stage] = (),
    seeded: bool = True,
    shared: bool = False,
    version: str | None = None,
    name: str | None = None,
) -> Callable[[Callable[[StageWork[Any]], Values]], Stage]:
    """Declare a function as a stage.

    Parameters
    ----------
    settings
        Dotted config keys that the function reads. The key of a group declares all settings in it. `all_but("key")`
        declares all settings but those named.
    data
        `"data"`, what `fit` was given; `"unaugmented"`, the data before any augmentation; or both.
    after
        The stages whose output the function reads.
    seeded
        False if nothing in it is random: it is then shared between seeds.
    shared
        Whether all members of an ensemble share it.
    version
        Raise it when the code computes something else. By default the method's own `version` counts.
    name
        The stage's name; by default the function's.
    """
    declared = settings if isinstance(settings, AllBut) else tuple(settings)
    sources: tuple[Any, ...] = (data,) if isinstance(data, str) else tuple(data)

    def decorate(function: Callable[[StageWork[Any]], Values]) -> Stage:
        return Stage(
            name=name or function.__name__,
            function=function,
            settings=declared,
            sources=sources,
            after=tuple(after),
            seeded=seeded,
            shared=shared,
            version=version,
        )

    return decorate


@dataclass(frozen=True)
class StageWork(Generic[Config]):
    """What the function of a stage is given: its declared inputs, its seed, and where it works."""

    stage: Stage
    config: Config
    """The declared settings; reading any other raises."""
    datasets: Mapping[Source, Dataset]
    outputs: Callable[[Stage], Values]
    seed: int
    """The stage's own: differs between stages, runs and ensemble members; 0 for a stage that is not seeded."""
    device: str
    checkpoints: Path
    """A folder that outlives a killed process and is emptied when the stage is finished."""
    log: Callable[[str], None]
    progress: Callable[..., Iterable[Any]]

    @property
    def data(self) -> Dataset:
        """The data that `fit` was given."""
        return self._dataset("data")

    @property
    def unaugmented(self) -> Dataset:
        """The data before any augmentation."""
        return self._dataset("unaugmented")

    def __getitem__(self, earlier: Stage) -> Values:
        """The output of an earlier stage."""
        if earlier is self.stage or not self.stage.depends_on(earlier):
            raise XCBenchError(
                f"stage {self.stage.name!r} reads stage {earlier.name!r} without declaring it in `after`"
            )
        return self.outputs(earlier)

    def generator(self) -> np.random.Generator:
        """A numpy generator that starts from the stage's seed."""
        return np.random.default_rng(self.seed)

    def _dataset(self, source: Source) -> Dataset:
        if source not in self.stage.sources:
            raise XCBenchError(f"stage {self.stage.name!r} reads {source!r} without declaring it in `data`")
        return self.datasets[source]


class ConfigView:
    """The settings of a config that a stage declares, read like the config itself. Reading any other raises.

    Methods and properties of the config work on the view, so that they, too, see only what is declared.
    """

    def __init__(self, config: Any, stage: Stage, prefix: str = "") -> None:
        self._config = config
        self._stage = stage
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in _field_names(self._config):
            return self._bound(name)

        key = self._prefix + name
        value = getattr(self._config, name)
        if self._stage.reads(key) and not _has_excluded(self._stage, key):
            return value
        if dataclasses.is_dataclass(value) and self._stage.reads_inside(key):
            return ConfigView(value, self._stage, f"{key}.")
        raise XCBenchError(f"stage {self._stage.name!r} reads setting {key!r} without declaring it in `settings`")

    def _bound(self, name: str) -> Any:
        """A method or property of the config, with this view as its `self`."""
        attribute = getattr(type(self._config), name)
        if isinstance(attribute, property) and attribute.fget is not None:
            return attribute.fget(self)
        if isinstance(attribute, types.FunctionType):
            return types.MethodType(attribute, self)
        return attribute


def settings_of(config: Any) -> dict[str, Any]:
    """The declared settings by name, for a library that takes them as they are.

    Parameters
    ----------
    config
        The `config` of a stage's work, of which no setting lies in a group.
    """
    return {name: getattr(config, name) for name in _field_names(config._config) if config._stage.reads(name)}


def _field_names(config: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(config)]


def _has_excluded(stage: Stage, key: str) -> bool:
    """Whether a setting inside of this group is not to be read."""
    if not isinstance(stage.settings, AllBut):
        return False
    return any(_contains(key, excluded) for excluded in stage.settings.keys)


def _contains(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}.")


def _identities(config: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Every setting of a config by its dotted key, as what identifies it."""
    for field in dataclasses.fields(config):
        key = prefix + field.name
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _identities(value, f"{key}.")
        elif IDENTITY in field.metadata:
            yield key, field.metadata[IDENTITY](value)
        else:
            yield key, canonical(value)


def canonical(value: Any) -> Any:
    """A config or any part of one as plain JSON, equal for equal settings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        settings = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        as_before = {
            field.name
            for field in dataclasses.fields(value)
            if LATER in field.metadata and field.metadata[LATER] == settings[field.name]
        }
        return {name: canonical(setting) for name, setting in settings.items() if name not in as_before}
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
