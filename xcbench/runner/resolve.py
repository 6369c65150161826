"""From the names in a `RunSpec` to the things they mean, and to the identity of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xcbench.data import Dataset
from xcbench.errors import InputError, unknown_name
from xcbench.plugins import registry
from xcbench.plugins.config import build, compose
from xcbench.plugins.contract import Augmentation, Method, Patch, PlugIn, Reranker
from xcbench.plugins.stages import CORE_VERSION, canonical, digest
from xcbench.runner.spec import RunSpec


@dataclass(frozen=True)
class ResolvedRun:
    """A run that is ready to start."""

    spec: RunSpec
    data: Dataset
    method: Method[Any]
    augmentations: tuple[Augmentation[Any], ...]
    reranker: Reranker[Any] | None
    preset: str | None
    """The preset that was applied, if any."""
    source: str
    """What the dataset was loaded by: a name, or a path from the root on."""
    handed_over: bool = False
    """Whether the data came from the caller: another process could not load it."""

    @property
    def ablations(self) -> tuple[str, ...]:
        """Their order and repetitions mean nothing."""
        return tuple(sorted(set(self.spec.ablations)))

    @property
    def config(self) -> dict[str, Any]:
        """Every setting: the method's own keys, and those of augmentations and reranker under their names."""
        config: dict[str, Any] = canonical(self.method.config)
        if self.augmentations:
            config["augment"] = {plugin.name: canonical(plugin.config) for plugin in self.augmentations}
        if self.reranker:
            config["rerank"] = {self.reranker.name: canonical(self.reranker.config)}
        return config

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides the result. Threads and device change at most the rounding, so they are only recorded.

        An ablation's name counts although its patch is in the config: a run is looked up by the row it stands for.
        """
        plugins: list[PlugIn[Any]] = [self.method, *self.augmentations]
        plugins += [self.reranker] if self.reranker else []
        return {
            "core": CORE_VERSION,
            "code": [f"{plugin.name} {plugin.code_version}" for plugin in plugins],
            "config": self.config,
            "ablations": self.ablations,
            "data": self.data.fingerprint,
            "seed": self.spec.seed,
            "ensemble": self.spec.ensemble,
        }

    @property
    def id(self) -> str:
        """The name of the run's record."""
        return f"{self.method.name}-{digest(self.identity, 12)}"


def resolve(spec: RunSpec, data: Dataset | None = None) -> ResolvedRun:
    """Look everything up and check it; whatever is wrong with a spec is an `InputError` from here.

    `data` stands in for the dataset that the spec names.
    """
    if spec.ensemble < 1:
        raise InputError(f"an ensemble has at least 1 member, got {spec.ensemble}")
    if spec.seed < 0:
        raise InputError(f"a seed is at least 0, got {spec.seed}")
    method_type = registry.get_method(spec.method)
    own, for_augment, for_rerank = _split(spec)
    patches = [(f"ablation {name!r}", _ablation(method_type, name)) for name in spec.ablations]
    patch = compose([*patches, ("--set", own)])
    build(method_type.config_type, patch, owner=method_type.name)  # a typing error shows before the data is loaded
    augmentations = tuple(
        _configured(registry.get_augmentation(name), for_augment, "augment") for name in dict.fromkeys(spec.augment)
    )
    for plugin in augmentations:
        if plugin.ignores_pairs and not method_type.can_ignore_pairs:
            raise InputError(f"{plugin.name} needs a method that can leave pairs open; {method_type.name} cannot")
    reranker = _configured(registry.get_reranker(spec.rerank), for_rerank, "rerank") if spec.rerank else None
    _refuse_leftovers(for_augment, "augmentation", [plugin.name for plugin in augmentations])
    _refuse_leftovers(for_rerank, "reranker", [reranker.name] if reranker else [])
    handed_over = data is not None
    data, source = _load(spec.dataset) if data is None else (data, data.name)
    preset = _choose_preset(spec, method_type, data.name)
    config = build(method_type.config_type, method_type.presets.get(preset or "", {}), patch, owner=method_type.name)
    return ResolvedRun(spec, data, method_type(config), augmentations, reranker, preset, source, handed_over)


def _load(name: str) -> tuple[Dataset, str]:
    from xcbench.data.catalog import dataset_names, load_dataset

    data = load_dataset(name)
    return data, name if name in dataset_names() else str(Path(name).expanduser().absolute())


def _ablation(method: type[Method[Any]], name: str) -> Patch:
    if name not in method.ablations:
        raise unknown_name(f"ablation of {method.name}:", name, method.ablations)
    return method.ablations[name].patch


def _choose_preset(spec: RunSpec, method: type[Method[Any]], dataset: str) -> str | None:
    by_name = {name.casefold(): name for name in method.presets}
    if spec.preset == "none":
        return None
    if spec.preset == "auto":
        return by_name.get(dataset.casefold())
    if spec.preset.casefold() not in by_name:
        raise unknown_name(f"preset of {method.name}:", spec.preset, method.presets)
    return by_name[spec.preset.casefold()]


def _split(spec: RunSpec) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The overrides of the method, and by plug-in those of augmentations and reranker."""
    own: dict[str, Any] = {}
    others: dict[str, dict[str, dict[str, Any]]] = {"augment": {}, "rerank": {}}
    for key, value in spec.overrides.items():
        head, _, rest = key.partition(".")
        if head not in others:
            own[key] = value
            continue
        name, _, inner = rest.partition(".")
        if not inner:
            raise InputError(f"config key {key!r}: expected {head}.NAME.key")
        others[head].setdefault(name, {})[inner] = value
    return own, others["augment"], others["rerank"]


def _configured(plugin: type[Any], patches: Mapping[str, Patch], kind: str) -> Any:
    return plugin(build(plugin.config_type, patches.get(plugin.name, {}), owner=f"{kind}.{plugin.name}"))


def _refuse_leftovers(patches: Mapping[str, Patch], kind: str, used: list[str]) -> None:
    for name in patches:
        if name not in used:
            raise unknown_name(f"{kind} of this run:", name, used)
