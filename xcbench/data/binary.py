"""The stored form: a folder of .npy arrays that are mapped rather than read, and JSON for the rest.

A dataset of millions of points loads in well under a second, since nothing is parsed, copied or hashed again. What
would make a compiled loop read beyond an array (sizes, row ends, ids out of range) is checked on every load.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import Dataset, Propensity, Split, TextColumn
from xcbench.data.manifest import Manifest
from xcbench.data.text import TextEncoder
from xcbench.errors import DataError
from xcbench.files import atomic_folder, write_json

DATASET_FILE, ENCODER_FILE = "dataset.json", "encoder.json"
FORMAT, VERSION = "xcbench dataset", 1


def is_stored(folder: Path) -> bool:
    """Whether a folder holds a dataset in this form."""
    return (folder / DATASET_FILE).is_file()


def store_dataset(dataset: Dataset, folder: Path) -> None:
    """Write a dataset so that the folder appears whole or not at all; it replaces what was there."""
    matrices = {"train.X": dataset.train.X, "train.Y": dataset.train.Y}
    matrices |= {"test.X": dataset.test.X, "test.Y": dataset.test.Y}
    if dataset.Z is not None:
        matrices["labels.Z"] = dataset.Z
    texts = {"train": dataset.train.titles, "test": dataset.test.titles, "labels": dataset.label_titles}
    present = {name: column for name, column in texts.items() if column is not None}
    with atomic_folder(folder) as part:
        for name, matrix in matrices.items():
            for array in ("data", "indices", "indptr"):
                np.save(part / f"{name}.{array}.npy", getattr(matrix, array), allow_pickle=False)
        for name, column in present.items():
            np.save(part / f"{name}.titles.utf8.npy", column.utf8, allow_pickle=False)
            np.save(part / f"{name}.titles.offsets.npy", column.offsets, allow_pickle=False)
        for name, split in (("train", dataset.train), ("test", dataset.test)):
            np.save(part / f"{name}.filter.npy", np.ascontiguousarray(split.filter), allow_pickle=False)
        if dataset.encoder is not None:
            write_json(part / ENCODER_FILE, dataset.encoder.to_dict())
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "name": dataset.name,
            "fingerprint": dataset.fingerprint,
            "propensity": dataclasses.asdict(dataset.propensity),
            "matrices": {name: list(matrix.shape) for name, matrix in matrices.items()},
            "titles": list(present),
            "encoder": dataset.encoder is not None,
            "manifest": dataset.manifest.to_dict() if dataset.manifest else None,
        }
        write_json(part / DATASET_FILE, facts)


def load_stored(folder: Path) -> Dataset:
    """Map a stored dataset. Changes made to its arrays stay in this process."""
    facts = _json(folder / DATASET_FILE)
    try:
        if facts["format"] != FORMAT or facts["version"] != VERSION:
            raise DataError(f"expected {FORMAT!r} of version {VERSION}; import it again", folder / DATASET_FILE)
        return _from_facts(folder, facts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"not a stored dataset: {type(error).__name__} {error}", folder / DATASET_FILE) from None


def _from_facts(folder: Path, facts: dict[str, Any]) -> Dataset:
    matrices = {name: _matrix(folder, name, tuple(shape)) for name, shape in facts["matrices"].items()}
    titles = {name: _titles(folder, name) for name in facts["titles"]}
    train, test = (
        Split(matrices[f"{side}.X"], matrices[f"{side}.Y"], titles.get(side), _filter(folder, side))
        for side in ("train", "test")
    )
    dataset = Dataset(
        name=str(facts["name"]),
        train=train,
        test=test,
        Z=matrices.get("labels.Z"),
        label_titles=titles.get("labels"),
        propensity=Propensity(float(facts["propensity"]["A"]), float(facts["propensity"]["B"])),
        encoder=TextEncoder.from_dict(_json(folder / ENCODER_FILE)) if facts["encoder"] else None,
        manifest=Manifest.from_dict(facts["manifest"], folder / DATASET_FILE) if facts["manifest"] else None,
    )
    _check_together(dataset, folder)
    # Hashing every array again would cost more than the whole load; the stored one was computed when it was written.
    dataset.__dict__["fingerprint"] = str(facts["fingerprint"])
    return dataset


def _check_together(dataset: Dataset, folder: Path) -> None:
    labels, features = dataset.label_count, dataset.feature_count
    agree = [dataset.Z is None or dataset.Z.shape == (labels, features)]
    agree.append(dataset.label_titles is None or len(dataset.label_titles) == labels)
    for split in (dataset.train, dataset.test):
        agree += [split.X.shape == (len(split), features), split.Y.shape == (len(split), labels)]
        agree.append(split.titles is None or len(split.titles) == len(split))
        agree.append(bool(((split.filter >= 0) & (split.filter < (len(split), labels))).all()))
    if not all(agree):
        raise DataError("damaged: its arrays do not belong together; import it again", folder)


def _matrix(folder: Path, name: str, shape: tuple[int, int]) -> sp.csr_array:
    data = _array(folder, f"{name}.data", np.float32)
    indices = _array(folder, f"{name}.indices", np.int32, np.int64)
    indptr = _array(folder, f"{name}.indptr", np.int32, np.int64)
    rows, columns = shape
    fits = (
        indices.dtype == indptr.dtype
        and len(indptr) == rows + 1
        and _are_offsets(indptr, len(indices))
        and len(data) == len(indices)
        and (len(indices) == 0 or (indices.min() >= 0 and indices.max() < columns))
    )
    if not fits:
        raise _damaged(folder / f"{name}.indptr.npy")
    matrix = sp.csr_array((data, indices, indptr), shape=(rows, columns))
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def _titles(folder: Path, name: str) -> TextColumn:
    utf8 = _array(folder, f"{name}.titles.utf8", np.uint8)
    offsets = _array(folder, f"{name}.titles.offsets", np.int64)
    if not _are_offsets(offsets, len(utf8)):
        raise _damaged(folder / f"{name}.titles.offsets.npy")
    return TextColumn(utf8, offsets)


def _filter(folder: Path, side: str) -> npt.NDArray[np.int64]:
    pairs = _array(folder, f"{side}.filter", np.int64, dimensions=2)
    if pairs.shape[1] != 2:
        raise _damaged(folder / f"{side}.filter.npy")
    return pairs


def _are_offsets(offsets: npt.NDArray[Any], total: int) -> bool:
    return bool(len(offsets) and offsets[0] == 0 and offsets[-1] == total and (offsets[1:] >= offsets[:-1]).all())


def _array(folder: Path, name: str, *dtypes: npt.DTypeLike, dimensions: int = 1) -> npt.NDArray[Any]:
    path = folder / f"{name}.npy"
    try:
        # Copy on write: compiled kernels see an ordinary writable array (a read-only one is a type of its own, which
        # would compile each kernel twice), and the file can still not be changed.
        array = np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
    except FileNotFoundError:
        raise DataError("missing; import the dataset again", path) from None
    except Exception as error:  # numpy parses the header as Python and fails in many ways
        raise DataError(f"damaged: {' '.join(str(error).split())}", path) from None
    if array.dtype not in dtypes or array.ndim != dimensions or not array.flags.c_contiguous:
        raise _damaged(path)
    return array


def _json(path: Path) -> dict[str, Any]:
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
