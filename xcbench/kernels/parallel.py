"""Compiled loops, and how they are spread over threads.

A kernel is a serial loop that releases the interpreter's lock, so that several run at once on different threads.
All of them go through `map_threads`: the calling thread works too, helped by threads of a pool that stays alive between
calls. Results never depend on the number of threads.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Any, TypeVar

import numba
import torch
from numba import njit
from threadpoolctl import ThreadpoolController
from torch import Tensor

from xcbench.progress import PartCounter

Loop = TypeVar("Loop", bound=Callable[..., Any])
Part = TypeVar("Part")
Result = TypeVar("Result")

SMALL = 1 << 16
"""Up to so many elementary operations one thread is faster than two: waking a thread takes longer than the work."""

FEW_PARTS = 8
"""Up to so many parts are not counted: training steps, which have one per thread, must not pay for it."""

BLOCKS_OF_WORK = 1 << 31
"""Elementary operations after which `share_rows` can say how far it is: about a second."""

MAX_ROWS = 1024
"""Rows of a block of points: enough for BLAS at full speed, few enough for the cache."""


def kernel(loop: Loop) -> Loop:
    """Compile a loop so that it vectorises, and runs in parallel with others on different threads.

    Sums may be reordered and fused. nan and inf keep their meaning. A division by zero gives one of them instead of
    an exception, whose mere possibility would keep a loop from being vectorised.
    """
    compiler = njit(
        cache=True,
        nogil=True,
        error_model="numpy",
        fastmath={"reassoc", "contract", "arcp", "nsz"},
    )
    return compiler(loop)  # type: ignore[return-value]


def map_threads(
    work: Callable[[Part], Result],
    parts: Sequence[Part],
    threads: int | None = None,
) -> list[Result]:
    """Return `work(part)` for all parts, in their order. Whichever thread is free takes the next part.

    `threads` counts the calling thread; by default it is numba's number of threads. Calls may be nested: the calling
    thread does all the work itself where no other is free. It also shows how many parts are done, if that lasts long.
    """
    if threads is None:
        threads = numba.get_num_threads()
    if len(parts) <= FEW_PARTS:
        return _map(work, parts, threads, None)
    with PartCounter(len(parts)) as counter:
        return _map(work, parts, threads, counter)


def _map(
    work: Callable[[Part], Result],
    parts: Sequence[Part],
    threads: int,
    counter: PartCounter | None,
) -> list[Result]:
    if min(threads, len(parts)) < 2:
        return _map_here(work, parts, counter)

    caller = threading.get_ident()
    done: list[None] = []  # one entry per part that is done: threads may append at once
    results: list[Any] = [None] * len(parts)
    numbers = iter(range(len(parts)))  # shared by all threads; each takes its next part's number from here

    def take_parts() -> None:
        try:
            for i in numbers:
                results[i] = work(parts[i])
                done.append(None)
                if counter is not None and threading.get_ident() == caller:
                    counter.reach(len(done))
        except BaseException:
            for _ in numbers:  # leave nothing for the other threads: the call fails anyway
                pass
            raise

    helpers = min(threads, len(parts)) - 1
    _run_with_helpers(take_parts, helpers, threads)
    return results


def _map_here(work: Callable[[Part], Result], parts: Sequence[Part], counter: PartCounter | None) -> list[Result]:
    results = []
    for part in parts:
        results.append(work(part))
        if counter is not None:
            counter.advance()
    return results


def _run_with_helpers(work: Callable[[], None], helpers: int, threads: int) -> None:
    """Call `work` on this thread and on `helpers` others, wait for all of them, and raise what any of them raised."""
    pool = _pool(os.getpid(), threads - 1)
    tasks = [pool.submit(work) for _ in range(helpers)]
    try:
        work()
    finally:
        # A task that has not begun by now has nothing left to do. Waiting for it could block a nested call for ever.
        started = [task for task in tasks if not task.cancel()]
        for task in started:
            task.exception()  # waits for its end
    for task in started:
        task.result()  # raises what it raised


@lru_cache(maxsize=2)  # the numbers of threads that torch and numba have may differ
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return this process's pool. A forked process needs its own, since its parent's threads do not run in it."""
    return ThreadPoolExecutor(threads, thread_name_prefix="xcbench-kernel")


def split_range(count: int, size: int) -> list[tuple[int, int]]:
    """Cut [0, count) into pieces of `size`, as pairs of start and stop."""
    starts = range(0, count, size)
    return [(start, min(start + size, count)) for start in starts]


def in_blocks(count: int, size: int, work: Callable[[slice], None]) -> None:
    """Call `work` with slices of [0, count) of `size` each, on all threads. BLAS keeps to one thread in each."""
    blocks = [slice(start, stop) for start, stop in split_range(count, size)]
    with _blas().limit(limits=1, user_api="blas"):
        map_threads(work, blocks)


def rows_in_block(points: int, workers: int) -> int:
    """Return how many points a block has: at most `MAX_ROWS`, fewer where some of the workers would get none."""
    rows_per_worker = -(-points // workers)
    return max(1, min(MAX_ROWS, rows_per_worker))


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def share_rows(
    kernel: Callable[..., None],
    rows: int,
    work: int,
    *args: Any,
) -> None:
    """Call kernel(first, last, *args) for ranges that cover all rows, on as many threads as torch has.

    `work` is the number of elementary operations in all; up to `SMALL` of them are done by the calling thread alone.
    Tensors among `args` are passed as arrays.
    """
    threads = 1
    if work > SMALL:
        threads = torch.get_num_threads()
    pieces = threads * (1 + work // BLOCKS_OF_WORK)
    bounds = [k * rows // pieces for k in range(pieces + 1)]
    share_ranges(kernel, bounds, *args, threads=threads)


def share_ranges(
    kernel: Callable[..., None],
    bounds: Sequence[int],
    *args: Any,
    threads: int | None = None,
) -> None:
    """Do the same for given ranges: bounds[0] to bounds[1], bounds[1] to bounds[2], and so on.

    There is a thread for each of them, unless `threads` says how many there are.
    """
    arrays = [_as_array(argument) for argument in args]
    ranges = list(itertools.pairwise(bounds))

    def run(range_: tuple[int, int]) -> None:
        kernel(*range_, *arrays)

    map_threads(run, ranges, threads=threads or len(ranges))


def _as_array(argument: Any) -> Any:
    """Return a tensor's memory as an array, and any other argument as it is."""
    if isinstance(argument, Tensor):
        return argument.numpy()
    return argument
