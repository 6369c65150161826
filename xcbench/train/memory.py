"""How much memory a training will need, and how to stop the allocator from giving it back between steps."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import psutil
import torch
from torch import nn

from xcbench.data import Dataset
from xcbench.errors import XCBenchError
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.nn import LabelBank
from xcbench.train.batches import Points

WORKING_COPIES = 10
"""How many tables of (labels of a step) x D live at once between forward and backward pass: as measured for DECAF."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by what they are for."""

    parameters: int
    moments: int
    gradients: int
    step: int
    data: int

    @property
    def total(self) -> int:
        return self.parameters + self.moments + self.gradients + self.step + self.data

    def __str__(self) -> str:
        parts = {
            "parameters": self.parameters,
            "Adam": self.moments,
            "gradients": self.gradients,
            "a step": self.step,
            "data": self.data,
        }
        return f"{_size(self.total)} ({', '.join(f'{what} {_size(n)}' for what, n in parts.items())})"


def estimate_memory(module: nn.Module, points: Points, batch_size: int) -> MemoryEstimate:
    """What training the module on the points will take; a batch is cut to see how many labels a step touches."""
    batch = points.cut(np.arange(min(batch_size, len(points))))
    labels = batch.targets.width if batch.shortlists is None else len(batch.shortlists.labels)
    banks = {id(m.weight) for m in module.modules() if isinstance(m, LabelBank)} if batch.shortlists else set()
    trained = [p for p in module.parameters() if p.requires_grad]
    dim = max((p.shape[-1] for p in trained if p.ndim == 2), default=1)
    return MemoryEstimate(
        parameters=sum(t.nbytes for t in (*module.parameters(), *module.buffers())),
        moments=2 * sum(p.nbytes for p in trained),
        gradients=sum(p.nbytes for p in trained if id(p) not in banks),
        step=4 * WORKING_COPIES * dim * (labels + len(batch.rows)),
        data=_bytes(points.X) + _bytes(points.targets) + (points.candidates.groups.nbytes if points.candidates else 0),
    )


def cascade_memory(
    data: Dataset, dim: int, clusters: int, candidates: int, listed: int, batch_size: int, frozen: bool = False
) -> int:
    """Bytes that training a method like DECAF adds at its peak, from shapes alone: before there is a module to ask.

    Modules I and II rank all clusters; the last one ranks the labels that the shortlists of a batch have together,
    each of so many candidates and kept as a list of so many numbers. What is learnt counts four times (itself, its
    gradient, two moments), but free vectors of labels three times: few have a gradient.
    """
    N, L, row = len(data.train), data.label_count, 4 * dim
    batch, E, step = min(batch_size, N), row * data.feature_count, WORKING_COPIES * row
    tokens = E if frozen else 4 * E
    first = 4 * E + step * (clusters + batch)
    second = tokens + 4 * row * clusters + step * (clusters + batch)
    last = tokens + 3 * row * L + step * (min(L, batch * candidates) + batch) + 4 * N * listed
    kept = 3 * E + row * (clusters + L)  # what earlier stages leave behind, and the classifiers in the end
    held = sum(M.data.nbytes + M.indices.nbytes + M.indptr.nbytes for M in (data.train.X, data.train.Y))
    return max(first, second, last) + kept + held + 2 * row * N  # points as vectors: E x, and encoded


def check_fits(estimate: MemoryEstimate, name: str, device: torch.device) -> None:
    """Say at once that a training cannot fit, instead of dying of it later. Data is in memory already."""
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available
    needed = estimate.total - estimate.data
    if needed > free:
        raise XCBenchError(
            f"{name} needs about {_size(needed)} more memory on {device}, and {_size(free)} are free: {estimate}; "
            f"a smaller dimension or batch needs less"
        )


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Have glibc keep freed blocks for the next step instead of returning them to the system.

    A fresh block of some megabytes costs a page fault every 4 kB: more than the arithmetic that fills it.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    mmap_max, trim_threshold = -4, -1  # numbers of glibc's malloc.h
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        yield
        return
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, 2**31 - 1)
    try:
        yield
    finally:
        libc.mallopt(mmap_max, 65536)  # glibc's own defaults
        libc.mallopt(trim_threshold, 128 * 1024)
        libc.malloc_trim(0)


def _bytes(part: SparseRows | torch.Tensor) -> int:
    if isinstance(part, SparseRows):
        return part.starts.nbytes + part.columns.nbytes + part.values.nbytes
    return part.nbytes


def _size(number: int) -> str:
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"
