"""Datasets by name: the embedded ones, those a user imported, and any folder or zip by its path."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from xcbench.data import embedded, text
from xcbench.data.binary import VERSION, is_stored, load_stored, store_dataset, stored_sizes
from xcbench.data.dataset import Dataset
from xcbench.data.manifest import MANIFEST_FILE, Manifest, Sizes
from xcbench.data.published import REPOSITORY, published_propensity
from xcbench.errors import DataError, InputError, unknown_name
from xcbench.files import home


@dataclass(frozen=True)
class DatasetEntry:
    """A dataset that can be loaded by name."""

    name: str
    origin: str
    """"embedded" or "imported"."""
    folder: Path

    def sizes(self) -> Sizes | None:
        """Return how many points, labels and features it has, without loading it; None where that is not said."""
        if self.origin == "imported":
            return stored_sizes(self.folder)
        path = self.folder / MANIFEST_FILE
        return Manifest.from_dict(json.loads(path.read_text("utf-8")), path).sizes


def dataset_entries() -> list[DatasetEntry]:
    """Return every dataset that can be loaded by name, the embedded ones first."""
    embedded_folders = [embedded.embedded_folder(name) for name in embedded.embedded_names()]
    entries = [DatasetEntry(folder.name, "embedded", folder) for folder in embedded_folders]
    entries += [DatasetEntry(folder.name, "imported", folder) for folder in _imported_datasets()]
    return entries


def dataset_names() -> list[str]:
    """Return the names of all datasets that `load_dataset` knows, the embedded ones first."""
    return [entry.name for entry in dataset_entries()]


def load_dataset(name_or_path: str | Path) -> Dataset:
    """Load a dataset.

        Raises `InputError` for an unknown name, and `DataError` for files that cannot be read as a dataset.

        Parameters
        ----------
        name_or_path
    from xcbench.data.manifest import MANIFEST_FILE, Manifest, Sizes
    from xcbench.data.published import REPOSITORY, published_propensity
    """
    name = str(name_or_path)
    if name in embedded.embedded_names():
        return _load_embedded(name)
    if _is_valid_name(name) and is_stored(_imported_folder() / name):
        return load_stored(_imported_folder() / name)

    path = Path(name_or_path).expanduser()
    is_path = isinstance(name_or_path, Path) or not _is_valid_name(name)
    if path.is_file() or (is_path and path.exists()):
        return _load_path(path)
    if is_path:
        raise DataError("no such dataset, file or folder", path)
    raise _unknown_dataset(name)


def remove_dataset(name: str) -> Path:
    """Delete an imported dataset; returns the folder that it was in. Runs on it keep their records.

    Parameters
    ----------
    name
        The name of an imported dataset. An embedded one cannot be deleted.
    """
    if name in embedded.embedded_names():
        raise InputError(f"{name!r} is an embedded dataset, which cannot be deleted")
    folders = {folder.name: folder for folder in _imported_datasets()}
    if name not in folders:
        raise unknown_name("imported dataset", name, folders)

    folder = folders[name]
    # A name that starts with a dot is no dataset, so that nobody sees half of one.
    leaving = folder.with_name(f".{name}.removed")
    folder.replace(leaving)
    shutil.rmtree(leaving)
    return folder


def folder_for_new(name: str, replace: bool = False) -> Path:
    """Return the folder in which to store a new dataset.

    Raises `InputError` where the name is not allowed or, without `replace`, already taken.
    """
    if not _is_valid_name(name):
        raise InputError(
            f"a dataset's name is letters, digits, '.', '_' and '-', starting with one of the first two; got {name!r}"
        )
    if name in embedded.embedded_names():
        raise InputError(f"{name!r} is the name of an embedded dataset; choose another")

    folder = _imported_folder() / name
    if folder.exists() and not replace:
        raise InputError(f"a dataset {name!r} is there already; --replace puts this one in its place")
    return folder


def _unknown_dataset(name: str) -> InputError:
    """Return the error for a name that no dataset has: what else it may mean, and where published data comes from."""
    folder = Path(name)
    if folder.is_dir():
        return InputError(
            f"unknown dataset {name!r}; there is a folder of that name here: write ./{name} for it, or import it with "
            f"`xcbench data import {name} --name {name}`"
        )

    spelling = {known.lower(): known for known in published_propensity()}
    known = spelling.get(name.lower())
    if known is None:
        return unknown_name("dataset", name, dataset_names())

    constants = published_propensity()[known]
    return InputError(
        f"unknown dataset {name!r}: its files are not part of xcbench. Get them from the Extreme Classification "
        f"Repository ({REPOSITORY}), then `xcbench data import FILE.zip --name {known} --propensity-a {constants.A:g} "
        f"--propensity-b {constants.B:g}`; `xcbench data synth --like {known}` makes data of that shape"
    )


def _load_path(path: Path) -> Dataset:
    if is_stored(path):
        return load_stored(path)
    return _read_dataset(path, name_from_path(path))


def _read_dataset(path: Path, name: str) -> Dataset:
    # Imported here, since the readers load a compiler, which listing names should not wait for.
    from xcbench.data.assemble import assemble
    from xcbench.data.readers import read_raw
    from xcbench.data.readers.single_table import TableColumns, read_single_table
    from xcbench.data.readers.table_files import is_table

    if path.is_file() and is_table(path):
        return assemble(read_single_table(path, TableColumns()), name)
    return assemble(read_raw(path), name)


def _load_embedded(name: str) -> Dataset:
    """Load an embedded dataset. Embedded datasets are text files; the first load caches their binary form."""
    folder = embedded.embedded_folder(name)
    cached = home() / "datasets-cache" / f"{name}-{_embedded_key(folder)}"
    with contextlib.suppress(DataError):
        if is_stored(cached):
            return load_stored(cached)

    dataset = _read_dataset(folder, name)
    # Where the folder cannot be written, or another process was faster, the next load merely takes longer.
    with contextlib.suppress(OSError):
        store_dataset(dataset, cached)
    return dataset


@functools.cache
def _embedded_key(folder: Path) -> str:
    """Return a cache key that changes with the files (by their manifest) and with the code that encodes text."""
    digest = hashlib.sha256((folder / MANIFEST_FILE).read_bytes())
    digest.update(Path(text.__file__).read_bytes())
    return f"v{VERSION}-{digest.hexdigest()[:16]}"


def _imported_folder() -> Path:
    return home() / "datasets"


def _imported_datasets() -> list[Path]:
    folder = _imported_folder()
    if not folder.is_dir():
        return []

    # A folder whose name starts with a dot is being written.
    complete = [child for child in folder.iterdir() if not child.name.startswith(".")]
    return sorted(child for child in complete if is_stored(child))


def _is_valid_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) is not None


def name_from_path(path: Path) -> str:
    """Return a valid name for a dataset that is known only by its path."""
    resolved = path.resolve()
    name = resolved.name
    if path.is_file():
        name = resolved.stem

    valid = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-")
    return valid or "data"
