"""Kernels side by side: each runs on one thread without the interpreter's lock, on a part of its own."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numba

Part = TypeVar("Part")
Result = TypeVar("Result")


def each(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """The results of all parts in their order; whichever thread is free takes the next part."""
    threads = min(numba.get_num_threads(), len(parts))
    if threads < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))


def spans(count: int, size: int) -> list[tuple[int, int]]:
    """[0, count) in pieces of `size`, as pairs of start and stop."""
    return [(start, min(start + size, count)) for start in range(0, count, size)]
