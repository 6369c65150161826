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
    """`key.path=value` as key and value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"expected key.path=value, got {text!r}")
    return key.strip(), value.strip()


def compose(patches: Iterable[tuple[str, Patch]]) -> dict[str, Any]:
    """Several patches as one. Each comes with the name of who asks for it; two that disagree are an error."""
    combined: dict[str, tuple[str, Any]] = {}
    for source, patch in patches:
        for key, value in patch.items():
            for other, (earlier, old) in combined.items():
                same = other == key and _spelt(old) == _spelt(value)
                if not same and (_within(key, other) or _within(other, key)):
                    raise InputError(f"{source} sets {key} to {value!r}, but {earlier} sets {other} to {old!r}")
            combined[key] = (source, value)
    return {key: value for key, (_, value) in combined.items()}


def build(config_type: type, *patches: Patch, owner: str = "") -> Any:
    """The config with patches applied in order, later ones winning, as an instance of its dataclass."""
    config = OmegaConf.structured(config_type)
    _unlock(config)
    for patch in patches:
        for key, value in patch.items():
            _assign(config, config_type, key, value, owner)
    try:
        built = OmegaConf.to_object(config)
    except (OmegaConfBaseException, ValueError) as error:  # the second is a dataclass that checks itself
        raise InputError(f"config{f' of {owner}' if owner else ''}: {str(error).splitlines()[0]}") from None
    for key, value in leaves(built).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"config key {key} expects a finite number, got {value}")
    return built


def changes(config_type: type, patch: Patch) -> list[Change]:
    """Exactly which keys a patch changes, from what to what; keys that keep their value are left out."""
    before, after = leaves(build(config_type)), leaves(build(config_type, patch))
    keys = [*before, *(key for key in after if key not in before)]
    return [Change(k, before.get(k), after.get(k)) for k in keys if before.get(k) != after.get(k)]


def leaves(config: Any) -> dict[str, Any]:
    """Every setting of a config by its dotted key."""
    found: dict[str, Any] = {}

    def walk(value: Any, prefix: str) -> None:
        if isinstance(value, Mapping) and value:
            for key, item in value.items():
                walk(item, f"{prefix}.{key}" if prefix else key)
        else:
            found[prefix] = value

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
            keys.update({f"{field.name}.{key}": kind for key, kind in known_keys(declared).items()})
    return keys


def _assign(config: DictConfig, config_type: type, key: str, value: Any, owner: str) -> None:
    keys = known_keys(config_type)
    if key not in keys and not _inside_mapping(key, keys):
        raise unknown_name(f"config key{f' of {owner}' if owner else ''}", key, keys)
    if isinstance(value, str) and "${" in value:
        raise InputError(f"config key {key}: '${{' is not allowed in a value, got {value!r}")
    readings = _readings(value, keys.get(key))
    if dataclasses.is_dataclass(keys.get(key)) and isinstance(readings[0], Mapping):
        for inner, item in readings[0].items():
            _assign(config, config_type, f"{key}.{inner}", item, owner)
    elif not any(_accepts(config, key, candidate) for candidate in readings):
        raise InputError(f"config key {key} expects {type_name(keys.get(key, Any))}, got {value!r}")


def _accepts(config: DictConfig, key: str, value: Any) -> bool:
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
    plain = declared in (str, int, float, bool) or (isinstance(declared, type) and issubclass(declared, Enum))
    structured = parsed is None or isinstance(parsed, (list, dict))
    if declared is str:
        return [value]
    return [value, parsed] if plain and not structured else [parsed, value]


def _inside_mapping(key: str, keys: Mapping[str, Any]) -> bool:
    """Whether a key lies in a field that is itself a free mapping (`dict[str, float]`)."""
    return any(
        key.startswith(f"{other}.") and typing.get_origin(kind) in (dict, Mapping) for other, kind in keys.items()
    )


def type_name(declared: Any) -> str:
    """A type as a user would write it."""
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join("null" if a is type(None) else type_name(a) for a in arguments)
    if isinstance(declared, type) and issubclass(declared, Enum):
        return "one of " + ", ".join(declared.__members__)
    if dataclasses.is_dataclass(declared):
        return "a group of keys (set one inside it)"
    if origin is not None:
        return str(declared).replace("typing.", "")
    return getattr(declared, "__name__", str(declared))


def _unlock(config: Any) -> None:
    """Frozen dataclasses make read-only configs; patches come before the freezing."""
    OmegaConf.set_readonly(config, None)
    for key in config:
        if OmegaConf.is_config(child := config._get_node(key)) and not child._is_none():
            _unlock(child) if OmegaConf.is_dict(child) else OmegaConf.set_readonly(child, None)


def _spelt(value: Any) -> str:
    """A value as `--set` would give it, which knows text only."""
    plain = canonical(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}.")
