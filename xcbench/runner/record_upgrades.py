"""Records of older schemas, step by step in the form of the newest.

The schema changes when a name that `record.json` holds changes: of a field, of a setting, of a plug-in. A sample of
every schema is in `tests/runner/historic_records`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

SCHEMA = 2
"""The schema that is written."""


def upgraded(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a `record.json` in the newest schema.

    Parameters
    ----------
    value
        The content of a record of any schema up to the newest; it is left as it is.
    """
    schema = value["schema"]
    result = dict(value)
    while schema < SCHEMA:
        result = _STEPS[schema](result)
        schema += 1
    result["schema"] = SCHEMA
    return result


def _from_1_to_2(value: dict[str, Any]) -> dict[str, Any]:
    """Rename settings, an augmentation and a state of stages; say which precision `auto` was."""
    is_eclare = value["method"] == "eclare"

    config = _resolved_precision(_renamed_config(value["config"]), value["environment"].get("device", "cpu"))
    overrides = {}
    for key, setting in value["overrides"].items():
        overrides[_renamed_key(key)] = _renamed_config(setting, tuple(key.split(".")))

    if is_eclare:
        config = _with_nested_game(config)
        overrides = {_GAME_OVERRIDES.get(key, key): setting for key, setting in overrides.items()}

    return value | {
        "config": config,
        "overrides": overrides,
        "augment": [_AUGMENTATIONS.get(name, name) for name in value["augment"]],
        "stages": [_renamed_stage(stage) for stage in value["stages"]],
    }


_SETTINGS = {
    "least_steps": "min_steps",
    "free_rate": "label_lr_factor",
    "block_rate": "block_lr_factor",
}
"""Settings of a training, which methods have at any depth of their config."""

_SPARSE_SETTINGS = {"fall": "max_log_drop"}
_SPARSE_RERANKER = (("rerank", "sparse"), ("rerank", "calibrated", "sparse"))
"""Where the settings of the sparse ranker are."""

_AUGMENTATIONS = {"filtered": "ignore-filtered"}

_GAME_OVERRIDES = {"game": "game.mode", "game_power": "game.power"}

_STAGE_STATES = {"beside": "parallel"}


def _renamed_config(value: Any, path: tuple[str, ...] = ()) -> Any:
    """Return a config, or a part of one, with every key renamed; `path` leads to the part."""
    if not isinstance(value, Mapping):
        return value
    return {_renamed_part(path, key): _renamed_config(part, (*path, key)) for key, part in value.items()}


def _renamed_key(dotted: str) -> str:
    """Return the new name of a dotted key, as overrides have them."""
    path: tuple[str, ...] = ()
    renamed = []
    for part in dotted.split("."):
        renamed.append(_renamed_part(path, part))
        path = (*path, part)
    return ".".join(renamed)


def _renamed_part(path: tuple[str, ...], key: str) -> str:
    """Return the new name of one key, given the old keys that lead to it."""
    if path == ("augment",):
        return _AUGMENTATIONS.get(key, key)
    if path in _SPARSE_RERANKER:
        return _SPARSE_SETTINGS.get(key, key)
    return _SETTINGS.get(key, key)


def _resolved_precision(config: Any, device: str) -> Any:
    """Return a config in which `auto`, of precision and compilation, is what it meant on the run's device."""
    if not isinstance(config, Mapping):
        return config
    meaning = {"precision": "float32", "compile": "off"}
    if device.startswith("cuda"):
        meaning = {"precision": "bfloat16", "compile": "on"}
    result = {}
    for key, setting in config.items():
        if key in meaning and setting == "auto":
            result[key] = meaning[key]
        else:
            result[key] = _resolved_precision(setting, device)
    return result


def _with_nested_game(config: dict[str, Any]) -> dict[str, Any]:
    """Return ECLARE's config with the two settings of GAME in one group."""
    result = dict(config)
    game = {}
    if "game" in result:
        game["mode"] = result.pop("game")
    if "game_power" in result:
        game["power"] = result.pop("game_power")
    return result | {"game": game}


def _renamed_stage(stage: Mapping[str, Any]) -> dict[str, Any]:
    state = stage["state"]
    return {**stage, "state": _STAGE_STATES.get(state, state)}


_STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1_to_2}
"""By schema: what makes a record of it one of the next schema."""
