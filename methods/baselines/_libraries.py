"""What the wrappers around other people's libraries share. Not a method.

Libraries want points that they can learn from, keep their models in folders of files, and answer in lists of pairs.
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
"""The files of a folder: path in the folder, and content."""


def learnable_points(data: Dataset) -> tuple[sp.csr_array, sp.csr_array]:
    """X and Y of the training points that have both words and labels; a linear classifier learns from no others.

    Libraries know no soft targets: those of at least one half become labels, the others are dropped.
    """
    X = data.train.X
    Y = binary_targets(data.train.Y)
    has_words = np.diff(X.indptr) > 0
    has_labels = np.diff(Y.indptr) > 0
    rows = np.flatnonzero(has_words & has_labels)
    if not len(rows):
        raise InputError(f"dataset {data.name!r} has no training point with both features and labels")
    return X[rows], Y[rows]


def read_files(folder: Path) -> Files:
    """What a library wrote into a folder, as arrays that a stage can keep."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            files[name] = np.fromfile(path, np.uint8)
    return files


def write_files(files: Mapping[str, npt.NDArray[np.uint8]], folder: Path) -> None:
    """Write these files into a folder, for the library to read."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.tobytes())


def best_of_pairs(rows: Sequence[Sequence[tuple[int, float]]], label_count: int, k: int) -> TopK:
    """Predictions that come as one list of (label, score) per point."""
    lengths = [len(row) for row in rows]
    indptr = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    pairs = np.fromiter(itertools.chain.from_iterable(rows), np.dtype("i4,f8"), int(indptr[-1]))
    labels = pairs["f0"]
    scores = pairs["f1"]
    matrix = sp.csr_array((scores, labels, indptr), shape=(len(rows), label_count))
    return TopK.from_csr(matrix, k).padded(k)
