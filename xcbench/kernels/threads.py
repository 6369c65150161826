"""Kernels side by side: each runs on one thread without the interpreter's lock, on a part of its own."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import numba
from threadpoolctl import ThreadpoolController

Part = TypeVar("Part")
Result = TypeVar("Result")


def map_threads(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """The results of all parts in their order; whichever thread is free takes the next part."""
    threads = min(numba.get_num_threads(), len(parts))
    if threads < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))


def split_range(count: int, size: int) -> list[tuple[int, int]]:
    """[0, count) in pieces of `size`, as pairs of start and stop."""
    return [(start, min(start + size, count)) for start in range(0, count, size)]


ROWS = 1024
"""With `COLUMNS` of scores a tile: large enough for BLAS at full speed, small enough for the cache."""


def in_blocks(count: int, size: int, work: Callable[[slice], None]) -> None:
    """Have the workers do `count` things, `size` of them at a time; whoever is free takes the next block."""
    blocks = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    workers = min(numba.get_num_threads(), len(blocks))
    with _blas().limit(limits=1, user_api="blas"):
        if workers < 2:
            for block in blocks:
                work(block)
        else:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(work, blocks))


def rows_in_block(points: int, workers: int) -> int:
    return max(1, min(ROWS, -(-points // workers)))


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
