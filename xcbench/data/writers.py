"""Datasets written back in the forms that other tools read. What is written reads back as the same dataset."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import Dataset, Split, TextColumn
from xcbench.data.manifest import MANIFEST_FILE, Manifest, Sizes
from xcbench.errors import DataError, InputError, unknown_name
from xcbench.files import atomic_folder, sha256_of, write_json

_ROWS_AT_ONCE = 1 << 14


def write_dataset(dataset: Dataset, folder: Path, form: str, notices: Sequence[Path] = ()) -> None:
    """Write one of `FORMS` into a new folder, which appears whole or not at all; `notices` are copied beside it."""
    if form not in FORMS:
        raise unknown_name("form", form, FORMS)
    if folder.exists():
        raise InputError(f"{folder} is there already")
    with atomic_folder(folder) as part:
        FORMS[form](dataset, part)
        for name, split in (("train", dataset.train), ("test", dataset.test)):
            if len(split.filter):
                np.savetxt(part / f"filter_labels_{name}.txt", split.filter, fmt="%d")
        for notice in notices:
            shutil.copy(notice, part)
        write_json(part / MANIFEST_FILE, _manifest(dataset, part, form).to_dict())


def _manifest(dataset: Dataset, folder: Path, form: str) -> Manifest:
    """The facts about a dataset and the files that it became: PSP@k, features from text and terms rest on them."""
    sizes = Sizes(len(dataset.train), len(dataset.test), dataset.label_count, dataset.feature_count)
    return dataclasses.replace(
        dataset.manifest or Manifest(dataset.name),
        propensity=dataset.propensity,
        sizes=None if form == "json" else sizes,  # labels without titles and features are counted anew from text
        files={path.name: sha256_of(path) for path in sorted(folder.iterdir())},
    )


def _write_split(dataset: Dataset, folder: Path) -> None:
    """`trn_X_Xf.txt` and its kin, with headers; titles as `trn_X.txt`, `tst_X.txt` and `Y.txt`."""
    for short, split in (("trn", dataset.train), ("tst", dataset.test)):
        _write_rows(folder / f"{short}_X_Xf.txt", _header(split.X), _sparse_rows(split.X))
        _write_rows(folder / f"{short}_X_Y.txt", _header(split.Y), _sparse_rows(split.Y))
    _write_label_features(dataset, folder)
    _write_titles(dataset, folder)


def _write_combined(dataset: Dataset, folder: Path) -> None:
    """`train.txt` and `test.txt` with the header `N V L`; label text as `Yf.txt`. Soft targets do not fit."""
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        if (split.Y.data != 1).any():
            raise DataError(f"the combined form knows no soft targets, and {name} has some; use split, json or npz")
        header = f"{len(split)} {dataset.feature_count} {dataset.label_count}"
        rows = map(" ".join, zip(_label_lists(split.Y), _sparse_rows(split.X), strict=True))
        _write_rows(folder / f"{name}.txt", header, rows)
    _write_label_features(dataset, folder)
    _write_titles(dataset, folder)


def _write_npz(dataset: Dataset, folder: Path) -> None:
    """scipy matrices: `X.trn.npz`, `Y.trn.npz`, `X.tst.npz`, `Y.tst.npz`, and `Z.npz` for label text."""
    for short, split in (("trn", dataset.train), ("tst", dataset.test)):
        sp.save_npz(folder / f"X.{short}.npz", split.X, compressed=False)
        sp.save_npz(folder / f"Y.{short}.npz", split.Y, compressed=False)
    if dataset.Z is not None:
        sp.save_npz(folder / "Z.npz", dataset.Z, compressed=False)
    _write_titles(dataset, folder)


def _write_json(dataset: Dataset, folder: Path) -> None:
    """`trn.json.gz`, `tst.json.gz`, `lbl.json.gz`: text and targets; features are made anew when it is read."""
    for short, split in (("trn", dataset.train), ("tst", dataset.test)):
        if split.titles is None:
            raise DataError(f"{dataset.name} has no titles, which the json form is made of; use split or npz")
        _write_rows(folder / f"{short}.json.gz", None, _json_points(split, split.titles))
    if dataset.label_titles is not None:
        objects = (_json_line({"title": title}) for title in dataset.label_titles)
        _write_rows(folder / "lbl.json.gz", None, objects)


FORMS: dict[str, Callable[[Dataset, Path], None]] = {
    "split": _write_split,
    "combined": _write_combined,
    "npz": _write_npz,
    "json": _write_json,
}


def _write_label_features(dataset: Dataset, folder: Path) -> None:
    if dataset.Z is not None:
        _write_rows(folder / "Yf.txt", _header(dataset.Z), _sparse_rows(dataset.Z))


def _write_titles(dataset: Dataset, folder: Path) -> None:
    columns = {"trn_X.txt": dataset.train.titles, "tst_X.txt": dataset.test.titles, "Y.txt": dataset.label_titles}
    for file, column in columns.items():
        if column is not None:
            # A title is a line here, so its own line breaks become spaces.
            _write_rows(folder / file, None, (" ".join(title.splitlines()) for title in column))


def _write_rows(path: Path, header: str | None, rows: Iterator[str]) -> None:
    # A fixed time stamp: the same dataset gives the same bytes.
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) if path.suffix == ".gz" else file as out,
    ):
        for row in itertools.chain([] if header is None else [header], rows):
            out.write(f"{row}\n".encode("utf-8", "replace"))


def _header(matrix: sp.csr_array) -> str:
    return f"{matrix.shape[0]} {matrix.shape[1]}"


def _sparse_rows(matrix: sp.csr_array) -> Iterator[str]:
    """`id:value id:value ...` row by row, values with as many digits as float32 needs and no more."""
    for indptr, ids, values in _blocks(matrix):
        pairs = list(map(":".join, zip(ids.astype(str).tolist(), values.astype(str).tolist(), strict=True)))
        yield from (" ".join(pairs[start:end]) for start, end in itertools.pairwise(indptr))


def _label_lists(matrix: sp.csr_array) -> Iterator[str]:
    for indptr, ids, _ in _blocks(matrix):
        labels = ids.astype(str).tolist()
        yield from (",".join(labels[start:end]) for start, end in itertools.pairwise(indptr))


def _json_points(split: Split, titles: TextColumn) -> Iterator[str]:
    rows = (
        (ids[start:end], values[start:end])
        for indptr, ids, values in _blocks(split.Y)
        for start, end in itertools.pairwise(indptr)
    )
    for title, (ids, values) in zip(titles, rows, strict=True):
        point: dict[str, object] = {"title": title, "target_ind": ids.tolist()}
        if (values != 1).any():
            # Through text, so that 0.1 stays 0.1 and does not become 0.10000000149011612.
            point["target_rel"] = [float(value) for value in values.astype(str)]
        yield _json_line(point)


def _json_line(value: dict[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _blocks(
    matrix: sp.csr_array,
) -> Iterator[tuple[list[int], npt.NDArray[np.integer], npt.NDArray[np.float32]]]:
    """Some thousand rows at a time, as row ends within the block, ids and values."""
    for first in range(0, matrix.shape[0], _ROWS_AT_ONCE):
        indptr = matrix.indptr[first : first + _ROWS_AT_ONCE + 1]
        start, end = int(indptr[0]), int(indptr[-1])
        yield (indptr - start).tolist(), matrix.indices[start:end], matrix.data[start:end]
