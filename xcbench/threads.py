"""The one place that decides how many threads run.

torch and numba each keep a pool. Left alone, their idle workers spin on the cores the other one needs, and an
epoch takes five to ten times longer. So: idle OpenMP workers sleep, numba uses its own `workqueue` layer instead
of a second OpenMP pool, and both pools get the same size from `set_threads`.

The workqueue layer must not be entered from two Python threads at once: parallel numba kernels are called from
the main thread only.
"""

import os
import sys

from xcbench.ranks import local_process_count


def configure_pools() -> None:
    """Set the variables that torch and numba read when they are first imported. A user's own value wins."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

    requested = os.environ.get("XCBENCH_THREADS", "")
    if requested.isdigit() and "numba" not in sys.modules:
        os.environ.setdefault("NUMBA_NUM_THREADS", requested)


def default_threads() -> int:
    """Return `XCBENCH_THREADS` if it is set, else this process's share of the cores.

    The processes that `torchrun` started on this machine divide the cores among them.
    """
    requested = os.environ.get("XCBENCH_THREADS", "")
    if requested.isdigit() and int(requested) > 0:
        return int(requested)
    return max(1, _core_count() // local_process_count())


def _core_count() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count() -> int:
    """Return how many threads compute in this process."""
    torch = sys.modules.get("torch")
    if torch is None:
        return default_threads()
    return int(torch.get_num_threads())


def set_threads(count: int | None = None) -> int:
    """Give torch and numba the same number of threads, and return it.

    numba's pool cannot grow beyond the size it started with, so there the count is capped. `None` means
    `default_threads()`.
    """
    import numba
    import torch

    if count is None:
        count = default_threads()
    if count < 1:
        raise ValueError(f"a thread count is at least 1, got {count}")

    torch.set_num_threads(count)
    pool_size: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(min(count, pool_size))
    return count
