"""A run by name: what a user asks for, before anything is looked up."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypeAlias

from xcbench.defaults import DEFAULT_DATASET

Curve: TypeAlias = Literal["none", "test", "slice"]
"""Whether a run has a learning curve, and on which points: test points, or a slice of the training points."""


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides a result, and nothing that does not."""

    method: str
    """A registered name, or the path of a Python file that registers one (`mine.py`, `mine.py:name`)."""
    dataset: str = DEFAULT_DATASET
    """A dataset's name, or a path."""
    ablations: tuple[str, ...] = ()
    """Named variations of the method."""
    augment: tuple[str, ...] = ()
    """Augmentations of the training data, applied in this order."""
    rerank: str | None = None
    """A reranker of the predictions."""
    preset: str = "auto"
    """A preset's name; `auto` takes the one named like the dataset, if there is one; `none` takes none."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Config keys and values, strings as on a command line.

    `augment.NAME.key` and `rerank.NAME.key` are the settings of augmentations and of the reranker.
    """
    seed: int = 0
    """Decides everything random."""
    ensemble: int = 1
    """How many members are trained and averaged."""
    curve: Curve = "none"
    """Whether the record has a learning curve. This alone decides nothing of the result, and is no part of its id."""

    def arguments(self) -> list[str]:
        """Return the command line that asks for this run, from the verb on: `["run", "--method", ...]`."""
        words = ["run"]
        words += ["--method", self.method]
        words += ["--dataset", self.dataset]
        words += ["--preset", self.preset]
        words += ["--seed", str(self.seed)]
        words += ["--ensemble", str(self.ensemble)]
        for name in self.ablations:
            words += ["--ablation", name]
        for name in self.augment:
            words += ["--augment", name]
        if self.rerank:
            words += ["--rerank", self.rerank]
        if self.curve != "none":
            words += ["--curve", self.curve]
        for key, value in self.overrides.items():
            words += ["--set", f"{key}={_as_text(value)}"]
        return words


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


class OverwriteStrategy(Enum):
    """What to do about a run that is in the store already."""

    KEEP = "keep"
    """Return the stored record."""
    STALE = "stale"
    """Run again if other code made the record; stages that this code made are reused."""
    REDO = "redo"
    """Run again, stages included, and replace the record."""
