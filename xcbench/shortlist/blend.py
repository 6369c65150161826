"""Several shortlists or predictions of the same points as one."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numba import njit

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.kernels.hash_table import add, collect, table_size
from xcbench.kernels.selection import write_best
from xcbench.shortlist.blocks import topk_in_blocks


def blend(members: Sequence[TopK], k: int, weights: Sequence[float] | None = None) -> TopK:
    """The weighted sum of the members' scores (their mean without weights); what a member misses counts 0 there."""
    if len({len(member) for member in members}) != 1 or (weights is not None and len(weights) != len(members)):
        raise InputError(
            f"a blend takes members of the same points and a weight each, "
            f"got {[len(m) for m in members]} points and weights {weights}"
        )
    return topk_in_blocks(len(members[0]), k, lambda block: blend_rows([m.rows(block) for m in members], weights, k))


def by_best(predictions: TopK) -> TopK:
    """Scores divided by the best one of their point, where that is above 0: what makes two scales comparable."""
    best = predictions.scores[:, :1]
    divided = np.divide(predictions.scores, best, out=predictions.scores.copy(), where=best > 0)
    return TopK(predictions.indices, divided)


def blend_rows(members: Sequence[TopK], weights: Sequence[float] | None, k: int) -> TopK:
    """`blend` on the calling thread."""
    labels = np.hstack([m.indices for m in members])
    factors = np.ones(len(members), np.float32) if weights is None else np.asarray(weights, np.float32)
    scores = np.hstack([m.scores * factor for m, factor in zip(members, factors, strict=True)])
    out = TopK(np.empty((len(labels), k), np.int32), np.empty((len(labels), k), np.float32))
    _sum_rows(labels, scores, len(members) if weights is None else 1, out.indices, out.scores)
    return out


@njit(cache=True, nogil=True)
def _sum_rows(
    labels: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    share: int,
    out_labels: npt.NDArray[np.int32],
    out_scores: npt.NDArray[np.float32],
) -> None:
    """Sums divided by `share`, in float64: the mean of equal members is each of them, to the last bit."""
    size = table_size(labels.shape[1])
    held, sums, keys = np.empty(size, np.int32), np.empty(size, np.float64), np.empty(size, np.uint64)
    for i in range(len(labels)):
        held[:] = -1
        for j in range(labels.shape[1]):
            if labels[i, j] >= 0:
                add(held, sums, labels[i, j], scores[i, j])
        for slot in range(size):
            sums[slot] /= share
        write_best(keys, collect(held, sums, keys), out_labels[i], out_scores[i])
