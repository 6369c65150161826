"""Values to a folder and back: arrays, tensors, sparse matrices, predictions and JSON, nested in dicts and lists.

Every array is a plain `.npy` file, so large ones are mapped rather than read: a stage that ten runs share is in
memory once. The mapping is copy-on-write: changing a loaded array never changes the file.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import TextColumn, TopK
from xcbench.errors import DataError

if TYPE_CHECKING:
    import torch

Loaded = TypeVar("Loaded")

MAPPED_FROM = 1 << 20
"""Smaller arrays are read at once: a mapping costs an open file each."""
_TREE = "values.json"
_PARTS = {"csr": ("data", "indices", "indptr"), "topk": ("indices", "scores"), "text": ("utf8", "offsets")}


def save_values(folder: Path, values: Mapping[str, Any]) -> None:
    """Write values into a folder; `load_values` gives them back with the same types.

    Parameters
    ----------
    folder
        An existing folder.
    values
        Named arrays, tensors, csr arrays, `TopK`, text columns, JSON values, and dicts or lists of these.
    """
    writer = _Writer(folder)
    tree = {str(name): writer.describe(value, str(name)) for name, value in values.items()}
    (folder / _TREE).write_text(json.dumps(tree), "utf-8")


def load_values(folder: Path) -> dict[str, Any]:
    """What `save_values` wrote into this folder. A damaged folder is a `DataError`."""
    try:
        tree = json.loads((folder / _TREE).read_text("utf-8"))
        return {name: _read_value(folder, node) for name, node in tree.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        raise DataError(f"damaged or incomplete ({error})", folder) from error


class SavedByArguments:
    """Gives a predictor or rescorer its `save` and `load`: what its constructor takes is kept.

    Each argument of the constructor must be an attribute of the same name, of a kind that `save_values` keeps.
    """

    def save(self, folder: Path) -> None:
        """Write the constructor's arguments into an existing folder."""
        names = inspect.signature(type(self)).parameters
        save_values(folder, {name: getattr(self, name) for name in names})

    @classmethod
    def load(cls: type[Loaded], folder: Path) -> Loaded:
        """What `save` wrote."""
        return cls(**load_values(folder))


class _Writer:
    """Writes arrays into numbered files and describes values by JSON that names these files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def describe(self, value: Any, where: str) -> Any:
        """The JSON description of a value whose arrays are now in files."""
        if isinstance(value, Mapping):
            return {"dict": {str(key): self.describe(item, f"{where}.{key}") for key, item in value.items()}}
        if isinstance(value, (list, tuple)):
            return {"list": [self.describe(item, f"{where}[{i}]") for i, item in enumerate(value)]}
        if isinstance(value, np.ndarray):
            return {"array": self.write(value, where)}
        if isinstance(value, np.generic):
            return {"json": value.item()}
        if isinstance(value, sp.csr_array):
            return {"csr": self.write_parts(value, "csr", where), "shape": [int(n) for n in value.shape]}
        if isinstance(value, TopK):
            return {"topk": self.write_parts(value, "topk", where)}
        if isinstance(value, TextColumn):
            return {"text": self.write_parts(value, "text", where)}
        if _is_tensor(value):
            return self.write_tensor(value, where)
        if value is None or isinstance(value, (str, bool, int, float)):
            return {"json": value}
        raise TypeError(
            f"{where} is a {type(value).__name__}; values are arrays, tensors, csr arrays, TopK, text columns, "
            "JSON values, and dicts or lists of these"
        )

    def write_parts(self, value: Any, kind: str, where: str) -> list[str]:
        return [self.write(getattr(value, part), f"{where}.{part}") for part in _PARTS[kind]]

    def write_tensor(self, value: torch.Tensor, where: str) -> dict[str, str]:
        import torch

        value = value.detach().cpu().contiguous()
        if value.dtype == torch.bfloat16:  # numpy has no such type: keep the bits
            return {"bfloat16": self.write(value.view(torch.int16).numpy(), where)}
        return {"tensor": self.write(value.numpy(), where)}

    def write(self, array: npt.NDArray[Any], where: str) -> str:
        """Write one array; returns the name of its file."""
        if array.dtype.hasobject:
            raise TypeError(f"{where} is an array of Python objects; numbers and fixed-width text can be kept")
        name = f"{self.count}.npy"
        self.count += 1
        np.save(self.folder / name, array, allow_pickle=False)
        return name


def _is_tensor(value: Any) -> bool:
    """Whether this is a torch tensor, without importing torch where it is not loaded."""
    module = type(value).__module__
    return module.partition(".")[0] == "torch" and hasattr(value, "detach")


def _read_value(folder: Path, node: dict[str, Any]) -> Any:
    (kind, content), *_ = node.items()
    if kind == "json":
        return content
    if kind == "dict":
        return {name: _read_value(folder, child) for name, child in content.items()}
    if kind == "list":
        return [_read_value(folder, child) for child in content]
    if kind == "array":
        return _read(folder, content)
    if kind == "csr":
        data, indices, indptr = (_read(folder, name) for name in content)
        return sp.csr_array((data, indices, indptr), shape=tuple(node["shape"]))
    if kind == "topk":
        return TopK(*(_read(folder, name) for name in content))
    if kind == "text":
        return TextColumn(*(_read(folder, name) for name in content))
    if kind in ("tensor", "bfloat16"):
        return _read_tensor(folder, kind, content)
    raise ValueError(f"unknown kind {kind!r}")


def _read_tensor(folder: Path, kind: str, name: str) -> torch.Tensor:
    import torch

    tensor = torch.from_numpy(_read(folder, name))
    if kind == "bfloat16":
        return tensor.view(torch.bfloat16)
    return tensor


def _read(folder: Path, name: str) -> npt.NDArray[Any]:
    path = folder / Path(name).name
    is_large = path.stat().st_size >= MAPPED_FROM
    array: npt.NDArray[Any] = np.load(path, mmap_mode="c" if is_large else None, allow_pickle=False)
    return array.view(np.ndarray)
