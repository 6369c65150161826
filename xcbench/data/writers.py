"""Datasets written in the forms that other tools read. What is written reads back as the same dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import Dataset, Split, TextColumn
from xcbench.data.manifest import MANIFEST_FILE, Manifest, Sizes
from xcbench.errors import DataError, InputError, unknown_name
from xcbench.files import atomic_folder, sha256_of, write_json

_ROWS_AT_ONCE = 1 << 14

Ids = npt.NDArray[np.integer]
Values = npt.NDArray[np.float32]


def write_dataset(
    dataset: Dataset,
    folder: Path,
    form: str,
    notices: Sequence[Path] = (),
) -> None:
    """Write a dataset into a new folder, which appears complete or not at all.

    Raises `InputError` where the folder exists, and `DataError` where the form cannot hold the dataset.

    Parameters
    ----------
    dataset
        The dataset to write.
    folder
        The folder to make.
    form
        One of `FORMS`: "split", "combined", "npz" or "json" (see docs/guides/data-formats.md).
    notices
        Files to copy into the folder, such as a licence.
    """
    if form not in FORMS:
        raise unknown_name("form", form, FORMS)
    if folder.exists():
        raise InputError(f"{folder} is there already")

    with atomic_folder(folder) as part:
        write_form = FORMS[form]
        write_form(dataset, part)
        _write_filter(dataset.train, part / "filter_labels_train.txt")
        _write_filter(dataset.test, part / "filter_labels_test.txt")
        for notice in notices:
            shutil.copy(notice, part)

        manifest = _manifest(dataset, part, form)
        write_json(part / MANIFEST_FILE, manifest.to_dict())


def _manifest(dataset: Dataset, folder: Path, form: str) -> Manifest:
    """Return the facts about a dataset, with the files that were written."""
    sizes: Sizes | None = Sizes(
        train=len(dataset.train),
        test=len(dataset.test),
        labels=dataset.label_count,
        features=dataset.feature_count,
    )
    if form == "json":
        # Text says neither how many labels without titles there are, nor how many features.
        sizes = None

    return dataclasses.replace(
        dataset.manifest or Manifest(dataset.name),
        propensity=dataset.propensity,
        sizes=sizes,
        files={path.name: sha256_of(path) for path in sorted(folder.iterdir())},
    )


def _write_split(dataset: Dataset, folder: Path) -> None:
    """Write `trn_X_Xf.txt` and the like with headers; titles as `trn_X.txt`, `tst_X.txt` and `Y.txt`."""
    for short, split in _splits(dataset):
        _write_matrix(folder / f"{short}_X_Xf.txt", split.X)
        _write_matrix(folder / f"{short}_X_Y.txt", split.Y)
    _write_label_features(dataset, folder)
    _write_titles(dataset, folder)


def _write_combined(dataset: Dataset, folder: Path) -> None:
    """Write `train.txt` and `test.txt` with the header `N V L`; label text as `Yf.txt`. Refuses soft targets."""
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        if (split.Y.data != 1).any():
            raise DataError(f"the combined form knows no soft targets, and {name} has some; use split, json or npz")

        header = f"{len(split)} {dataset.feature_count} {dataset.label_count}"
        labels_and_features = zip(_label_lists(split.Y), _sparse_rows(split.X), strict=True)
        _write_lines(folder / f"{name}.txt", map(" ".join, labels_and_features), header)
    _write_label_features(dataset, folder)
    _write_titles(dataset, folder)


def _write_npz(dataset: Dataset, folder: Path) -> None:
    """Write scipy matrices: `X.trn.npz`, `Y.trn.npz`, `X.tst.npz`, `Y.tst.npz`, and `Z.npz` for label text."""
    for short, split in _splits(dataset):
        sp.save_npz(folder / f"X.{short}.npz", split.X, compressed=False)
        sp.save_npz(folder / f"Y.{short}.npz", split.Y, compressed=False)
    if dataset.Z is not None:
        sp.save_npz(folder / "Z.npz", dataset.Z, compressed=False)
    _write_titles(dataset, folder)


def _write_json(dataset: Dataset, folder: Path) -> None:
    """Write `trn.json.gz`, `tst.json.gz`, `lbl.json.gz`: text and targets; a reader computes the features again."""
    for short, split in _splits(dataset):
        if split.titles is None:
            raise DataError(f"{dataset.name} has no titles, which the json form is made of; use split or npz")
        _write_lines(folder / f"{short}.json.gz", _json_points(split, split.titles))

    if dataset.label_titles is not None:
        labels = (_json_line({"title": title}) for title in dataset.label_titles)
        _write_lines(folder / "lbl.json.gz", labels)


FORMS: dict[str, Callable[[Dataset, Path], None]] = {
    "split": _write_split,
    "combined": _write_combined,
    "npz": _write_npz,
    "json": _write_json,
}


def _splits(dataset: Dataset) -> list[tuple[str, Split]]:
    """Return both splits with the short names that most files have."""
    return [("trn", dataset.train), ("tst", dataset.test)]


def _write_filter(split: Split, path: Path) -> None:
    if len(split.filter):
        np.savetxt(path, split.filter, fmt="%d")


def _write_label_features(dataset: Dataset, folder: Path) -> None:
    if dataset.Z is not None:
        _write_matrix(folder / "Yf.txt", dataset.Z)


def _write_titles(dataset: Dataset, folder: Path) -> None:
    columns = {
        "trn_X.txt": dataset.train.titles,
        "tst_X.txt": dataset.test.titles,
        "Y.txt": dataset.label_titles,
    }
    for file, column in columns.items():
        if column is not None:
            # A title is a line here, so its own line breaks become spaces.
            lines = (" ".join(title.splitlines()) for title in column)
            _write_lines(folder / file, lines)


def _write_matrix(path: Path, matrix: sp.csr_array) -> None:
    _write_lines(path, _sparse_rows(matrix), header=f"{matrix.shape[0]} {matrix.shape[1]}")


def _write_lines(
    path: Path,
    lines: Iterator[str],
    header: str | None = None,
) -> None:
    with _opened(path) as out:
        if header is not None:
            out.write(f"{header}\n".encode())
        for line in lines:
            out.write(f"{line}\n".encode("utf-8", "replace"))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    with path.open("wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        # No file name and a fixed time stamp: the same dataset gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield packed


def _sparse_rows(matrix: sp.csr_array) -> Iterator[str]:
    """Yield `id:value id:value ...` row by row, values with as many digits as float32 needs and no more."""
    for indptr, ids, values in _blocks(matrix):
        written_ids = ids.astype(str).tolist()
        written_values = values.astype(str).tolist()
        pairs = [f"{id_}:{value}" for id_, value in zip(written_ids, written_values, strict=True)]
        for start, end in itertools.pairwise(indptr):
            yield " ".join(pairs[start:end])


def _label_lists(matrix: sp.csr_array) -> Iterator[str]:
    """Yield `label,label,...` row by row."""
    for indptr, ids, _ in _blocks(matrix):
        labels = ids.astype(str).tolist()
        for start, end in itertools.pairwise(indptr):
            yield ",".join(labels[start:end])


def _json_points(split: Split, titles: TextColumn) -> Iterator[str]:
    for title, (labels, relevance) in zip(titles, _rows(split.Y), strict=True):
        point: dict[str, object] = {"title": title, "target_ind": labels.tolist()}
        if (relevance != 1).any():
            # Through text, so that 0.1 stays 0.1 and does not become 0.10000000149011612.
            point["target_rel"] = [float(value) for value in relevance.astype(str)]
        yield _json_line(point)


def _json_line(value: dict[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _rows(matrix: sp.csr_array) -> Iterator[tuple[Ids, Values]]:
    """Yield the ids and values of each row."""
    for indptr, ids, values in _blocks(matrix):
        for start, end in itertools.pairwise(indptr):
            yield ids[start:end], values[start:end]


def _blocks(matrix: sp.csr_array) -> Iterator[tuple[list[int], Ids, Values]]:
    """Yield some thousand rows at a time: the row ends within the block, the ids and the values."""
    for first in range(0, matrix.shape[0], _ROWS_AT_ONCE):
        indptr = matrix.indptr[first : first + _ROWS_AT_ONCE + 1]
        start = int(indptr[0])
        end = int(indptr[-1])
        ids = matrix.indices[start:end]
        values = matrix.data[start:end]
        yield (indptr - start).tolist(), ids, values
