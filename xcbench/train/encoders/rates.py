"""How the layers of an encoder learn: groups of a training that fit the encoder which it has."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase

from torch import nn

from xcbench.train.encoders.config import EncoderConfig
from xcbench.train.encoders.titles import Dropping
from xcbench.train.groups import Group
from xcbench.train.loop import GroupedTraining

_LAYER = re.compile(r"(.*\blayers?\.(\d+))\.")
_EMBEDDINGS = re.compile(r"(.*\bembeddings)\.")


def with_encoder_groups(training: GroupedTraining, task: nn.Module, config: EncoderConfig) -> GroupedTraining:
    """Return a training with the groups that fit an encoder.

    With a `layer_decay`, the embeddings and each layer above them get a group of their own. Groups of the encoder that
    have no parameter left are dropped: all, where it is frozen.

    Parameters
    ----------
    training
        The training of a task.
    task
        The task with its encoder.
    config
        The encoder's settings.
    """
    place = next((name for name, module in task.named_modules() if isinstance(module, Dropping)), None)
    if place is None:
        return training
    names = [name for name, _ in task.named_parameters()]
    layers = {}
    if config.layer_decay < 1:
        layers = _layer_groups(training, names, config.layer_decay)
    left = [name for name in names if not any(fnmatchcase(name, layer.pattern) for layer in layers.values())]

    groups = {}
    for key, group in training.groups.items():
        is_of_encoder = fnmatchcase(f"{place}.", group.pattern)
        if not is_of_encoder or any(fnmatchcase(name, group.pattern) for name in left):
            groups[key] = group
    return replace(training, groups=groups | layers)


def _layer_groups(training: GroupedTraining, names: list[str], decay: float) -> dict[str, Group]:
    """Return a group for the embeddings and for each layer, named like `encoder 3`."""
    depths: dict[str, int] = {}
    for name in names:
        layer = _LAYER.match(name)
        embeddings = _EMBEDDINGS.match(name)
        if layer:
            depths[layer[1]] = int(layer[2]) + 1
        elif embeddings:
            depths[embeddings[1]] = 0
    top = max(depths.values(), default=0)
    found = {}
    for prefix, depth in depths.items():
        key, group = _group_of(f"{prefix}.", training)
        lr = training.lr if group.lr is None else group.lr
        found[f"{key} {depth}"] = replace(group, pattern=f"{prefix}.*", lr=lr * decay ** (top - depth))
    return found


def _group_of(name: str, training: GroupedTraining) -> tuple[str, Group]:
    """Return the group of a parameter: of several whose patterns match, the one with the longest."""
    matching = [key for key, group in training.groups.items() if fnmatchcase(name, group.pattern)]
    if not matching:
        return "encoder", Group()
    key = max(matching, key=lambda key: len(training.groups[key].pattern))
    return key, training.groups[key]
