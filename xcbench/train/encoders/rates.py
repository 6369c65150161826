"""How the layers of an encoder learn: groups of a training that fit the encoder which it has."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase

from torch import nn

from xcbench.train.encoders.config import EncoderConfig
from xcbench.train.groups import Group
from xcbench.train.loop import GroupedTraining

_LAYER = re.compile(r"(.*\blayers?\.(\d+))\.")
_EMBEDDINGS = re.compile(r"(.*\bembeddings)\.")


def with_encoder_groups(training: GroupedTraining, task: nn.Module, config: EncoderConfig) -> GroupedTraining:
    """Return a training with the groups that fit an encoder.

    A frozen encoder has no parameters, so groups of them are left out. With a `layer_decay`, each layer gets a group of
    its own, and the embeddings below the first layer, too.

    Parameters
    ----------
    training
        The training of a task.
    task
        The task with its encoder.
    config
        The encoder's settings.
    """
    names = [name for name, _ in task.named_parameters()]
    groups = dict(training.groups)
    if config.frozen:
        groups = {key: group for key, group in groups.items() if _matching(names, group)}
    if config.kind == "transformer" and config.layer_decay < 1:
        groups |= _layer_groups(training, names, config.layer_decay)
    return replace(training, groups=groups)


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
    """Return the group that has a parameter: of several whose patterns match, the one with the longest."""
    matching = [key for key, group in training.groups.items() if fnmatchcase(name, group.pattern)]
    if not matching:
        return "encoder", Group(lr=training.lr, schedule=training.schedule)
    key = max(matching, key=lambda key: len(training.groups[key].pattern))
    return key, training.groups[key]


def _matching(names: list[str], group: Group) -> list[str]:
    return [name for name in names if fnmatchcase(name, group.pattern)]
