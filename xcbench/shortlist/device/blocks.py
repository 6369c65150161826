"""How much is computed at once on a device, and how arrays come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcbench.data import TopK
from xcbench.kernels.arrays import Longs
from xcbench.kernels.csr import CsrArrays
from xcbench.kernels.memory import free_memory
from xcbench.shortlist.blocks import empty_topk
from xcbench.shortlist.contract import Vectors, check_vectors
from xcbench.shortlist.device.selection import Found

BYTES_AT_ONCE = 1 << 27
"""The size of the largest intermediate tensor, where memory is plenty.

What a single point needs is the lower limit: a row of keys for its shortlist, or for the neighbours of its labels.
"""

LEAST_BYTES_AT_ONCE = 1 << 20
"""The same where memory is scarce."""

TENSORS_AT_ONCE = 12
"""All intermediate tensors that exist at a time have up to so many times the bytes of the largest one."""

BYTES_PER_ID = 8
"""Of the largest tensors per label or entry: ids, positions and keys."""

POINTS_AT_ONCE = 1 << 12
"""How many points are on the device at a time."""


def is_cpu(device: str | torch.device) -> bool:
    """Return whether the compiled loops compute there."""
    return torch.device(device).type == "cpu"


def upload(array: npt.NDArray[Any], device: str | torch.device) -> Tensor:
    """Copy an array to a device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def upload_ids(array: npt.NDArray[Any], device: str | torch.device) -> Tensor:
    """Copy an array of row numbers or labels to a device, as the int64 with which torch indexes."""
    return upload(array, device).to(torch.int64)


class DeviceCsr:
    """The arrays of a CSR matrix on a device.

    Parameters
    ----------
    matrix
        The arrays in main memory.
    device
        Where the copy lives.
    """

    def __init__(self, matrix: CsrArrays, device: str | torch.device) -> None:
        self.indptr = upload(matrix.indptr, device)
        self.indices = upload_ids(matrix.indices, device)
        self.data = upload(matrix.data, device)
        self.longest_row = longest_row(matrix.indptr)


def longest_row(indptr: Longs) -> int:
    """Return how many entries the longest row of a CSR matrix has."""
    return int(np.diff(indptr).max(initial=0))


def vectors_on(X: Vectors, device: str | torch.device, width: int | None = None) -> Tensor:
    """Return vectors as float32 on a device, from an array or from a tensor that may be there already.

    Parameters
    ----------
    X
        [n, D] vectors.
    device
        Where they are needed.
    width
        The D that is expected; None accepts any. Raises `InputError` where X has another one.
    """
    if isinstance(X, np.ndarray):
        X = torch.from_numpy(np.ascontiguousarray(X, np.float32))
    check_vectors(X.shape, width)
    return X.detach().to(device, torch.float32)


def bias_on(bias: Vectors | None, device: str | torch.device, count: int) -> Tensor:
    """Return the biases of `count` classifiers on a device: an empty tensor where there are none."""
    if bias is None or len(bias) == 0:
        return torch.empty(0, device=device)
    return vectors_on(bias.reshape(1, -1), device, count)[0]


def bytes_at_once(device: torch.device) -> int:
    """Return the size of the largest intermediate tensor on a device: `BYTES_AT_ONCE`, halved until all of them fit."""
    free = free_memory(device)
    size = BYTES_AT_ONCE
    while size > LEAST_BYTES_AT_ONCE and TENSORS_AT_ONCE * size > free:
        size //= 2
    return size


def row_blocks(count: int, bytes_per_row: int, device: torch.device) -> Iterator[slice]:
    """Cut [0, count) into slices whose rows have at most `bytes_at_once` together, but at least one row."""
    size = max(1, bytes_at_once(device) // max(1, bytes_per_row))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def topk_from_device(points: int, k: int, work: Callable[[slice], Found]) -> TopK:
    """Compute a `TopK` block by block on a device.

    Parameters
    ----------
    points
        The number of points.
    k
        The number of labels per point.
    work
        Returns the k best labels of one block of points, given the block's slice of [0, points).
    """
    result = empty_topk(points, k)
    for start in range(0, points, POINTS_AT_ONCE):
        block = slice(start, min(start + POINTS_AT_ONCE, points))
        found = work(block)
        result.indices[block] = found.labels.to(torch.int32).cpu().numpy()
        result.scores[block] = found.scores.cpu().numpy()
    return result
