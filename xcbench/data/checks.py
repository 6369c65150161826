"""What is checked of every dataset, whatever form it came in, and what is put right on the way.

A contradiction (counts that disagree, ids out of range) is a `DataError`. What has one sensible reading (unsorted or
repeated ids, explicit zeros, splits that declare different counts) is repaired and reported. What is legal but worth
knowing (points without labels, labels without points) is noted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import Dataset, Split
from xcbench.data.raw import Findings, RawDataset, RawSplit, Sourced
from xcbench.errors import DataError

PLAUSIBLE_COUNT = 10_000_000
ENTRIES_PER_COLUMN = 0.01
"""Beyond ten million, a dimension must be backed by at least one entry in a hundred columns."""


def check_plausible(count: int, entries: int, what: str, where: str) -> None:
    """Refuse dimensions that a few bytes claim and that would cost gigabytes later."""
    if count > PLAUSIBLE_COUNT and entries < ENTRIES_PER_COLUMN * count:
        raise DataError(f"{count:,} {what}, but only {entries:,} entries: a wrong id or header?", where)


def settle(raw: RawDataset) -> None:
    """Make the parts of a dataset fit each other, in place, or say which two do not."""
    for split in raw.splits.values():
        if split.Y is None:
            raise AssertionError("a reader returns targets for both splits")
        _repair(split.Y, np.maximum, raw.findings)
        if (split.Y.matrix.data < 0).any():
            raise DataError("expected targets above zero, found a negative one", split.Y.file)
        if split.X is not None:
            _repair(split.X, np.add, raw.findings)
        _check_rows(split)
    if raw.Z is not None:
        _repair(raw.Z, np.add, raw.findings)
    _settle_labels(raw)
    _settle_features(raw)


def observe(dataset: Dataset) -> list[str]:
    """What is legal in a dataset but worth knowing before a model is trained on it."""
    notes = []
    for name, split in (("training", dataset.train), ("test", dataset.test)):
        notes += _observe_points(name, split)
    in_train = np.zeros(dataset.label_count, bool)
    in_train[dataset.train.Y.indices] = True
    unseen = np.setdiff1d(dataset.test.Y.indices, np.flatnonzero(in_train))
    if missing := dataset.label_count - int(in_train.sum()):
        notes.append(f"labels without training points: {missing:,}, of which {len(unseen):,} occur in test")
    if dataset.Z is None:
        notes.append("labels have no text; methods that need it cannot be used")
    elif empty := _empty_rows(dataset.Z):
        notes.append(f"labels without text: {empty:,}")
    return notes


def _observe_points(name: str, split: Split) -> list[str]:
    counts = {"labels": _empty_rows(split.Y), "features": _empty_rows(split.X)}
    return [f"{name} points without {what}: {count:,}" for what, count in counts.items() if count]


def _empty_rows(matrix: sp.csr_array) -> int:
    return int(np.count_nonzero(np.diff(matrix.indptr) == 0))


def _check_rows(split: RawSplit) -> None:
    """Features, targets and titles of one side must be about the same points."""
    parts = [(part.file, part.matrix.shape[0]) for part in (split.Y, split.X) if part]
    if split.titles:
        parts.append((split.titles.file, len(split.titles.column)))
    first_file, first = parts[0]
    for file, count in parts[1:]:
        if count != first:
            raise DataError(f"holds {count:,} points, but {first_file} holds {first:,}", file)
    if first == 0:
        raise DataError("holds no points", first_file)


def _settle_labels(raw: RawDataset) -> None:
    targets = [split.Y for split in raw.splits.values() if split.Y]
    count = max(part.matrix.shape[1] for part in targets)
    label_side = []
    if raw.label_titles:
        label_side.append((raw.label_titles.file, len(raw.label_titles.column)))
    if raw.Z:
        label_side.append((raw.Z.file, raw.Z.matrix.shape[0]))
    for file, described in label_side:
        widest = max(targets, key=lambda part: int(part.matrix.shape[1]))
        if described < count or (described > count and widest.columns_declared):
            raise DataError(f"describes {described:,} labels, but {widest.file} has {count:,}", file)
        count = described
    if count == 0:
        raise DataError("holds no labels", targets[0].file)
    _widen(targets, count, "labels", raw.findings)


def _settle_features(raw: RawDataset) -> None:
    parts = [part for part in (raw.train.X, raw.test.X, raw.Z) if part]
    if parts:
        _widen(parts, max(part.matrix.shape[1] for part in parts), "features", raw.findings)


def _widen(parts: list[Sourced], count: int, what: str, findings: Findings) -> None:
    """Give all parts the same number of columns; a file that declared fewer is worth a word."""
    check_plausible(count, sum(part.matrix.nnz for part in parts), what, parts[0].file)
    for part in parts:
        if part.matrix.shape[1] != count:
            if part.columns_declared:
                findings.repaired.append(
                    f"{part.file} declares {part.matrix.shape[1]:,} {what}, other files {count:,}: {count:,} taken"
                )
            part.matrix.resize((part.matrix.shape[0], count))


def _repair(part: Sourced, merge: np.ufunc, findings: Findings) -> None:
    """Sort the ids of each row, merge repeated ones and drop explicit zeros."""
    matrix, file = part.matrix, part.file
    if unsorted := _unsorted_rows(matrix):
        matrix.has_sorted_indices = False
        matrix.sort_indices()
        findings.repaired.append(f"{file}: {unsorted:,} rows had unsorted ids: sorted")
    repeated = _steps(matrix) == 0
    if count := int(np.count_nonzero(repeated)):
        matrix = part.matrix = _merged(matrix, repeated, merge)
        if not np.isfinite(matrix.data).all():
            raise DataError("values of a repeated id add up beyond float32", file)
        how = "added up" if merge is np.add else "the largest value kept"
        findings.repaired.append(f"{file}: {count:,} ids were repeated within their row: {how}")
    if zeros := int(np.count_nonzero(matrix.data == 0)):
        matrix.eliminate_zeros()
        findings.repaired.append(f"{file}: {zeros:,} explicit zeros: dropped")
    matrix.has_sorted_indices = matrix.has_canonical_format = True


def _steps(matrix: sp.csr_array) -> npt.NDArray[np.int32]:
    """Id minus the id before it, entry by entry; 1 at the start of each row, where nothing comes before."""
    steps = np.ones(matrix.nnz, np.int32)
    np.subtract(matrix.indices[1:], matrix.indices[:-1], out=steps[1:], casting="unsafe")
    starts = matrix.indptr[:-1]
    steps[starts[starts < matrix.nnz]] = 1
    return steps


def _unsorted_rows(matrix: sp.csr_array) -> int:
    falls = np.flatnonzero(_steps(matrix) < 0)
    return len(np.unique(np.searchsorted(matrix.indptr, falls, side="right"))) if len(falls) else 0


def _merged(matrix: sp.csr_array, repeated: npt.NDArray[np.bool_], merge: np.ufunc) -> sp.csr_array:
    """Sorted rows with repeated ids, each id once."""
    kept = np.flatnonzero(~repeated)
    data = merge.reduceat(matrix.data, kept).astype(np.float32, copy=False)
    indptr = np.searchsorted(kept, matrix.indptr).astype(matrix.indptr.dtype)
    return sp.csr_array((data, matrix.indices[kept], indptr), shape=matrix.shape)
