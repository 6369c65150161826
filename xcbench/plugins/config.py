"""Typed configs and the patches on them: presets, ablations and what a user sets on the command line.

A config is a dataclass with defaults. A key that does not exist, or a value that does not fit, is an error that
names the nearest key or the expected type; nothing is ever ignored.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from xcbench.errors import InputError, unknown_name
from xcbench.plugins.contract import Patch
from xcbench.plugins.stages import canonical


@dataclass(frozen=True)
class Change:
    """One key that a patch changes."""

    key: str
    old: Any
    new: Any


def parse_assignment(text: str) -> tuple[str, str]:
    """Split `key.path=value` into key and value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"expected key.path=value, got {text!r}")
    return key.strip(), value.strip()


def compose(patches: Iterable[tuple[str, Patch]]) -> dict[str, Any]:
    """Several patches as one; two that disagree are an error.

    Parameters
    ----------
    patches
        Each patch with the name of who asks for it.
    """
    combined: dict[str, Any] = {}
    set_by: dict[str, str] = {}
    for source, patch in patches:
        for key, value in patch.items():
            for other, earlier in combined.items():
                if _disagree(key, value, other, earlier):
                    raise InputError(
                        f"{source} sets {key} to {value!r}, but {set_by[other]} sets {other} to {earlier!r}"
                    )
            combined[key] = value
            set_by[key] = source
    return combined


def _disagree(key: str, value: Any, other: str, earlier: Any) -> bool:
    """Whether two assignments touch the same setting and differ."""
    if key == other:
        return _as_text(value) != _as_text(earlier)
    return _within(key, other) or _within(other, key)


def build(config_type: type, *patches: Patch, owner: str = "") -> Any:
    """An instance of a config with patches applied.

    Parameters
    ----------
    config_type
        A dataclass with defaults.
    patches
        Applied in order; later ones win.
    owner
        The name that error messages give to whoever has this config.
    """
    of_owner = f" of {owner}" if owner else ""
    config = OmegaConf.structured(config_type)
    _unlock(config)
    for patch in patches:
        for key, value in patch.items():
            _assign(config, config_type, key, value, of_owner)

    try:
        built = OmegaConf.to_object(config)
    except (OmegaConfBaseException, ValueError) as error:  # the second is a dataclass that checks itself
        raise InputError(f"config{of_owner}: {str(error).splitlines()[0]}") from None

    for key, value in leaves(built).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"config key {key} expects a finite number, got {value}")
    return built


def changes(config_type: type, patch: Patch) -> list[Change]:
    """Exactly which keys a patch changes, from what to what; keys that keep their value are left out."""
    before = leaves(build(config_type))
    after = leaves(build(config_type, patch))
    found = []
    for key in dict.fromkeys([*before, *after]):
        old = before.get(key)
        new = after.get(key)
        if old != new:
            found.append(Change(key, old, new))
    return found


def leaves(config: Any) -> dict[str, Any]:
    """Every setting of a config by its dotted key."""
    found: dict[str, Any] = {}

    def walk(value: Any, prefix: str) -> None:
        if not isinstance(value, Mapping) or not value:
            found[prefix] = value
            return
        for key, item in value.items():
            walk(item, f"{prefix}.{key}")

    for key, value in canonical(config).items():
        walk(value, key)
    return found


def known_keys(config_type: type) -> dict[str, Any]:
    """Every key that can be set, groups included, with its declared type."""
    keys: dict[str, Any] = {}
    hints = typing.get_type_hints(config_type)
    for field in dataclasses.fields(config_type):
        declared = hints[field.name]
        keys[field.name] = declared
        if isinstance(declared, type) and dataclasses.is_dataclass(declared):
            for key, inner in known_keys(declared).items():
                keys[f"{field.name}.{key}"] = inner
    return keys


def type_name(declared: Any) -> str:
    """A type as a user would write it."""
    origin = typing.get_origin(declared)
    arguments = typing.get_args(declared)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(argument) for argument in arguments)
    if declared is type(None):
        return "null"
    if isinstance(declared, type) and issubclass(declared, Enum):
        return "one of " + ", ".join(declared.__members__)
    if dataclasses.is_dataclass(declared):
        return "a group of keys (set one inside it)"
    if origin is not None:
        return str(declared).replace("typing.", "")
    return getattr(declared, "__name__", str(declared))


def _assign(config: DictConfig, config_type: type, key: str, value: Any, of_owner: str) -> None:
    keys = known_keys(config_type)
    if key not in keys and not _inside_mapping(key, keys):
        raise unknown_name(f"config key{of_owner}", key, keys)
    if isinstance(value, str) and "${" in value:
        raise InputError(f"config key {key}: '${{' is not allowed in a value, got {value!r}")

    declared = keys.get(key)
    readings = _readings(value, declared)
    if dataclasses.is_dataclass(declared) and isinstance(readings[0], Mapping):
        for inner, item in readings[0].items():
            _assign(config, config_type, f"{key}.{inner}", item, of_owner)
        return
    if not any(_accepts(config, key, reading) for reading in readings):
        raise InputError(f"config key {key} expects {type_name(keys.get(key, Any))}, got {value!r}")


def _accepts(config: DictConfig, key: str, value: Any) -> bool:
    """Set a key if the value fits its type; returns whether it does."""
    try:
        OmegaConf.update(config, key, value, merge=False)
    except (OmegaConfBaseException, ValueError, TypeError):
        return False
    return True


def _readings(value: Any, declared: Any) -> list[Any]:
    """What a value may mean, the likeliest first: text from a command line is text only where text is expected."""
    if not isinstance(value, str):
        return [value]
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError:
        return [value]
    if declared is str:
        return [value]

    is_plain_type = declared in (int, float, bool)
    if isinstance(declared, type) and issubclass(declared, Enum):
        is_plain_type = True
    is_structure = parsed is None or isinstance(parsed, (list, dict))
    if is_plain_type and not is_structure:
        return [value, parsed]
    return [parsed, value]


def _inside_mapping(key: str, keys: Mapping[str, Any]) -> bool:
    """Whether a key lies in a field that is itself a free mapping (`dict[str, float]`)."""
    for other, declared in keys.items():
        if key.startswith(f"{other}.") and typing.get_origin(declared) in (dict, Mapping):
            return True
    return False


def _unlock(config: Any) -> None:
    """Frozen dataclasses make read-only configs; patches come before the freezing."""
    OmegaConf.set_readonly(config, None)
    for key in config:
        child = config._get_node(key)
        if not OmegaConf.is_config(child) or child._is_none():
            continue
        if OmegaConf.is_dict(child):
            _unlock(child)
        else:
            OmegaConf.set_readonly(child, None)


def _as_text(value: Any) -> str:
    """A value as `--set` would give it, which knows text only."""
    plain = canonical(value)
    if isinstance(plain, str):
        return plain
    return json.dumps(plain)


def _within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}.")
