"""Many points as blocks on all cores, within memory that is known beforehand.

A worker takes a block through its whole way (scores, selection, re-ranking) while the block is warm in its cache, then
takes the next one: no barrier between the steps, and a core that is busy elsewhere costs only its share. For that, the
BLAS behind numpy must stay on one thread in each worker.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numba
import numpy as np
import psutil
from threadpoolctl import ThreadpoolController

from xcbench.data import TopK
from xcbench.errors import XCBenchError
from xcbench.shortlist.running import SCAN

ROWS, COLUMNS = 1024, 2048  # a tile of scores: large enough for BLAS at full speed, small enough for the cache


def topk_in_blocks(points: int, k: int, work: Callable[[slice], TopK]) -> TopK:
    """Put together what `work` finds for each block of points; at most `ROWS` of them, fewer where cores would idle."""
    MemoryNeed(8 * points * k, 0).require(f"a list of {k} labels for each of {points} points")
    found = TopK(np.empty((points, k), np.int32), np.empty((points, k), np.float32))

    def one(block: slice) -> None:
        part = work(block)
        found.indices[block], found.scores[block] = part.indices, part.scores

    in_blocks(points, rows_in_block(points, numba.get_num_threads()), one)
    return found


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


@dataclass(frozen=True)
class MemoryNeed:
    """What a prediction takes, in bytes; parameters that are loaded already count 0."""

    results: int
    """The `TopK` of all points."""
    work: int
    """The blocks under way, one a worker; does not grow with the number of points."""
    parameters: int = 0

    @property
    def total(self) -> int:
        return self.parameters + self.results + self.work

    def __str__(self) -> str:
        parts = {"parameters": self.parameters, "results": self.results, "blocks under way": self.work}
        return f"{_size(self.total)} ({', '.join(f'{_size(size)} {name}' for name, size in parts.items() if size)})"

    def require(self, what: str) -> None:
        """Stop before the work begins where it could only end in a crash."""
        free = psutil.virtual_memory().available
        if self.total > free:
            raise XCBenchError(f"{what} needs {self}, but only {_size(free)} of memory are free")


def search_memory(points: int, k: int, columns: int) -> MemoryNeed:
    """For the k best of `columns` scores a point."""
    workers = numba.get_num_threads()
    a_row = 4 * min(columns, COLUMNS) + 8 * (2 * min(k, columns) + SCAN) + 8 * k
    return MemoryNeed(8 * points * k, workers * rows_in_block(points, workers) * a_row)


def prediction_memory(
    points: int, k: int, labels: int, clusters: int, dimension: int, beam: int, edges: int = 0
) -> MemoryNeed:
    """For a whole prediction by cluster beam, classifiers and graphs of `edges` edges in all included.

    To be asked before training begins: a model that cannot be used need not be trained.
    """
    work = search_memory(points, 2 * beam, clusters).work  # GAME may double the beam, here and among labels
    classifiers = 4 * (labels + clusters) * (dimension + 1) + 8 * labels
    return MemoryNeed(8 * points * k, 2 * work, classifiers + 8 * edges)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
