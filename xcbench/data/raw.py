"""What reading a folder returns: the content of its files, made consistent, but not yet a `Dataset`."""

from __future__ import annotations

from dataclasses import dataclass, field

import scipy.sparse as sp

from xcbench.data.dataset import Pairs, TextColumn, no_pairs
from xcbench.data.manifest import Manifest


@dataclass
class Findings:
    """What a reader reports to the user: `repaired` lists what it corrected, `notes` what is worth knowing."""

    repaired: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(eq=False)
class FileMatrix:
    """A matrix, the name of its file, and whether that file declares the number of columns."""

    matrix: sp.csr_array
    file: str
    columns_declared: bool


@dataclass
class FileTitles:
    """One title per row, and the name of their file."""

    column: TextColumn
    file: str


@dataclass
class RawSplit:
    """The content of one split's files. `X` is None where there is only text."""

    X: FileMatrix | None = None
    Y: FileMatrix | None = None
    titles: FileTitles | None = None
    filter: Pairs = field(default_factory=no_pairs)


@dataclass
class RawDataset:
    """The content of a folder. `readers.read_raw` has checked that its parts are consistent."""

    train: RawSplit
    test: RawSplit
    Z: FileMatrix | None = None
    label_titles: FileTitles | None = None
    manifest: Manifest | None = None
    files: dict[str, str] = field(default_factory=dict)
    """sha256 of every file that was read, by file name."""
    findings: Findings = field(default_factory=Findings)

    @property
    def splits(self) -> dict[str, RawSplit]:
        """Both splits by their names, "train" and "test"."""
        return {"train": self.train, "test": self.test}
