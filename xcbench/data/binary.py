"""The stored form: a folder of .npy arrays that are memory-mapped rather than read, and JSON for the rest.

A dataset of millions of points loads in well under a second, since nothing is parsed, copied or hashed again. What
would make a compiled loop read beyond an array (sizes, row ends, ids out of range) is checked on every load.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import Dataset, Propensity, Split, TextColumn
from xcbench.data.manifest import Manifest, Sizes
from xcbench.data.text import TextEncoder
from xcbench.errors import DataError
from xcbench.files import atomic_folder, write_json

DATASET_FILE = "dataset.json"
ENCODER_FILE = "encoder.json"
FORMAT = "xcbench dataset"
VERSION = 1


def is_stored(folder: Path) -> bool:
    """Whether a folder holds a dataset in this form."""
    return (folder / DATASET_FILE).is_file()


def store_dataset(dataset: Dataset, folder: Path) -> None:
    """Write a dataset into a folder, replacing what was there. The folder appears complete or not at all.

    Pairs ignored in training (`Split.ignored`) are not stored.
    """
    matrices = _matrices(dataset)
    titles = _title_columns(dataset)
    with atomic_folder(folder) as part:
        for name, matrix in matrices.items():
            _save_matrix(part, name, matrix)
        for name, column in titles.items():
            _save(part / f"{name}.titles.utf8.npy", column.utf8)
            _save(part / f"{name}.titles.offsets.npy", column.offsets)
        _save(part / "train.filter.npy", np.ascontiguousarray(dataset.train.filter))
        _save(part / "test.filter.npy", np.ascontiguousarray(dataset.test.filter))
        if dataset.encoder is not None:
            write_json(part / ENCODER_FILE, dataset.encoder.to_dict())
        write_json(part / DATASET_FILE, _facts(dataset, matrices, titles))


def _matrices(dataset: Dataset) -> dict[str, sp.csr_array]:
    matrices = {
        "train.X": dataset.train.X,
        "train.Y": dataset.train.Y,
        "test.X": dataset.test.X,
        "test.Y": dataset.test.Y,
    }
    if dataset.Z is not None:
        matrices["labels.Z"] = dataset.Z
    return matrices


def _title_columns(dataset: Dataset) -> dict[str, TextColumn]:
    columns = {
        "train": dataset.train.titles,
        "test": dataset.test.titles,
        "labels": dataset.label_titles,
    }
    return {name: column for name, column in columns.items() if column is not None}


def _facts(
    dataset: Dataset,
    matrices: Mapping[str, sp.csr_array],
    titles: Mapping[str, TextColumn],
) -> dict[str, Any]:
    """Return what is stored as JSON, next to the arrays."""
    manifest = None
    if dataset.manifest:
        manifest = dataset.manifest.to_dict()

    return {
        "format": FORMAT,
        "version": VERSION,
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "propensity": dataclasses.asdict(dataset.propensity),
        "matrices": {name: list(matrix.shape) for name, matrix in matrices.items()},
        "titles": list(titles),
        "encoder": dataset.encoder is not None,
        "manifest": manifest,
    }


def _save_matrix(folder: Path, name: str, matrix: sp.csr_array) -> None:
    _save(folder / f"{name}.data.npy", matrix.data)
    _save(folder / f"{name}.indices.npy", matrix.indices)
    _save(folder / f"{name}.indptr.npy", matrix.indptr)


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    np.save(path, array, allow_pickle=False)


def stored_sizes(folder: Path) -> Sizes | None:
    """Return the numbers of points, labels and features of a stored dataset; None if it is damaged."""
    try:
        shapes = _read_json(folder / DATASET_FILE)["matrices"]
        train, features = map(int, shapes["train.X"])
        test, labels = map(int, shapes["test.Y"])
    except (DataError, KeyError, TypeError, ValueError):
        return None
    return Sizes(train, test, labels, features)


def load_stored(folder: Path) -> Dataset:
    """Memory-map a stored dataset. Changes to its arrays stay in this process."""
    path = folder / DATASET_FILE
    facts = _read_json(path)
    try:
        if facts["format"] != FORMAT or facts["version"] != VERSION:
            raise DataError(f"expected {FORMAT!r} of version {VERSION}; import it again", path)
        return _from_facts(folder, facts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"not a stored dataset: {type(error).__name__} {error}", path) from None


def _from_facts(folder: Path, facts: dict[str, Any]) -> Dataset:
    matrices = {}
    for name, shape in facts["matrices"].items():
        matrices[name] = _load_matrix(folder, name, tuple(shape))
    titles = {name: _load_titles(folder, name) for name in facts["titles"]}

    encoder = None
    if facts["encoder"]:
        encoder = TextEncoder.from_dict(_read_json(folder / ENCODER_FILE))
    manifest = None
    if facts["manifest"]:
        manifest = Manifest.from_dict(facts["manifest"], folder / DATASET_FILE)

    train = Split(
        X=matrices["train.X"],
        Y=matrices["train.Y"],
        titles=titles.get("train"),
        filter=_load_filter(folder, "train"),
    )
    test = Split(
        X=matrices["test.X"],
        Y=matrices["test.Y"],
        titles=titles.get("test"),
        filter=_load_filter(folder, "test"),
    )
    propensity = facts["propensity"]
    dataset = Dataset(
        name=str(facts["name"]),
        train=train,
        test=test,
        Z=matrices.get("labels.Z"),
        label_titles=titles.get("labels"),
        propensity=Propensity(float(propensity["A"]), float(propensity["B"])),
        encoder=encoder,
        manifest=manifest,
    )
    if not _is_consistent(dataset):
        raise DataError("damaged: its arrays do not belong together; import it again", folder)

    # Hashing every array again would cost more than the whole load; this one was computed when they were written.
    dataset.__dict__["fingerprint"] = str(facts["fingerprint"])
    return dataset


def _is_consistent(dataset: Dataset) -> bool:
    L = dataset.label_count
    V = dataset.feature_count
    if dataset.Z is not None and dataset.Z.shape != (L, V):
        return False
    if dataset.label_titles is not None and len(dataset.label_titles) != L:
        return False
    if not _is_consistent_split(dataset.train, L, V):
        return False
    return _is_consistent_split(dataset.test, L, V)


def _is_consistent_split(split: Split, L: int, V: int) -> bool:
    n = len(split)
    if split.X.shape != (n, V):
        return False
    if split.Y.shape != (n, L):
        return False
    if split.titles is not None and len(split.titles) != n:
        return False

    is_in_range = (split.filter >= 0) & (split.filter < (n, L))
    return bool(is_in_range.all())


def _load_matrix(
    folder: Path,
    name: str,
    shape: tuple[int, int],
) -> sp.csr_array:
    data = _load_array(folder, f"{name}.data", np.float32)
    indices = _load_array(folder, f"{name}.indices", np.int32, np.int64)
    indptr = _load_array(folder, f"{name}.indptr", np.int32, np.int64)
    if not _is_csr(data, indices, indptr, shape):
        raise _damaged(folder / f"{name}.indptr.npy")

    matrix = sp.csr_array((data, indices, indptr), shape=shape)
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    return matrix


def _is_csr(
    data: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    shape: tuple[int, int],
) -> bool:
    rows, columns = shape
    if indices.dtype != indptr.dtype:
        return False
    if len(indptr) != rows + 1 or not _are_offsets(indptr, len(indices)):
        return False
    if len(data) != len(indices):
        return False
    if len(indices) == 0:
        return True
    return bool(indices.min() >= 0 and indices.max() < columns)


def _load_titles(folder: Path, name: str) -> TextColumn:
    utf8 = _load_array(folder, f"{name}.titles.utf8", np.uint8)
    offsets = _load_array(folder, f"{name}.titles.offsets", np.int64)
    if not _are_offsets(offsets, len(utf8)):
        raise _damaged(folder / f"{name}.titles.offsets.npy")
    return TextColumn(utf8, offsets)


def _load_filter(folder: Path, split: str) -> npt.NDArray[np.int64]:
    pairs = _load_array(folder, f"{split}.filter", np.int64, dimensions=2)
    if pairs.shape[1] != 2:
        raise _damaged(folder / f"{split}.filter.npy")
    return pairs


def _are_offsets(offsets: npt.NDArray[Any], total: int) -> bool:
    """Whether an array ascends from 0 to a total."""
    if len(offsets) == 0:
        return False
    if offsets[0] != 0 or offsets[-1] != total:
        return False

    ascends = offsets[1:] >= offsets[:-1]
    return bool(ascends.all())


def _load_array(
    folder: Path,
    name: str,
    *dtypes: npt.DTypeLike,
    dimensions: int = 1,
) -> npt.NDArray[Any]:
    path = folder / f"{name}.npy"
    try:
        # Copy on write: compiled kernels see an ordinary writable array (a read-only one has another type, for which
        # each kernel would be compiled again), and the file can still not be changed.
        array = np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
    except FileNotFoundError:
        raise DataError("missing; import the dataset again", path) from None
    except Exception as error:  # numpy parses the header as Python and fails in many ways
        raise DataError(f"damaged: {' '.join(str(error).split())}", path) from None

    if array.dtype not in dtypes or array.ndim != dimensions or not array.flags.c_contiguous:
        raise _damaged(path)
    return array


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected JSON: {error}", path) from None

    if not isinstance(value, dict):
        raise DataError("expected a JSON object", path)
    return value


def _damaged(path: Path) -> DataError:
    return DataError("damaged: not what was stored; import the dataset again", path)
