"""Arrays of main memory as tensors on a device. An array is copied there once, however often it is asked for.

The constant parts of a module (label text, graph) are arrays that live as long as it does, so they stay on the device.
The arrays of a batch go over when they are first used, and are freed with it. So nobody has to say what is constant.
torch.compile does not look in here: a loss that it compiled for the arrays of one batch would not do for the next.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcbench.kernels.arrays import Longs
from xcbench.kernels.csr import SparseRows

Array = npt.NDArray[Any]

_copies: dict[int, dict[tuple[torch.device, torch.dtype], Tensor]] = {}
"""By the id of an array: its copies by device and type. An entry is removed when its array is."""

_pinned: dict[int, Tensor] = {}
"""By the id of an array: its copy in page-locked memory, until it has gone over to the device."""


@torch.compiler.disable
def on_device(array: Array, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return an array as a tensor on a device. On the CPU, the tensor shares the array's memory where types agree.

    Parameters
    ----------
    array
        The array. It must not be changed afterwards.
    device
        Where the tensor is to be.
    dtype
        The tensor's type; by default the array's.
    """
    tensor = torch.from_numpy(array)
    dtype = dtype or tensor.dtype
    if device.type == "cpu":
        return tensor.to(dtype)

    copies: dict[tuple[torch.device, torch.dtype], Tensor] = _of_array(_copies, array, {})
    if (device, dtype) not in copies:
        source = _pinned.pop(id(array), tensor)
        # In two steps: torch would convert on the CPU first, and then the copy could not run in the background.
        copies[device, dtype] = source.to(device, non_blocking=True).to(dtype)
    return copies[device, dtype]


def pin(array: Array) -> None:
    """Copy an array to page-locked memory, from which a GPU fetches it while the CPU works on."""
    _of_array(_pinned, array, torch.from_numpy(array).pin_memory())


def _of_array(table: dict[int, Any], array: Array, new: Any) -> Any:
    """Return the array's entry of a table; if there is none, the new one, which will be removed with the array."""
    key = id(array)
    if key not in table:
        table[key] = new
        weakref.finalize(array, table.pop, key, None).atexit = False
    return table[key]


class DeviceRows(NamedTuple):
    """Rows of a sparse matrix on a device."""

    indptr: Tensor  # [rows + 1] of int64
    indices: Tensor  # int64
    data: Tensor

    def row_of_entries(self) -> Tensor:
        """Return the row number of each entry."""
        rows = torch.arange(len(self.indptr) - 1, device=self.indptr.device)
        return torch.repeat_interleave(rows, self.indptr.diff(), output_size=len(self.indices))


@torch.compiler.disable
def rows_on_device(rows: SparseRows, device: torch.device) -> DeviceRows:
    """Return a sparse matrix on a device."""
    return DeviceRows(
        on_device(rows.indptr, device),
        on_device(rows.indices, device, torch.int64),
        on_device(rows.data, device),
    )


@torch.compiler.disable
def take_on_device(matrix: SparseRows, rows: Longs, device: torch.device) -> DeviceRows:
    """Return some rows of a sparse matrix that stays on the device; only the row numbers go over."""
    table = rows_on_device(matrix, device)
    ids = on_device(rows, device)
    # The CPU counts the entries from its own arrays. It would have to wait for the device's answer.
    entries = int(np.sum(matrix.indptr[rows + 1] - matrix.indptr[rows]))

    starts = table.indptr[ids]
    ends = table.indptr[ids + 1]
    indptr = torch.nn.functional.pad((ends - starts).cumsum(0), (1, 0))
    offsets = torch.repeat_interleave(starts - indptr[:-1], indptr.diff(), output_size=entries)
    places = offsets + torch.arange(entries, device=device)
    return DeviceRows(indptr, table.indices[places], table.data[places])
