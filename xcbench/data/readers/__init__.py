"""Readers for every file form of the field; the names of the files decide the form.

`read_raw` is the entry point; docs/guides/data-formats.md describes the forms for users. A folder may mix forms, such
as titles with features, or targets as sparse text with titles. Where it holds one thing twice, the first name in
`names` is read, and the findings say so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from xcbench.data.checks import reconcile
from xcbench.data.dataset import Pairs
from xcbench.data.manifest import MANIFEST_FILE, Manifest
from xcbench.data.raw import FileMatrix, FileTitles, Findings, RawDataset, RawSplit
from xcbench.data.readers import archive, names
from xcbench.data.readers.packed import read_packed_matrix
from xcbench.data.readers.table import LabelNames, read_label_table, read_point_table
from xcbench.data.readers.titles import JsonLines, read_json_lines, read_lines
from xcbench.data.sparse_text import read_matrix, read_pairs, read_points
from xcbench.errors import DataError, InputError
from xcbench.files import sha256_of

__all__ = ["RawDataset", "read_raw"]


def read_raw(
    path: str | Path,
    *,
    with_content: bool = False,
    label_separator: str = ";",
) -> RawDataset:
    """Read and check everything that a folder or zip holds.

    Parameters
    ----------
    path
        A folder or a zip file.
    with_content
        Append the `content` of JSON objects to their titles.
    label_separator
        The text between two labels of a CSV field.
    """
    path = Path(path)
    if not label_separator:
        raise InputError("a label separator is at least one character")

    try:
        with archive.opened(path, names.is_known) as folder:
            return _read_folder(folder, path, with_content, label_separator)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", error.filename or path) from None


def _read_folder(folder: Path, path: Path, with_content: bool, label_separator: str) -> RawDataset:
    """Read a folder; `path` is the name of the dataset in messages."""
    files = _Files(folder)
    raw = RawDataset(
        train=RawSplit(),
        test=RawSplit(),
        manifest=_read_manifest(files),
        findings=files.findings,
    )
    _read_labels(files, raw, with_content)
    _read_sparse(files, raw)
    _read_text(files, raw, with_content)
    _read_tables(files, raw, label_separator)
    _check_complete(raw, path)
    reconcile(raw)
    _read_filters(files, raw)
    files.note_unused()
    raw.files = files.digests()
    _check_digests(raw, path)
    return raw


@dataclass
class _Files:
    """The files of one folder, and which of them were read."""

    folder: Path
    findings: Findings = field(default_factory=Findings)
    used: dict[str, Path] = field(default_factory=dict)

    def first(self, patterns: Sequence[str]) -> Path | None:
        """Return the file that matches the earliest pattern, or None; the file counts as used."""
        files = sorted(self.folder.iterdir())
        for pattern in patterns:
            for file in files:
                if names.matches(file.name, pattern) and file.is_file():
                    self.used[file.name] = file
                    return file
        return None

    def note_unused(self) -> None:
        """Report the files that are part of a dataset by their name, but were not read."""
        known = {file.name for file in self.folder.iterdir() if names.is_known(file.name)}
        unused = sorted(known - set(self.used))
        if unused:
            self.findings.notes.append(f"not read, since other files say the same: {', '.join(unused)}")

    def digests(self) -> dict[str, str]:
        """Return the sha256 of every used file but the manifest."""
        data_files = sorted(set(self.used) - {MANIFEST_FILE})
        return {name: sha256_of(self.used[name]) for name in data_files}


def _read_manifest(files: _Files) -> Manifest | None:
    path = files.first([MANIFEST_FILE])
    if path is None:
        return None
    try:
        return Manifest.from_dict(json.loads(path.read_text("utf-8")), path)
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected a JSON object: {error}", path) from None


def _read_labels(files: _Files, raw: RawDataset, with_content: bool) -> None:
    """Read the features and the titles of labels."""
    path = files.first(names.LABEL_FEATURES)
    if path:
        raw.Z = _read_matrix(path)

    path = files.first(names.LABEL_JSON + names.LABEL_LINES)
    if path is None:
        return
    if path.name in names.LABEL_LINES:
        raw.label_titles = FileTitles(read_lines(path), path.name)
        return

    lines = read_json_lines(path, with_content=with_content)
    raw.label_titles = FileTitles(lines.titles, path.name)
    _note_repeated(lines, path.name, "labels", raw.findings)
    if not with_content:
        _note_content(lines, path.name, "labels", raw.findings)


def _read_sparse(files: _Files, raw: RawDataset) -> None:
    """Read features and targets from separate files, or else from files that hold both."""
    headless: list[FileMatrix] = []
    for side, split in raw.splits.items():
        path = files.first(names.FEATURES[side])
        if path:
            split.X = _read_matrix(path)
        path = files.first(names.TARGETS[side])
        if path:
            split.Y = _read_matrix(path)
        if split.X and split.Y:
            continue

        path = files.first(names.POINTS[side])
        if path:
            headless += _read_points(path, split)
    _settle_first_id(headless, raw)


def _read_points(path: Path, split: RawSplit) -> list[FileMatrix]:
    """Read what a split still lacks from a file of features and targets; return features without a header."""
    parsed = read_points(path)
    has_header = parsed.header is not None
    if split.Y is None and parsed.labels is not None:
        split.Y = FileMatrix(parsed.labels, path.name, has_header)
    if split.X is not None:
        return []

    split.X = FileMatrix(parsed.features, path.name, has_header)
    if has_header:
        return []
    return [split.X]


def _settle_first_id(headless: list[FileMatrix], raw: RawDataset) -> None:
    """Decide whether svmlight files count features from 0 or from 1, which they do not say.

    They count from 0 where the id 0 occurs, or where other files (which always do) hold features.
    """
    if not headless:
        return

    first_id = 0
    features = [part for part in (raw.train.X, raw.test.X, raw.Z) if part]
    if any(part not in headless for part in features):
        reason = "as in the other files"
    elif any((part.matrix.indices == 0).any() for part in headless):
        reason = "since feature 0 occurs"
    else:
        first_id = 1
        reason = "since feature 0 never occurs"
        for part in headless:
            rows, columns = part.matrix.shape
            part.matrix.indices -= 1
            part.matrix.resize((rows, max(0, columns - 1)))

    files = " and ".join(part.file for part in headless)
    raw.findings.notes.append(f"{files} without header: read as svmlight, ids counted from {first_id} {reason}")


def _read_text(files: _Files, raw: RawDataset, with_content: bool) -> None:
    """Read the titles of points, and their targets where JSON objects hold them."""
    labels = None
    if raw.label_titles:
        labels = len(raw.label_titles.column)

    for side, split in raw.splits.items():
        path = files.first(names.JSON[side] + names.LINES[side])
        if path is None:
            continue
        if path.name in names.LINES[side]:
            split.titles = FileTitles(read_lines(path), path.name)
            continue

        lines = read_json_lines(path, labels, with_content)
        split.titles = FileTitles(lines.titles, path.name)
        _note_repeated(lines, path.name, "points", raw.findings)
        if not with_content:
            _note_content(lines, path.name, "points", raw.findings)
        if split.Y is None and lines.targets is not None:
            split.Y = FileMatrix(lines.targets, path.name, columns_declared=labels is not None)


def _note_content(lines: JsonLines, file: str, what: str, findings: Findings) -> None:
    if lines.contents:
        findings.notes.append(
            f"{file}: {lines.contents:,} {what} have a 'content', which is not used (--content appends it to the title)"
        )


def _note_repeated(lines: JsonLines, file: str, what: str, findings: Findings) -> None:
    if lines.repeated:
        count = f"{len(lines.repeated):,}"
        findings.notes.append(f"{file}: {what} with the 'uid' of an earlier one: {count}, such as {lines.repeated[0]}")


def _read_tables(files: _Files, raw: RawDataset, separator: str) -> None:
    """Read CSV files, unless other files gave features, targets or titles."""
    for split in raw.splits.values():
        if split.Y or split.X or split.titles:
            return

    path = files.first(names.LABEL_TABLE)
    labels = read_label_table(path) if path else LabelNames()

    longest = 0
    for side, split in raw.splits.items():
        path = files.first(names.TABLE[side])
        if path is None:
            continue
        titles, targets = read_point_table(path, labels, separator)
        split.titles = FileTitles(titles, path.name)
        split.Y = FileMatrix(targets, path.name, columns_declared=False)
        raw.label_titles = FileTitles(labels.column, labels.listed_in or path.name)
        labels_per_point = np.diff(targets.indptr)
        longest = max(longest, int(labels_per_point.max(initial=0)))

    if longest == 1:
        raw.findings.notes.append(
            f"no point has more than one label; labels are separated by {separator!r} (--label-separator)"
        )


def _read_filters(files: _Files, raw: RawDataset) -> None:
    for side, split in raw.splits.items():
        path = files.first(names.FILTERS[side])
        if path is None or split.Y is None:
            continue

        points, labels = split.Y.matrix.shape
        pairs = read_pairs(path, points, labels)
        split.filter = _sorted_unique(pairs, labels)
        repeated = len(pairs) - len(split.filter)
        if repeated:
            raw.findings.repaired.append(f"{path.name}: {repeated:,} pairs were repeated: dropped")


def _sorted_unique(pairs: Pairs, labels: int) -> Pairs:
    keys = np.unique(pairs[:, 0] * labels + pairs[:, 1])
    points_and_labels = np.divmod(keys, max(1, labels))
    return np.stack(points_and_labels, axis=1)


def _read_matrix(path: Path) -> FileMatrix:
    if path.suffix == ".npz":
        return FileMatrix(read_packed_matrix(path), path.name, columns_declared=True)
    parsed = read_matrix(path)
    return FileMatrix(parsed.features, path.name, columns_declared=parsed.header is not None)


def _check_complete(raw: RawDataset, path: Path) -> None:
    for side, split in raw.splits.items():
        if split.Y is None:
            expected = _one_of(side, names.TARGETS, names.POINTS, names.JSON, names.TABLE)
            raise DataError(f"holds no targets of {side} points; expected {expected}", path)
        if split.X is None and split.titles is None:
            expected = _one_of(side, names.FEATURES, names.LINES, names.JSON)
            raise DataError(f"holds neither features nor titles of {side} points; expected {expected}", path)


def _one_of(side: str, *groups: names.Names) -> str:
    return "one of " + ", ".join(group[side][0] for group in groups)


def _check_digests(raw: RawDataset, path: Path) -> None:
    """Raise `DataError` where a file differs from the one that the manifest describes."""
    if raw.manifest is None:
        return
    for name, expected in raw.manifest.files.items():
        if name in raw.files and raw.files[name] != expected:
            raise DataError(f"is not the file of {MANIFEST_FILE}: its sha256 differs", path / name)
