"""A run by name: what a user asks for, before anything is looked up."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

DEFAULT_DATASET = "lf-debian-4k"


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides a result, and nothing that does not."""

    method: str
    """A registered name, or the path of a Python file that registers one (`mine.py`, `mine.py:name`)."""
    dataset: str = DEFAULT_DATASET
    ablations: tuple[str, ...] = ()
    augment: tuple[str, ...] = ()
    rerank: str | None = None
    preset: str = "auto"
    """A preset's name; `auto` takes the one named like the dataset, if there is one; `none` takes none."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Config keys and values, strings as on a command line; `augment.NAME.key` and `rerank.NAME.key` reach those."""
    seed: int = 0
    ensemble: int = 1

    def arguments(self) -> list[str]:
        """The command line that asks for this run, from the verb on: `["run", "--method", ...]`."""
        words = ["run", "--method", self.method, "--dataset", self.dataset, "--preset", self.preset]
        words += ["--seed", str(self.seed), "--ensemble", str(self.ensemble)]
        for name in self.ablations:
            words += ["--ablation", name]
        for name in self.augment:
            words += ["--augment", name]
        if self.rerank:
            words += ["--rerank", self.rerank]
        for key, value in self.overrides.items():
            words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        return words


class OverwriteStrategy(Enum):
    """What to do about a run that is in the store already."""

    KEEP = "keep"
    """Return the stored record."""
    REDO = "redo"
    """Run again, stages included, and put the new record in its place."""
