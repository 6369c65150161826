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
from xcbench.plugins.contract import Augmentation, Method, Patch, PlugIn, Reranker, VectorPredictor
from xcbench.plugins.stages import CORE_VERSION, canonical, digest
from xcbench.runner.source_code import code_of, source_of
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
    """What the dataset was loaded by: a name, or an absolute path."""
    handed_over: bool = False
    """Whether the data came from the caller: another process could not load it."""

    @property
    def ablations(self) -> tuple[str, ...]:
        """The names of the ablations, sorted and without repetitions, which change nothing."""
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
        """Everything that decides the result. Threads and device change at most the rounding, so they are left out.

        An ablation's name is part of it although its patch is in the config: the runs of a table's row are looked up by
        the names of its ablations.
        """
        return {
            "core": CORE_VERSION,
            "code": [f"{plugin.name} {plugin.code_version}" for plugin in self.plugins],
            "config": self.config,
            "ablations": self.ablations,
            "data": self.data.fingerprint,
            "seed": self.spec.seed,
            "ensemble": self.spec.ensemble,
        }

    @property
    def plugins(self) -> tuple[PlugIn[Any], ...]:
        """Method, augmentations and reranker."""
        if self.reranker is None:
            return (self.method, *self.augmentations)
        return (self.method, *self.augmentations, self.reranker)

    @property
    def code(self) -> str:
        """The digest of the code that can change the figures. It is no part of the id: a record says which code made
        it, and stays findable when the code changes."""
        return code_of(*(source_of(type(plugin)) for plugin in self.plugins))

    @property
    def id(self) -> str:
        """The name of the run's record."""
        return f"{self.method.name}-{digest(self.identity, 12)}"


def resolve(spec: RunSpec, data: Dataset | None = None) -> ResolvedRun:
    """Look up everything that a spec names, and check it. Raises an `InputError` if anything is wrong.

    Parameters
    ----------
    spec
        The run by name.
    data
        Takes the place of the dataset that the spec names.
    """
    _check_numbers(spec)
    method_type = registry.get_method(spec.method)
    overrides = _split_overrides(spec)
    patch = _method_patch(spec, method_type, overrides)
    augmentations = _augmentations(spec, method_type, overrides)
    reranker = _reranker(spec, overrides)
    if reranker is not None and reranker.reads_vectors:
        _check_vectors(method_type, reranker)

    # Loading comes last, so that a typing error shows at once.
    handed_over = data is not None
    if data is None:
        data, source = _load(spec.dataset)
    else:
        source = data.name

    preset = _choose_preset(spec, method_type, data.name)
    preset_patch = method_type.presets[preset] if preset else {}
    config = build(method_type.config_type, preset_patch, patch, owner=method_type.name)
    method = method_type(config)
    check_titles(method, data)

    return ResolvedRun(
        spec=spec,
        data=data,
        method=method,
        augmentations=augmentations,
        reranker=reranker,
        preset=preset,
        source=source,
        handed_over=handed_over,
    )


def check_titles(method: Method[Any], data: Dataset) -> None:
    """Raise an `InputError` if a method that reads titles meets points without them."""
    has_titles = data.train.titles is not None and data.test.titles is not None
    if method.reads_titles() and not has_titles:
        raise InputError(f"method {method.name!r} reads titles, which dataset {data.name!r} does not have")


def _check_numbers(spec: RunSpec) -> None:
    if spec.ensemble < 1:
        raise InputError(f"an ensemble has at least 1 member, got {spec.ensemble}")
    if spec.seed < 0:
        raise InputError(f"a seed is at least 0, got {spec.seed}")


@dataclass(frozen=True)
class _Overrides:
    """The overrides of a spec, by what they configure."""

    method: dict[str, Any]
    augment: dict[str, dict[str, Any]]
    """By the augmentation's name."""
    rerank: dict[str, dict[str, Any]]
    """By the reranker's name."""


def _split_overrides(spec: RunSpec) -> _Overrides:
    """Separate the settings of the method from those of augmentations and reranker, whose keys start with a name."""
    overrides = _Overrides({}, {}, {})
    by_plugin = {"augment": overrides.augment, "rerank": overrides.rerank}

    for key, value in spec.overrides.items():
        kind, _, rest = key.partition(".")
        if kind not in by_plugin:
            overrides.method[key] = value
            continue

        name, _, inner_key = rest.partition(".")
        if not inner_key:
            raise InputError(f"config key {key!r}: expected {kind}.NAME.key")
        by_plugin[kind].setdefault(name, {})[inner_key] = value

    return overrides


def _method_patch(spec: RunSpec, method: type[Method[Any]], overrides: _Overrides) -> Patch:
    """Return what ablations and overrides change, after checking that the method's config accepts it."""
    patches = [(f"ablation {name!r}", _ablation_patch(method, name)) for name in spec.ablations]
    patches.append(("--set", overrides.method))
    patch = compose(patches)
    build(method.config_type, patch, owner=method.name)
    return patch


def _ablation_patch(method: type[Method[Any]], name: str) -> Patch:
    if name not in method.ablations:
        raise unknown_name(f"ablation of {method.name}:", name, method.ablations)
    return method.ablations[name].patch


def _augmentations(
    spec: RunSpec,
    method: type[Method[Any]],
    overrides: _Overrides,
) -> tuple[Augmentation[Any], ...]:
    """Return the augmentations of a run, each once, in the order in which they are applied."""
    augmentations: list[Augmentation[Any]] = []
    for name in dict.fromkeys((*method.augment, *spec.augment)):
        augmentation = _configured(registry.get_augmentation(name), overrides.augment, "augment")
        if augmentation.ignores_pairs and not method.can_ignore_pairs:
            raise InputError(
                f"{augmentation.name} needs a method that can ignore pairs in training; {method.name} cannot"
            )
        if augmentation.mixes_points and not method.can_mix_points:
            raise InputError(
                f"{augmentation.name} needs a method that can mix points as batches are cut; {method.name} cannot"
            )
        augmentations.append(augmentation)

    names = [augmentation.name for augmentation in augmentations]
    _refuse_unused(overrides.augment, "augmentation", names)
    return tuple(augmentations)


def _reranker(spec: RunSpec, overrides: _Overrides) -> Reranker[Any] | None:
    if not spec.rerank:
        _refuse_unused(overrides.rerank, "reranker", [])
        return None

    reranker: Reranker[Any] = _configured(registry.get_reranker(spec.rerank), overrides.rerank, "rerank")
    _refuse_unused(overrides.rerank, "reranker", [reranker.name])
    return reranker


def _check_vectors(method: type[Method[Any]], reranker: Reranker[Any]) -> None:
    """Raise an `InputError` that names the methods with vectors if this one has none."""
    if issubclass(method.predictor_type, VectorPredictor):
        return
    available = [entry for entry in registry.entries("method") if registry.unavailable_reason(entry) is None]
    methods = [registry.get_method(entry.name) for entry in available]
    names = [known.name for known in methods if issubclass(known.predictor_type, VectorPredictor)]
    raise InputError(
        f"{reranker.name}: method {method.name!r} has no vectors of points to read; these have: {', '.join(names)}"
    )


def _configured(plugin: type[Any], patches: Mapping[str, Patch], kind: str) -> Any:
    """Return an augmentation or reranker with its overrides applied."""
    patch = patches.get(plugin.name, {})
    config = build(plugin.config_type, patch, owner=f"{kind}.{plugin.name}")
    return plugin(config)


def _refuse_unused(patches: Mapping[str, Patch], kind: str, names: list[str]) -> None:
    """Raise if there are overrides for a plug-in that is not part of the run."""
    for name in patches:
        if name not in names:
            raise unknown_name(f"{kind} of this run:", name, names)


def _load(name: str) -> tuple[Dataset, str]:
    """Load a dataset; returns it with its name or, if it was loaded from a path, with the absolute path."""
    from xcbench.data.catalog import dataset_names, load_dataset

    data = load_dataset(name)
    if name in dataset_names():
        return data, name
    return data, str(Path(name).expanduser().absolute())


def _choose_preset(spec: RunSpec, method: type[Method[Any]], dataset: str) -> str | None:
    """Return the name of the preset to apply, if any. Upper and lower case are the same."""
    if spec.preset == "none":
        return None

    names = {name.casefold(): name for name in method.presets}
    if spec.preset == "auto":
        return names.get(dataset.casefold())
    if spec.preset.casefold() not in names:
        raise unknown_name(f"preset of {method.name}:", spec.preset, method.presets)
    return names[spec.preset.casefold()]
