"""Where a measurement keeps its things, and the data that it measures on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from xcbench.data import Dataset, Split
from xcbench.data.binary import load_stored
from xcbench.data.points import take_points
from xcbench.data.synth import default_name
from xcbench.files import home
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.store import Store


@dataclass(frozen=True)
class Place:
    """One measurement: the shape of its data, and the share of the points that is shortlisted and predicted."""

    like: str
    scale: float = 1.0
    share: float = 1.0

    @property
    def name(self) -> str:
        return default_name(self.like, self.scale)

    @property
    def folder(self) -> Path:
        return home() / "scale" / self.name

    @property
    def data_folder(self) -> Path:
        return self.folder / "data"

    @property
    def store(self) -> Store:
        return Store(self.folder / "runs")

    @property
    def cache(self) -> StageCache:
        """Of its own: its trainings are cut short, which the keys of stages do not tell."""
        return StageCache(self.folder / "stages")

    def rows_of(self, step: str) -> Path:
        """Return the file with the rows of a finished step."""
        return self.folder / f"{step}.json"

    def data(self) -> Dataset:
        """Return the dataset, which an earlier step has stored."""
        return load_stored(self.data_folder)

    def some(self, count: int) -> int:
        """Return the share of a number of points."""
        return max(1, round(self.share * count))

    def with_few_test_points(self, data: Dataset, count: int) -> Dataset:
        """Return a dataset whose test points are cut to some."""
        return replace(data, test=first_points(data.test, count))


def first_points(split: Split, count: int) -> Split:
    """Return the first points of a split."""
    return take_points(split, np.arange(min(count, len(split))))
