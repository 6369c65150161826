"""Several shortlists or predictions of the same points, combined into one."""

from collections.abc import Sequence

import numpy as np
from numba import njit

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats, Ints
from xcbench.kernels.hash_table import add, collect, table_size
from xcbench.kernels.selection import write_best
from xcbench.shortlist.blocks import empty_topk, topk_in_blocks


def blend(
    members: Sequence[TopK],
    k: int,
    weights: Sequence[float] | None = None,
) -> TopK:
    """Return the k labels per point with the largest mean or weighted sum of scores.

    Parameters
    ----------
    members
        Predictions of the same points. A label that a member does not have counts 0 there.
    k
        The number of labels per point.
    weights
        One weight per member, for a weighted sum. None gives the mean.
    """
    sizes = [len(member) for member in members]
    has_all_weights = weights is None or len(weights) == len(members)
    if len(set(sizes)) != 1 or not has_all_weights:
        raise InputError(
            f"a blend takes members of the same points and a weight each, got {sizes} points and weights {weights}"
        )

    def blend_block(block: slice) -> TopK:
        parts = [member.rows(block) for member in members]
        return blend_rows(parts, weights, k)

    return topk_in_blocks(sizes[0], k, blend_block)


def divide_by_best(predictions: TopK) -> TopK:
    """Divide the scores of each point by its best score, so that predictions on different scales can be blended.

    Parameters
    ----------
    predictions
        Best first. Points whose best score is not above 0 keep their scores.
    """
    best = predictions.scores[:, :1]
    scores = predictions.scores.copy()
    np.divide(predictions.scores, best, out=scores, where=best > 0)
    return TopK(predictions.indices, scores)


def blend_rows(
    members: Sequence[TopK],
    weights: Sequence[float] | None,
    k: int,
) -> TopK:
    """Do the same as `blend`, on the calling thread."""
    if weights is None:
        factors = np.ones(len(members), np.float32)
        divisor = len(members)
    else:
        factors = np.asarray(weights, np.float32)
        divisor = 1

    scores_by_member = []
    for member, factor in zip(members, factors, strict=True):
        scores_by_member.append(member.scores * factor)

    labels = np.hstack([member.indices for member in members])
    scores = np.hstack(scores_by_member)
    result = empty_topk(len(labels), k)
    _sum_rows(labels, scores, divisor, result.indices, result.scores)
    return result


@njit(cache=True, nogil=True)
def _sum_rows(
    labels: Ints,
    scores: Floats,
    divisor: int,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    """Sum the scores of each label of a row and divide by `divisor`.

    The sums are float64, so that the mean of equal members is equal to each of them, to the last bit.
    """
    size = table_size(labels.shape[1])
    table_labels = np.empty(size, np.int32)
    table_sums = np.empty(size, np.float64)
    keys = np.empty(size, np.uint64)
    for i in range(len(labels)):
        table_labels[:] = -1
        for j in range(labels.shape[1]):
            if labels[i, j] >= 0:
                add(table_labels, table_sums, labels[i, j], scores[i, j])
        for slot in range(size):
            table_sums[slot] /= divisor
        count = collect(table_labels, table_sums, keys)
        write_best(keys, count, out_labels[i], out_scores[i])
