"""Reading a sparse text matrix, compared with scikit-learn's svmlight reader on the same file, one thread each."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from benchmarks.figure import Figure, cpu_seconds
from xcbench.data.sparse_text import read_points

POINTS = 100_000
FEATURES = 40_000
LABELS = 131_073
PER_POINT = 20


def measure() -> Iterator[Figure]:
    """Compare the CPU times of reading."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.svm"
        _write(path)
        read_points(path)  # compiles
        ours = cpu_seconds(lambda: read_points(path))
        theirs = cpu_seconds(lambda: _scikit_learn(path))
        megabytes = path.stat().st_size / 1e6
    yield Figure(
        what=f"read {POINTS:,} points x {PER_POINT} features ({megabytes:.0f} MB of text)",
        ours=ours,
        reference=theirs,
        unit="CPU s",
        reference_name="sklearn.datasets.load_svmlight_file",
        at_least=3,
        note=f"{megabytes / ours:.0f} MB/s",
    )


def _scikit_learn(path: Path) -> object:
    return load_svmlight_file(
        str(path),
        multilabel=True,
        zero_based=True,
        dtype=np.float32,
    )


def _write(path: Path) -> None:
    """Write points with three labels and sorted features of six decimals, as the XC repository's files have them."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, FEATURES - PER_POINT, (POINTS, PER_POINT))
    ids = np.sort(ids, axis=1) + np.arange(PER_POINT)  # distinct within a row
    labels = rng.integers(0, LABELS, (POINTS, 3))
    values = rng.random((POINTS, PER_POINT))

    with path.open("w") as file:
        for row in range(POINTS):
            names = ",".join(map(str, labels[row]))
            ids_and_values = zip(ids[row], values[row], strict=True)
            pairs = " ".join(f"{id_}:{value:.6f}" for id_, value in ids_and_values)
            file.write(f"{names} {pairs}\n")
