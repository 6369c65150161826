"""How much memory a training will need, and how to keep the allocator from giving it back between steps."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator

import numpy as np
import psutil
import scipy.sparse as sp
import torch
from torch import nn

from xcbench.data import Dataset
from xcbench.errors import XCBenchError
from xcbench.kernels.arrays import Longs
from xcbench.kernels.csr import SparseRows
from xcbench.kernels.memory import MemoryEstimate, binary_size
from xcbench.nn import LabelBank
from xcbench.ranks import process_count
from xcbench.train.batches import Batch, Points
from xcbench.train.label_shards import LabelShards

WORKING_COPIES = 10
"""Tables of (labels of a step) x D that exist at once between forward and backward pass, as measured for DECAF."""

# The numbers of these parameters in glibc's malloc.h, and glibc's defaults.
_M_MMAP_MAX = -4
_M_TRIM_THRESHOLD = -1
_DEFAULT_MMAP_MAX = 65536
_DEFAULT_TRIM_THRESHOLD = 128 * 1024


def estimate_memory(
    module: nn.Module,
    points: Points,
    batch_size: int,
    device: torch.device | None = None,
    shards: LabelShards | None = None,
) -> MemoryEstimate:
    """Return what training will take. One batch is cut, to see how many labels a step touches.

    Parameters
    ----------
    module
        The module to train.
    points
        What it is trained on.
    batch_size
        Points per step.
    device
        Where training runs; by default on the CPU. Elsewhere, dense features are copied to the device as a whole.
    shards
        How labels are split over processes, if they are. The module then has the rows of this process's labels.
    """
    batch = _cut(points, np.arange(min(batch_size, len(points))), shards)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    sparse = _with_sparse_gradients(module, batch)
    dim = max((parameter.shape[-1] for parameter in trained if parameter.ndim == 2), default=1)
    parts = {
        "parameters": sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers())),
        "Adam": 2 * sum(parameter.nbytes for parameter in trained),
        "gradients": sum(parameter.nbytes for parameter in trained if id(parameter) not in sparse),
        "a step": 4 * WORKING_COPIES * dim * (_label_count(batch) + len(batch.rows)),
        "data": _bytes_of_points(points),
    }
    if device is not None and device.type != "cpu" and isinstance(points.X, torch.Tensor):
        parts["features"] = points.X.nbytes
    return MemoryEstimate(parts)


def _cut(points: Points, rows: Longs, shards: LabelShards | None) -> Batch:
    """Return a batch, or this process's share of it."""
    if shards is None:
        return points.cut(rows)
    return shards.prepare(points, rows, key=0).finish(torch.device("cpu"))


def _with_sparse_gradients(module: nn.Module, batch: Batch) -> set[int]:
    """Return the ids of the tables of which a step touches only some rows: label banks, if there are shortlists."""
    if batch.shortlists is None:
        return set()
    return {id(part.weight) for part in module.modules() if isinstance(part, LabelBank)}


def _label_count(batch: Batch) -> int:
    if batch.shortlists is None:
        return batch.targets.width
    return len(batch.shortlists.labels)


def _bytes_of_points(points: Points) -> int:
    total = _bytes_of(points.X) + _bytes_of(points.targets)
    if points.candidates is not None:
        total += points.candidates.groups.nbytes
    return total


def _bytes_of(part: SparseRows | torch.Tensor | sp.csr_array) -> int:
    if isinstance(part, torch.Tensor):
        return part.nbytes
    return int(part.indptr.nbytes + part.indices.nbytes + part.data.nbytes)


def cascade_memory(
    data: Dataset,
    dim: int,
    clusters: int,
    candidates: int,
    listed: int,
    batch_size: int,
    frozen: bool = False,
) -> int:
    """Return the bytes that training a method like DECAF adds at its peak, from shapes alone, before there is a module.

    Modules I and II rank all clusters. The last module ranks the union of the shortlists of a batch. What is learnt
    counts four times: itself, its gradient and two moments. Free vectors of labels count three times, since few of them
    have a gradient. Under `torchrun` each process has its share of the labels.

    Parameters
    ----------
    data
        The dataset.
    dim
        D, the length of a vector.
    clusters
        The number of clusters.
    candidates
        Candidates per point in the last module.
    listed
        Numbers per point that are stored to list these candidates.
    batch_size
        Points per step.
    frozen
        Whether token embeddings stay fixed after Module I.
    """
    N = len(data.train)
    L = data.label_count
    batch = min(batch_size, N)
    vector = 4 * dim
    work_per_row = WORKING_COPIES * vector

    E = vector * data.feature_count
    E_in_training = E if frozen else 4 * E
    own_clusters = -(-clusters // process_count())
    own_labels = -(-L // process_count())
    rows_of_clusters = own_clusters + batch
    rows_of_labels = min(own_labels, batch * candidates) + batch

    first_module = 4 * E + work_per_row * rows_of_clusters
    second_module = E_in_training + 4 * vector * own_clusters + work_per_row * rows_of_clusters
    last_module = E_in_training + 3 * vector * own_labels + work_per_row * rows_of_labels + 4 * N * listed

    outputs = 3 * E + vector * (clusters + L)  # what earlier stages leave behind, and the final classifiers
    sparse_data = _bytes_of(data.train.X) + _bytes_of(data.train.Y)
    dense_points = 2 * vector * N  # E x, and encoded
    return max(first_module, second_module, last_module) + outputs + sparse_data + dense_points


def free_memory(device: torch.device) -> int:
    """Return the bytes that can still be allocated on a device.

    On a GPU, torch keeps freed blocks for later: the driver counts them as used, but they can be had again.
    """
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    free_for_driver = torch.cuda.mem_get_info(device)[0]
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(free_for_driver + cached)


def check_fits(estimate: MemoryEstimate, name: str, device: torch.device) -> None:
    """Raise an error if a training needs more memory than is free. Its data is in memory already."""
    free = free_memory(device)
    needed = estimate.total - estimate["data"]
    if needed > free:
        raise XCBenchError(
            f"{name} needs about {binary_size(needed)} more memory on {device}, "
            f"and {binary_size(free)} are free: {estimate}; "
            f"a smaller dimension or batch needs less"
        )


@contextlib.contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Make glibc keep freed blocks for the next step instead of returning them to the system.

    A fresh block of some megabytes costs a page fault per 4 kB, which takes longer than the arithmetic that fills it.
    """
    libc = _glibc()
    if libc is None:
        yield
        return

    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        libc.mallopt(_M_MMAP_MAX, _DEFAULT_MMAP_MAX)
        libc.mallopt(_M_TRIM_THRESHOLD, _DEFAULT_TRIM_THRESHOLD)
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """Return the C library, if it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):
        return libc
    return None
