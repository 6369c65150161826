"""Datasets by name: the embedded ones, those a user imported, and any folder or zip by its path."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from xcbench.data import embedded, text
from xcbench.data.binary import VERSION, is_stored, load_stored, store_dataset
from xcbench.data.dataset import Dataset
from xcbench.data.manifest import MANIFEST_FILE
from xcbench.errors import DataError, InputError, unknown_name
from xcbench.files import home


@dataclass(frozen=True)
class DatasetEntry:
    """A dataset that has a name here."""

    name: str
    origin: str
    """"embedded" or "imported"."""
    folder: Path


def dataset_entries() -> list[DatasetEntry]:
    """Every dataset that can be loaded by name, the embedded ones first."""
    entries = [DatasetEntry(name, "embedded", embedded.embedded_folder(name)) for name in embedded.embedded_names()]
    store = _store()
    if store.is_dir():
        folders = sorted(folder for folder in store.iterdir() if not folder.name.startswith(".") and is_stored(folder))
        entries += [DatasetEntry(folder.name, "imported", folder) for folder in folders]
    return entries


def dataset_names() -> list[str]:
    """The names of `dataset_entries`."""
    return [entry.name for entry in dataset_entries()]


def load_dataset(name_or_path: str | Path) -> Dataset:
    """Load a dataset by its name, or from a folder or zip in any form."""
    name = str(name_or_path)
    if name in embedded.embedded_names():
        return _load_embedded(name)
    if _is_name(name) and is_stored(_store() / name):
        return load_stored(_store() / name)
    path = Path(name_or_path).expanduser()
    if path.exists():
        return load_stored(path) if is_stored(path) else _load_raw(path, _name_of(path))
    if not _is_name(name):
        raise DataError("no such dataset, file or folder", path)
    raise unknown_name("dataset", name, dataset_names())


def free_folder(name: str, replace: bool = False) -> Path:
    """Where a dataset of this name is to be stored; refused where the name is taken or cannot be one."""
    if not _is_name(name):
        raise InputError(
            f"a dataset's name is letters, digits, '.', '_' and '-', starting with one of the first two; got {name!r}"
        )
    if name in embedded.embedded_names():
        raise InputError(f"{name!r} is the name of an embedded dataset; choose another")
    folder = _store() / name
    if folder.exists() and not replace:
        raise InputError(f"a dataset {name!r} is there already; --replace puts this one in its place")
    return folder


def _load_raw(path: Path, name: str) -> Dataset:
    # Here and not above: the readers bring a compiler along, for which listing names should not wait.
    from xcbench.data.assemble import assemble
    from xcbench.data.readers import read_raw

    return assemble(read_raw(path), name)


def _load_embedded(name: str) -> Dataset:
    """Embedded sets ship as text; the first use stores their binary form, where there is a place for it."""
    folder = embedded.embedded_folder(name)
    cached = home() / "datasets-cache" / f"{name}-{_embedded_key(folder)}"
    with contextlib.suppress(DataError):
        if is_stored(cached):
            return load_stored(cached)
    dataset = _load_raw(folder, name)
    # A home that cannot be written, or another process that was faster, costs nothing but the next load's time.
    with contextlib.suppress(OSError):
        store_dataset(dataset, cached)
    return dataset


@functools.cache
def _embedded_key(folder: Path) -> str:
    """Changes with all that the features come from: the files (through their manifest) and how text is encoded."""
    digest = hashlib.sha256((folder / MANIFEST_FILE).read_bytes())
    digest.update(Path(text.__file__).read_bytes())
    return f"v{VERSION}-{digest.hexdigest()[:16]}"


def _store() -> Path:
    return home() / "datasets"


def _is_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) is not None


def _name_of(path: Path) -> str:
    """A legal name for what has none but its path's."""
    name = path.resolve().stem if path.is_file() else path.resolve().name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-") or "data"
