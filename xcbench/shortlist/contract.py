"""What every shortlister promises, and how its parameters are kept on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from xcbench.data import TopK
from xcbench.errors import DataError, InputError
from xcbench.files import atomic_folder

if TYPE_CHECKING:
    from torch import Tensor

Floats: TypeAlias = npt.NDArray[np.float32]
Vectors: TypeAlias = Union[Floats, "Tensor"]  # torch need not be loaded for it


class Shortlister(Protocol):
    """Proposes labels for points that come as dense vectors."""

    @property
    def label_count(self) -> int: ...

    def shortlist(self, X: Vectors, k: int) -> TopK:
        """The k labels that fit each row of X best; always k columns, padded where there are fewer labels."""

    def save(self, folder: Path) -> None: ...


def as_matrix(X: Vectors, width: int | None = None) -> Floats:
    """Rows as contiguous float32 in main memory, without a copy where they are that already."""
    rows = X if isinstance(X, np.ndarray) else X.detach().cpu().numpy()
    if rows.ndim != 2 or (width is not None and rows.shape[1] != width):
        raise InputError(f"expected vectors [n, {'D' if width is None else width}], got {list(rows.shape)}")
    return np.ascontiguousarray(rows, np.float32)


def as_bias(bias: Vectors | None, count: int) -> Floats:
    """One number a row of a classifier, or an empty array where there is no bias."""
    if bias is None or bias.shape[0] == 0:
        return np.empty(0, np.float32)
    row: Floats = as_matrix(bias.reshape(1, -1), count)[0]
    return row


def save_parts(folder: Path, kind: str, settings: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Settings as JSON, arrays as safetensors, in a folder that appears whole or not at all."""
    with atomic_folder(folder) as part:
        save_file({k: np.ascontiguousarray(a) for k, a in arrays.items()}, part / "arrays.safetensors")
        (part / "shortlister.json").write_text(json.dumps({"kind": kind, **settings}, indent=2) + "\n", "utf-8")


class Saved(dict[str, Any]):
    """What was read from a folder; to ask for what is not there is the folder's fault."""

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        super().__init__(values)
        self.path = path

    def __missing__(self, name: str) -> Any:
        raise DataError(f"expected {name!r}, found {', '.join(sorted(self)) or 'nothing'}", self.path)


def load_parts(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """What `save_parts` wrote."""
    path, values = folder / "shortlister.json", folder / "arrays.safetensors"
    try:
        settings, arrays = Saved(json.loads(path.read_text("utf-8")), path), Saved(load_file(values), values)
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise DataError(f"cannot be read as a saved shortlister: {error}", folder) from None
    if (found := settings.pop("kind", None)) != kind:
        raise DataError(f"expected a shortlister of kind {kind!r}, got {found!r}", path)
    return settings, arrays
