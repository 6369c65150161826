"""The contract of all shortlisters, and how they convert their input and save their parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from xcbench.data import TopK
from xcbench.errors import DataError, InputError
from xcbench.files import atomic_folder
from xcbench.kernels.arrays import Floats

if TYPE_CHECKING:
    from torch import Tensor  # a type only: importing a shortlister does not load torch

Vectors: TypeAlias = Union[Floats, "Tensor"]
"""Dense vectors, one per row: a numpy array, or a torch tensor on any device."""

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
"""Arrays by name, as they are saved."""


class Shortlister(Protocol):
    """Proposes labels for points that are given as dense vectors."""

    @property
    def label_count(self) -> int:
        """The number of labels, L."""

    def shortlist(self, X: Vectors, k: int) -> TopK:
        """Return the k labels that fit each point best.

        Parameters
        ----------
        X
            [n, D] vectors, one per point.
        k
            The number of labels per point. The result always has k columns, padded where there are fewer labels.
        """

    def save(self, folder: Path) -> None:
        """Write the parameters to a new folder, from which `load_shortlister` reads them."""


def as_matrix(X: Vectors, width: int | None = None) -> Floats:
    """Return vectors as contiguous float32 rows in main memory. They are copied only where they are not that already.

    Parameters
    ----------
    X
        [n, D] vectors.
    width
        The D that is expected; None accepts any. Raises `InputError` where X has another one.
    """
    if not isinstance(X, np.ndarray):
        X = X.detach().cpu().numpy()
    check_vectors(X.shape, width)
    return np.ascontiguousarray(X, np.float32)


def check_vectors(shape: Sequence[int], width: int | None) -> None:
    """Raise an `InputError` where a shape is not [n, width], or not [n, D] for any D where `width` is None."""
    has_right_shape = len(shape) == 2 and width in (None, shape[1])
    if not has_right_shape:
        expected = "D" if width is None else width
        raise InputError(f"expected vectors [n, {expected}], got {list(shape)}")


def as_bias(bias: Vectors | None, count: int) -> Floats:
    """Return the biases of `count` classifiers as an array, which is empty where there are none."""
    if bias is None or bias.shape[0] == 0:
        return np.empty(0, np.float32)
    row: Floats = as_matrix(bias.reshape(1, -1), count)[0]
    return row


def save_parts(
    folder: Path,
    kind: str,
    settings: Mapping[str, Any],
    arrays: Arrays,
    write_more: Callable[[Path], None] | None = None,
) -> None:
    """Write settings as JSON and arrays as safetensors to a folder, which appears complete or not at all.

    Parameters
    ----------
    folder
        The folder to make.
    kind
        A name for what is saved. `load_parts` refuses a folder of another kind.
    settings
        Values that JSON can hold.
    arrays
        Arrays by name.
    write_more
        Called with the folder before it appears, to write what is no array.
    """
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    document = json.dumps({"kind": kind, **settings}, indent=2)
    with atomic_folder(folder) as part:
        save_file(contiguous, part / "arrays.safetensors")
        (part / "shortlister.json").write_text(document + "\n", "utf-8")
        if write_more is not None:
            write_more(part)


class _LoadedValues(dict[str, Any]):
    """Values read from a file. Reading one that is missing raises a `DataError` that names the file."""

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        super().__init__(values)
        self.path = path

    def __missing__(self, name: str) -> Any:
        present = ", ".join(sorted(self)) or "nothing"
        raise DataError(f"expected {name!r}, found {present}", self.path)


def load_parts(folder: Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    """Return the settings and the arrays that `save_parts` wrote for this kind."""
    settings_path = folder / "shortlister.json"
    arrays_path = folder / "arrays.safetensors"
    try:
        settings = _LoadedValues(json.loads(settings_path.read_text("utf-8")), settings_path)
        arrays = _LoadedValues(load_file(arrays_path), arrays_path)
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise DataError(f"cannot be read as a saved shortlister: {error}", folder) from None

    saved_kind = settings.pop("kind", None)
    if saved_kind != kind:
        raise DataError(f"expected a shortlister of kind {kind!r}, got {saved_kind!r}", settings_path)
    return settings, arrays
