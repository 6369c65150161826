"""Many points as blocks on all cores, within memory that is known beforehand.

A worker takes a block through its whole way (scores, selection, re-ranking) while the block is warm in its cache, then
takes the next one: no barrier between the steps, and a core that is busy elsewhere costs only its share. For that, the
BLAS behind numpy must stay on one thread in each worker.
"""

from collections.abc import Callable

import numba
import numpy as np

from xcbench.data import TopK
from xcbench.kernels.memory import MemoryNeed
from xcbench.kernels.threads import in_blocks, rows_in_block
from xcbench.shortlist.running import SCAN

COLUMNS = 2048


def topk_in_blocks(points: int, k: int, work: Callable[[slice], TopK]) -> TopK:
    """Put together what `work` finds for each block of points; at most `ROWS` of them, fewer where cores would idle."""
    MemoryNeed(8 * points * k, 0).require(f"a list of {k} labels for each of {points} points")
    found = TopK(np.empty((points, k), np.int32), np.empty((points, k), np.float32))

    def one(block: slice) -> None:
        part = work(block)
        found.indices[block], found.scores[block] = part.indices, part.scores

    in_blocks(points, rows_in_block(points, numba.get_num_threads()), one)
    return found


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
