"""The one place that decides how many threads run.

torch and numba each keep a pool. Left alone, their idle workers spin on the cores the other one needs, and an
epoch takes five to ten times longer. So: idle OpenMP workers sleep, numba uses its own `workqueue` layer instead
of a second OpenMP pool, and both pools get the same size from `set_threads`.

The workqueue layer must not be entered from two Python threads at once: parallel numba kernels are called from
the main thread only.
"""

import os
import sys

from xcbench.ranks import processes_here


def tame_pools() -> None:
    """Set the environment that torch and numba read when they are first imported. A user's own value wins."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if (wanted := os.environ.get("XCBENCH_THREADS")) and wanted.isdigit() and "numba" not in sys.modules:
        os.environ.setdefault("NUMBA_NUM_THREADS", wanted)


def default_threads() -> int:
    """`XCBENCH_THREADS` where it is set, else the cores this process may use, shared with others of `torchrun`."""
    if (wanted := os.environ.get("XCBENCH_THREADS")) and wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // processes_here())


def set_threads(count: int | None = None) -> int:
    """Give torch and numba the same number of threads, and return it.

    numba's pool cannot grow beyond the size it started with, so there the count is capped.
    """
    import numba
    import torch

    count = default_threads() if count is None else count
    if count < 1:
        raise ValueError(f"a thread count is at least 1, got {count}")
    torch.set_num_threads(count)
    pool: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(min(count, pool))
    return count
