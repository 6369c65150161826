"""Spreads a compiled loop over threads, by rows.

Our kernels are serial loops over rows [first, last) that release the GIL. Small work is done where it is asked for: to
wake a thread takes longer than to pass over a few thousand numbers. No result depends on how rows are shared out.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]

Loop = TypeVar("Loop", bound=Callable[..., Any])

SMALL = 1 << 16
"""Up to so many elementary operations one thread is faster than two."""


def kernel(loop: Loop) -> Loop:
    """Compile a loop so that it runs beside others and vectorises.

    Sums may be reordered and fused; nan and inf keep their meaning; a division by zero gives one of them instead of
    an exception, whose mere possibility would keep a loop from being vectorised.
    """
    fast = {"reassoc", "contract", "arcp", "nsz"}
    return njit(cache=True, nogil=True, error_model="numpy", fastmath=fast)(loop)  # type: ignore[return-value]


def share_rows(kernel: Callable[..., None], rows: int, work: int, *args: Any) -> None:
    """kernel(first, last, *args) over all rows, by as many threads as torch has; `work` is the cost of them all."""
    threads = torch.get_num_threads() if work > SMALL else 1
    share_ranges(kernel, [k * rows // threads for k in range(threads + 1)], *args)


def share_ranges(kernel: Callable[..., None], bounds: Sequence[int], *args: Any) -> None:
    """The same with the ranges given: bounds[0] to bounds[1], and so on. Tensors are passed as arrays."""
    arrays = [a.numpy() if isinstance(a, Tensor) else a for a in args]
    own, *others = itertools.pairwise(bounds)
    busy = [_pool(os.getpid(), len(others)).submit(kernel, *range_, *arrays) for range_ in others]
    kernel(*own, *arrays)
    for other in busy:
        other.result()


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """One pool; a forked process, in which the threads of its parent do not run, gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="xcbench-kernel")
