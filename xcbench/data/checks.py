"""The checks and repairs of every dataset, whatever form it came in.

A contradiction (counts that disagree, ids out of range) is a `DataError`. What has one sensible meaning (unsorted or
repeated ids, explicit zeros, splits that declare different counts) is repaired and reported. What is allowed but worth
knowing is noted by `quality`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.raw import FileMatrix, Findings, RawDataset, RawSplit
from xcbench.errors import DataError

PLAUSIBLE_COUNT = 10_000_000
ENTRIES_PER_COLUMN = 0.01
"""A matrix of more than `PLAUSIBLE_COUNT` columns must have at least one entry per hundred columns."""


def check_plausible(count: int, entries: int, what: str, where: str) -> None:
    """Raise `DataError` for a dimension that a few bytes claim and that would cost gigabytes later."""
    if count > PLAUSIBLE_COUNT and entries < ENTRIES_PER_COLUMN * count:
        raise DataError(f"{count:,} {what}, but only {entries:,} entries: a wrong id or header?", where)


def reconcile(raw: RawDataset) -> None:
    """Make the parts of a dataset consistent, in place; raise `DataError` where two of them contradict each other."""
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
    _reconcile_labels(raw)
    _reconcile_features(raw)


def _check_rows(split: RawSplit) -> None:
    """Raise `DataError` unless features, targets and titles of a split have the same number of points."""
    points_by_file = []
    if split.Y:
        points_by_file.append((split.Y.file, _row_count(split.Y)))
    if split.X:
        points_by_file.append((split.X.file, _row_count(split.X)))
    if split.titles:
        points_by_file.append((split.titles.file, len(split.titles.column)))

    first_file, first_count = points_by_file[0]
    for file, count in points_by_file[1:]:
        if count != first_count:
            raise DataError(f"holds {count:,} points, but {first_file} holds {first_count:,}", file)
    if first_count == 0:
        raise DataError("holds no points", first_file)


def _reconcile_labels(raw: RawDataset) -> None:
    targets = [split.Y for split in raw.splits.values() if split.Y]
    widest = max(targets, key=_column_count)
    count = _column_count(widest)

    labels_by_file = []
    if raw.label_titles:
        labels_by_file.append((raw.label_titles.file, len(raw.label_titles.column)))
    if raw.Z:
        labels_by_file.append((raw.Z.file, _row_count(raw.Z)))

    for file, described in labels_by_file:
        # Files of targets without a header may lack the last labels, which no point has.
        if described < count or (described > count and widest.columns_declared):
            raise DataError(f"describes {described:,} labels, but {widest.file} has {count:,}", file)
        count = described

    if count == 0:
        raise DataError("holds no labels", targets[0].file)
    _widen(targets, count, "labels", raw.findings)


def _reconcile_features(raw: RawDataset) -> None:
    parts = [part for part in (raw.train.X, raw.test.X, raw.Z) if part]
    if not parts:
        return

    count = max(_column_count(part) for part in parts)
    _widen(parts, count, "features", raw.findings)


def _row_count(part: FileMatrix) -> int:
    return int(part.matrix.shape[0])


def _column_count(part: FileMatrix) -> int:
    return int(part.matrix.shape[1])


def _widen(
    parts: list[FileMatrix],
    count: int,
    what: str,
    findings: Findings,
) -> None:
    """Give all parts the same number of columns; report a file that declared fewer."""
    entries = sum(part.matrix.nnz for part in parts)
    check_plausible(count, entries, what, parts[0].file)

    for part in parts:
        columns = _column_count(part)
        if columns == count:
            continue
        if part.columns_declared:
            findings.repaired.append(f"{part.file} declares {columns:,} {what}, other files {count:,}: {count:,} taken")
        part.matrix.resize((_row_count(part), count))


def _repair(part: FileMatrix, merge: np.ufunc, findings: Findings) -> None:
    """Sort the ids of each row, merge repeated ones and drop explicit zeros."""
    _sort_rows(part, findings)
    _merge_repeated(part, merge, findings)

    zeros = int(np.count_nonzero(part.matrix.data == 0))
    if zeros:
        part.matrix.eliminate_zeros()
        findings.repaired.append(f"{part.file}: {zeros:,} explicit zeros: dropped")

    part.matrix.has_sorted_indices = True
    part.matrix.has_canonical_format = True


def _sort_rows(part: FileMatrix, findings: Findings) -> None:
    unsorted = _unsorted_rows(part.matrix)
    if unsorted:
        part.matrix.has_sorted_indices = False
        part.matrix.sort_indices()
        findings.repaired.append(f"{part.file}: {unsorted:,} rows had unsorted ids: sorted")


def _merge_repeated(part: FileMatrix, merge: np.ufunc, findings: Findings) -> None:
    """Merge entries of one row that have the same id; the rows are sorted."""
    is_repeated = _steps(part.matrix) == 0
    count = int(np.count_nonzero(is_repeated))
    if not count:
        return

    part.matrix = _merged(part.matrix, is_repeated, merge)
    if not np.isfinite(part.matrix.data).all():
        raise DataError("values of a repeated id add up beyond float32", part.file)

    how = "added up" if merge is np.add else "the largest value kept"
    findings.repaired.append(f"{part.file}: {count:,} ids were repeated within their row: {how}")


def _steps(matrix: sp.csr_array) -> npt.NDArray[np.int32]:
    """Return, per entry, its id minus the id before it in the row; 1 for the first entry of a row."""
    ids = matrix.indices
    steps = np.ones(matrix.nnz, np.int32)
    np.subtract(ids[1:], ids[:-1], out=steps[1:], casting="unsafe")

    starts = matrix.indptr[:-1]
    steps[starts[starts < matrix.nnz]] = 1
    return steps


def _unsorted_rows(matrix: sp.csr_array) -> int:
    """Return the number of rows whose ids do not ascend."""
    descents = np.flatnonzero(_steps(matrix) < 0)
    rows = np.searchsorted(matrix.indptr, descents, side="right")
    return len(np.unique(rows))


def _merged(
    matrix: sp.csr_array,
    is_repeated: npt.NDArray[np.bool_],
    merge: np.ufunc,
) -> sp.csr_array:
    """Return a matrix with sorted rows in which each id occurs once per row."""
    first = np.flatnonzero(~is_repeated)
    merged = merge.reduceat(matrix.data, first)
    data = merged.astype(np.float32, copy=False)
    indices = matrix.indices[first]
    indptr = np.searchsorted(first, matrix.indptr).astype(matrix.indptr.dtype)
    return sp.csr_array((data, indices, indptr), shape=matrix.shape)
