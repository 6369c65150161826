"""Many points, in blocks on all cores, with memory that is known beforehand.

A worker takes a block of points through all steps (scores, selection, reranking) while the block is in its cache, then
takes the next block. No step waits for all workers, so a core that is busy with other work delays only its own block.
For that, the BLAS behind numpy must stay on one thread in each worker.
"""

from collections.abc import Callable

import numba
import numpy as np

from xcbench.data import TopK
from xcbench.kernels.memory import MemoryEstimate
from xcbench.kernels.parallel import in_blocks, rows_in_block
from xcbench.kernels.running_topk import SCAN

COLUMNS = 2048
"""How many labels an exact search scores at a time."""

BYTES_PER_PLACE = 8
"""One place of a `TopK`: a label and a score."""


def empty_topk(points: int, k: int) -> TopK:
    """Return a `TopK` with undefined content, for a kernel to fill."""
    indices = np.empty((points, k), np.int32)
    scores = np.empty((points, k), np.float32)
    return TopK(indices, scores)


def topk_in_blocks(points: int, k: int, work: Callable[[slice], TopK]) -> TopK:
    """Compute a `TopK` block by block, on all threads.

    Parameters
    ----------
    points
        The number of points. A block has at most `kernels.parallel.MAX_ROWS` of them.
    k
        The number of labels per point.
    work
        Returns the k best labels of one block of points, given the block's slice of [0, points).
    """
    memory = MemoryEstimate({"results": BYTES_PER_PLACE * points * k})
    memory.require(f"a list of {k} labels for each of {points} points")
    result = empty_topk(points, k)

    def compute_block(block: slice) -> None:
        part = work(block)
        result.indices[block] = part.indices
        result.scores[block] = part.scores

    in_blocks(points, rows_in_block(points, numba.get_num_threads()), compute_block)
    return result


def search_memory(points: int, k: int, columns: int) -> MemoryEstimate:
    """Estimate the memory of a search for the k best of `columns` scores per point.

    Parameters
    ----------
    points
        The number of points.
    k
        The number of results per point.
    columns
        The number of labels (or clusters) that are searched.
    """
    workers = numba.get_num_threads()
    scores = 4 * min(columns, COLUMNS)
    running_best = 8 * (2 * min(k, columns) + SCAN)
    bytes_per_row = scores + running_best + BYTES_PER_PLACE * k
    return MemoryEstimate(
        {
            "results": BYTES_PER_PLACE * points * k,
            "blocks under way": workers * rows_in_block(points, workers) * bytes_per_row,
        }
    )


def prediction_memory(
    points: int,
    k: int,
    labels: int,
    clusters: int,
    dimension: int,
    beam: int,
    edges: int = 0,
) -> MemoryEstimate:
    """Estimate the memory of a prediction by a `BeamPredictor`, its parameters included.

    Ask before training begins: a model that is too large to predict with need not be trained.

    Parameters
    ----------
    points
        The number of points.
    k
        The number of labels per point.
    labels
        L, the number of label classifiers.
    clusters
        K, the number of cluster classifiers.
    dimension
        D, the length of a classifier's vector.
    beam
        How many clusters are searched per point.
    edges
        The number of edges of all graphs that GAME uses.
    """
    search = search_memory(points, 2 * beam, clusters)  # GAME may double the beam
    classifiers = 4 * (labels + clusters) * (dimension + 1) + 8 * labels
    return MemoryEstimate(
        {
            "parameters": classifiers + 8 * edges,
            "results": BYTES_PER_PLACE * points * k,
            "blocks under way": 2 * search["blocks under way"],  # once for clusters, once for labels
        }
    )
