"""Between our data and other people's libraries: points they can learn from, models they keep in folders of their own.

Not a method; what the wrappers around libraries share.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.data.matrices import binary_targets
from xcbench.errors import InputError

Files: TypeAlias = dict[str, npt.NDArray[np.uint8]]


def learnable_points(data: Dataset) -> tuple[sp.csr_array, sp.csr_array]:
    """X and Y of the training points that have both words and labels; the others teach a linear classifier nothing.

    Libraries know no soft targets: those from one half up become whole labels, the others none.
    """
    X, Y = data.train.X, binary_targets(data.train.Y)
    rows = np.flatnonzero((np.diff(X.indptr) > 0) & (np.diff(Y.indptr) > 0))
    if not len(rows):
        raise InputError(f"dataset {data.name!r} has no training point with both features and labels")
    return X[rows], Y[rows]


def read_files(folder: Path) -> Files:
    """What a library wrote into a folder, as arrays that a stage can keep."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): np.fromfile(path, np.uint8) for path in paths}


def write_files(files: Mapping[str, npt.NDArray[np.uint8]], folder: Path) -> None:
    """The same files, for the library to read."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.tobytes())


def best_of_pairs(rows: Sequence[Sequence[tuple[int, float]]], label_count: int, k: int) -> TopK:
    """Predictions that come as one list of (label, score) a point."""
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64)))
    pairs = np.fromiter(itertools.chain.from_iterable(rows), np.dtype("i4,f8"), int(indptr[-1]))
    best = TopK.from_csr(sp.csr_array((pairs["f1"], pairs["f0"], indptr), shape=(len(rows), label_count)), k)
    return best.padded(k)
