"""What reading a folder yields: everything as found, made consistent, but not yet a `Dataset`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import TextColumn
from xcbench.data.manifest import Manifest


@dataclass
class Findings:
    """What a reader has to say: what it put right, and what a person should know."""

    repaired: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Sourced:
    """A matrix, the file that it came from, and whether that file says how many columns there are."""

    matrix: sp.csr_array
    file: str
    columns_declared: bool


@dataclass
class Titles:
    """One text a row, and the file that they came from."""

    column: TextColumn
    file: str


@dataclass
class RawSplit:
    """One side as found. `X` is None where there is only text."""

    X: Sourced | None = None
    Y: Sourced | None = None
    titles: Titles | None = None
    filter: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))


@dataclass
class RawDataset:
    """All that a folder holds; `readers.read_raw` has checked that its parts fit each other."""

    train: RawSplit
    test: RawSplit
    Z: Sourced | None = None
    label_titles: Titles | None = None
    manifest: Manifest | None = None
    files: dict[str, str] = field(default_factory=dict)
    """sha256 of every file that was read."""
    findings: Findings = field(default_factory=Findings)

    @property
    def splits(self) -> dict[str, RawSplit]:
        return {"train": self.train, "test": self.test}
