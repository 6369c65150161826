"""Readers for every form that the field's files have, told apart by the names that are there.

`read_raw` is the one door; docs/data-formats.md describes the forms for people. A folder may mix forms: titles beside
features, targets as sparse text beside titles. Where it holds one thing twice, the first name in `names` wins and the
findings say so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from xcbench.data.checks import settle
from xcbench.data.manifest import MANIFEST_FILE, Manifest
from xcbench.data.raw import Findings, RawDataset, RawSplit, Sourced, Titles
from xcbench.data.readers import archive, names
from xcbench.data.readers.packed import read_packed_matrix
from xcbench.data.readers.table import LabelNames, read_label_table, read_point_table
from xcbench.data.readers.titles import JsonLines, read_json_lines, read_lines
from xcbench.data.sparse_text import read_matrix, read_pairs, read_points
from xcbench.errors import DataError, InputError
from xcbench.files import sha256_of

__all__ = ["RawDataset", "read_raw"]


def read_raw(path: str | Path, *, with_content: bool = False, label_separator: str = ";") -> RawDataset:
    """Read and check all that a folder or zip holds.

    `with_content` appends the `content` of JSON objects to their titles; `label_separator` stands between the labels
    of a CSV field.
    """
    path = Path(path)
    if not label_separator:
        raise InputError("a label separator is at least one character")
    try:
        with archive.opened(path, names.is_known) as folder:
            files = _Files(folder)
            raw = RawDataset(RawSplit(), RawSplit(), manifest=_manifest(files), findings=files.findings)
            _read_labels(files, raw, with_content)
            _read_sparse(files, raw)
            _read_text(files, raw, with_content)
            _read_tables(files, raw, label_separator)
            _check_complete(raw, path)
            settle(raw)
            _read_filters(files, raw)
            files.note_ignored()
            raw.files = files.digests()
            _check_digests(raw, path)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", error.filename or path) from None
    return raw


@dataclass
class _Files:
    """The files of one folder, and which of them were asked for."""

    folder: Path
    findings: Findings = field(default_factory=Findings)
    used: dict[str, Path] = field(default_factory=dict)

    def first(self, patterns: Sequence[str]) -> Path | None:
        """The file to read for one purpose: of those that would serve it, the one whose name comes first."""
        present = sorted(
            (place, file)
            for file in self.folder.iterdir()
            for place, pattern in enumerate(patterns)
            if names.matches(file.name, pattern) and file.is_file()
        )
        if not present:
            return None
        chosen = present[0][1]
        self.used[chosen.name] = chosen
        return chosen

    def note_ignored(self) -> None:
        known = (file.name for file in self.folder.iterdir() if names.is_known(file.name))
        if ignored := sorted(set(known) - set(self.used)):
            self.findings.notes.append(f"not read, since other files say the same: {', '.join(ignored)}")

    def digests(self) -> dict[str, str]:
        return {name: sha256_of(path) for name, path in sorted(self.used.items()) if name != MANIFEST_FILE}


def _manifest(files: _Files) -> Manifest | None:
    path = files.first([MANIFEST_FILE])
    if path is None:
        return None
    try:
        return Manifest.from_dict(json.loads(path.read_text("utf-8")), path)
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected a JSON object: {error}", path) from None


def _read_labels(files: _Files, raw: RawDataset, with_content: bool) -> None:
    if path := files.first(names.LABEL_FEATURES):
        raw.Z = _matrix(path)
    if path := files.first([*names.LABEL_JSON, *names.LABEL_LINES]):
        if path.name in names.LABEL_LINES:
            raw.label_titles = Titles(read_lines(path), path.name)
            return
        lines = read_json_lines(path, with_content=with_content)
        raw.label_titles = Titles(lines.titles, path.name)
        _note_content(lines, path.name, "labels", with_content, raw.findings)


def _read_sparse(files: _Files, raw: RawDataset) -> None:
    """Features and targets from files of their own, or else from files that hold both."""
    headless: list[Sourced] = []
    for side, split in raw.splits.items():
        if path := files.first(names.FEATURES[side]):
            split.X = _matrix(path)
        if path := files.first(names.TARGETS[side]):
            split.Y = _matrix(path)
        if split.X and split.Y:
            continue
        if path := files.first(names.POINTS[side]):
            parsed = read_points(path)
            declared = parsed.header is not None
            if split.X is None:
                split.X = Sourced(parsed.features, path.name, declared)
                if not declared:
                    headless.append(split.X)
            if split.Y is None and parsed.labels is not None:
                split.Y = Sourced(parsed.labels, path.name, declared)
    _settle_base(headless, raw)


def _settle_base(headless: list[Sourced], raw: RawDataset) -> None:
    """svmlight counts features from 1 or from 0 and does not say which: a 0 anywhere tells, or other files that do."""
    if not headless:
        return
    if raw.Z or any(split.X is not None and split.X not in headless for split in raw.splits.values()):
        base, reason = 0, "as in the other files"
    elif any((part.matrix.indices == 0).any() for part in headless):
        base, reason = 0, "since feature 0 occurs"
    else:
        base, reason = 1, "since feature 0 never occurs"
        for part in headless:
            part.matrix.indices -= 1
            part.matrix.resize((part.matrix.shape[0], max(0, part.matrix.shape[1] - 1)))
    files = " and ".join(part.file for part in headless)
    raw.findings.notes.append(f"{files} without header: read as svmlight, ids counted from {base} {reason}")


def _read_text(files: _Files, raw: RawDataset, with_content: bool) -> None:
    labels = len(raw.label_titles.column) if raw.label_titles else None
    for side, split in raw.splits.items():
        if path := files.first([*names.JSON[side], *names.LINES[side]]):
            if path.name in names.LINES[side]:
                split.titles = Titles(read_lines(path), path.name)
                continue
            lines = read_json_lines(path, labels, with_content)
            split.titles = Titles(lines.titles, path.name)
            _note_content(lines, path.name, "points", with_content, raw.findings)
            if split.Y is None and lines.targets is not None:
                split.Y = Sourced(lines.targets, path.name, labels is not None)


def _note_content(lines: JsonLines, file: str, what: str, with_content: bool, findings: Findings) -> None:
    if lines.contents and not with_content:
        findings.notes.append(
            f"{file}: {lines.contents:,} {what} have a 'content', which is not used (--content appends it to the title)"
        )


def _read_tables(files: _Files, raw: RawDataset, separator: str) -> None:
    """CSV files, where nothing else gave targets."""
    if any(split.Y or split.X or split.titles for split in raw.splits.values()):
        return
    path = files.first(names.LABEL_TABLE)
    labels = read_label_table(path) if path else LabelNames()
    for side, split in raw.splits.items():
        if path := files.first(names.TABLE[side]):
            titles, targets = read_point_table(path, labels, separator)
            split.titles, split.Y = Titles(titles, path.name), Sourced(targets, path.name, columns_declared=False)
            raw.label_titles = Titles(labels.column, labels.closed_by or path.name)
    counts = [np.diff(split.Y.matrix.indptr).max(initial=0) for split in raw.splits.values() if split.Y]
    if max(counts, default=0) == 1:
        raw.findings.notes.append(
            f"no point has more than one label; labels are separated by {separator!r} (--label-separator)"
        )


def _read_filters(files: _Files, raw: RawDataset) -> None:
    for side, split in raw.splits.items():
        path = files.first(names.FILTERS[side])
        if path and split.Y:
            points, labels = split.Y.matrix.shape
            pairs = read_pairs(path, points, labels)
            split.filter = _unique(pairs, labels)
            if repeated := len(pairs) - len(split.filter):
                raw.findings.repaired.append(f"{path.name}: {repeated:,} pairs were repeated: dropped")


def _unique(pairs: npt.NDArray[np.int64], labels: int) -> npt.NDArray[np.int64]:
    keys = np.unique(pairs[:, 0] * labels + pairs[:, 1])
    return np.stack(np.divmod(keys, max(1, labels)), axis=1)


def _matrix(path: Path) -> Sourced:
    if path.suffix == ".npz":
        return Sourced(read_packed_matrix(path), path.name, columns_declared=True)
    parsed = read_matrix(path)
    return Sourced(parsed.features, path.name, columns_declared=parsed.header is not None)


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
    for name, expected in (raw.manifest.files if raw.manifest else {}).items():
        if raw.files.get(name, expected) != expected:
            raise DataError(f"is not the file of {MANIFEST_FILE}: its sha256 differs", path / name)
