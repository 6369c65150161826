"""Reading a sparse text matrix, against scikit-learn's svmlight reader on the same file, one thread each."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from benchmarks.figure import Figure, cpu_seconds
from xcbench.data.sparse_text import read_points

POINTS, FEATURES, LABELS, PER_POINT = 100_000, 40_000, 131_073, 20


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.svm"
        _write(path)
        read_points(path)  # compiles
        ours = cpu_seconds(lambda: read_points(path))
        theirs = cpu_seconds(lambda: load_svmlight_file(str(path), multilabel=True, zero_based=True, dtype=np.float32))
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


def _write(path: Path) -> None:
    """Three labels and sorted features with six decimals, as the XC repository's files have them."""
    rng = np.random.default_rng(0)
    ids = np.sort(rng.integers(0, FEATURES - PER_POINT, (POINTS, PER_POINT)), axis=1) + np.arange(PER_POINT)
    labels = rng.integers(0, LABELS, (POINTS, 3))
    values = rng.random((POINTS, PER_POINT))
    with path.open("w") as file:
        for row in range(POINTS):
            pairs = " ".join(f"{i}:{v:.6f}" for i, v in zip(ids[row], values[row], strict=True))
            file.write(f"{','.join(map(str, labels[row]))} {pairs}\n")
