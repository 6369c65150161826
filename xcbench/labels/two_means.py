"""Balanced spherical 2-means, the split from which label trees grow.

Two unit vectors c0 and c1 compete for the rows of a node. Rows are ranked by <f, c1 - c0>, the first part goes to
side 0 and the rest to side 1, and each vector becomes the direction of its side's sum; this repeats until the mean
similarity of a row to its own side's vector stops growing. Only the difference c1 - c0 meets all rows, and only rows
that change sides touch the sums, from which the objective follows as (<s0, c0> + <s1, c1>) / n.
"""

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit

from xcbench.kernels.csr import dot
from xcbench.kernels.random import STEP, below, scramble, stream
from xcbench.kernels.selection import key_of, largest_first

Count = TypeVar("Count", int, npt.NDArray[np.int64])
DEEPEST = 64  # no tree of fewer than 2^64 leaves is deeper


class Features(NamedTuple):
    """What is clustered: dense rows or, where `dense` has no columns, sparse ones.

    Columns are unsigned: numba then need not ask whether an index counts from the end, which halves inner loops.
    """

    dense: npt.NDArray[np.float32]
    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.uint32]
    data: npt.NDArray[np.float32]
    width: int
    scale: npt.NDArray[np.float32]  # one over each row's length


class Node(NamedTuple):
    """The sparse rows of a node, with columns renumbered from 0, so that sums are short and near."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.uint32]
    data: npt.NDArray[np.float32]


class Scratch(NamedTuple):
    """The working memory of one thread, sized for the largest node it splits."""

    node: Node
    local_of: npt.NDArray[np.int32]  # [V]; -1 between nodes
    columns: npt.NDArray[np.uint32]  # the node's columns in the numbering of the features
    centres: npt.NDArray[np.float64]  # [2 * width]: c0, then c1; one dimension, since only that stays contiguous
    sums: npt.NDArray[np.float64]  # [2 * width]
    direction: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    keys: npt.NDArray[np.uint64]
    unsorted: npt.NDArray[np.uint64]
    side: npt.NDArray[np.int8]
    moved: npt.NDArray[np.int32]


def left_share(n: Count, k: Count) -> tuple[Count, Count]:
    """How many of n rows and of k leaves go left, such that in the end all leaves hold n // k rows or one more."""
    left_k = (k + 1) // 2
    return left_k * (n // k) + -(-(n % k) * left_k // k), left_k


_left_share: Any = njit(cache=True)(left_share)


@njit(cache=True, nogil=True)
def grow(
    features: Features,
    order: npt.NDArray[np.int32],
    start: int,
    n: int,
    k: int,
    levels: int,
    seed: np.uint64,
    tolerance: float,
    iterations: int,
) -> None:
    """Split the node order[start:start + n] by so many levels, or until all its k leaves are made, in place."""
    scratch = _new_scratch(features, order[start : start + n])
    todo = [(start, n, k, levels)]
    while len(todo) > 0:
        start, n, k, levels = todo.pop()
        if k == 1 or n == k or levels == 0:
            continue
        left_n, left_k = _left_share(n, k)
        words = stream(seed, (start << 32) | n)  # no other node has this start and this size
        _split(features, order[start : start + n], left_n, words, tolerance, iterations, scratch)
        todo.append((start, left_n, left_k, levels - 1))
        todo.append((start + left_n, n - left_n, k - left_k, levels - 1))


@njit(cache=True)
def _new_scratch(features: Features, ids: npt.NDArray[np.int32]) -> Scratch:
    n, entries, width = ids.size, 0, features.width
    if features.dense.shape[1] == 0:
        for row in ids:
            entries += features.indptr[row + 1] - features.indptr[row]
        width = min(width, entries)
    return Scratch(
        Node(np.empty(n + 1, np.int64), np.empty(entries, np.uint32), np.empty(entries, np.float32)),
        np.full(features.width if entries else 0, -1, np.int32),
        np.empty(width if entries else 0, np.uint32),
        np.empty(2 * width, np.float64),
        np.empty(2 * width, np.float64),
        np.empty(width, np.float32),
        np.empty(n, np.float32),
        np.empty(n, np.uint64),
        np.empty(n, np.uint64),
        np.empty(n, np.int8),
        np.empty(n, np.int32),
    )


@njit(cache=True)
def _split(
    features: Features,
    ids: npt.NDArray[np.int32],
    left: int,
    words: np.uint64,
    tolerance: float,
    iterations: int,
    scratch: Scratch,
) -> None:
    """Reorder the rows of a node so that side 0 comes first; within a side the old order stays."""
    n = ids.size
    width = features.width if features.dense.shape[1] else _gather(features, ids, scratch)
    centres, sums, direction = scratch.centres[: 2 * width], scratch.sums[: 2 * width], scratch.direction[:width]
    scores, side = scratch.scores[:n], scratch.side[:n]
    first = below(scramble(words), n)
    second = below(scramble(words + STEP), n - 1)
    centres[:] = 0
    _add_row(features.dense, features.scale, scratch.node, ids, first, np.float32(1), centres[:width])
    second += second >= first
    _add_row(features.dense, features.scale, scratch.node, ids, second, np.float32(1), centres[width:])
    sums[:] = 0
    side[:] = -1
    objective = -np.inf
    for _ in range(iterations):
        for j in range(width):
            direction[j] = centres[width + j] - centres[j]
        if features.dense.shape[1]:
            _score_dense(features.dense, features.scale, ids, direction, scores)
        else:
            _score_sparse(scratch.node, direction, scores)
        if not _assign(features, ids, scratch, left, sums, side):
            break
        reached = (_towards(sums[:width], centres[:width]) + _towards(sums[width:], centres[width:])) / n
        if reached - objective < tolerance:
            break
        objective = reached
    _part(ids, side, scratch.moved[:n])


@njit(cache=True)
def _gather(features: Features, ids: npt.NDArray[np.int32], scratch: Scratch) -> int:
    """Copy the sparse rows of a node, scaled to unit length; return how many columns it has."""
    node, local_of = scratch.node, scratch.local_of
    at = width = 0
    for i in range(ids.size):
        node.indptr[i] = at
        start, stop = features.indptr[ids[i]], features.indptr[ids[i] + 1]
        columns, values = features.indices[start:stop], features.data[start:stop]
        own_columns, own_values = node.indices[at : at + columns.size], node.data[at : at + columns.size]
        for j in range(columns.size):
            if local_of[columns[j]] < 0:
                local_of[columns[j]] = width
                scratch.columns[width] = columns[j]
                width += 1
            own_columns[j] = local_of[columns[j]]
            own_values[j] = values[j] * features.scale[ids[i]]
        at += columns.size
    node.indptr[ids.size] = at
    for column in scratch.columns[:width]:
        local_of[column] = -1
    return width


@njit(cache=True, fastmath={"reassoc", "contract"})
def _score_dense(
    dense: npt.NDArray[np.float32],
    scale: npt.NDArray[np.float32],
    ids: npt.NDArray[np.int32],
    direction: npt.NDArray[np.float32],
    scores: npt.NDArray[np.float32],
) -> None:
    """<f, direction> of all rows; four at a time, which halves the time of waiting for memory."""
    n = ids.size
    for i in range(0, n - 3, 4):
        a, b, c, d = dense[ids[i]], dense[ids[i + 1]], dense[ids[i + 2]], dense[ids[i + 3]]
        score_a = score_b = score_c = score_d = np.float32(0)
        for j in range(direction.size):
            score_a += a[j] * direction[j]
            score_b += b[j] * direction[j]
            score_c += c[j] * direction[j]
            score_d += d[j] * direction[j]
        scores[i], scores[i + 1], scores[i + 2], scores[i + 3] = score_a, score_b, score_c, score_d
    for i in range(n - n % 4, n):
        scores[i] = dot(dense[ids[i]], direction)
    for i in range(n):
        scores[i] *= scale[ids[i]]


@njit(cache=True, fastmath={"reassoc", "contract"})
def _score_sparse(node: Node, direction: npt.NDArray[np.float32], scores: npt.NDArray[np.float32]) -> None:
    for i in range(scores.size):
        columns, values = (
            node.indices[node.indptr[i] : node.indptr[i + 1]],
            node.data[node.indptr[i] : node.indptr[i + 1]],
        )
        score = np.float32(0)
        for j in range(columns.size):
            score += values[j] * direction[columns[j]]
        scores[i] = score


@njit(cache=True)
def _assign(
    features: Features,
    ids: npt.NDArray[np.int32],
    scratch: Scratch,
    left: int,
    sums: npt.NDArray[np.float64],
    side: npt.NDArray[np.int8],
) -> bool:
    """The `left` rows of smallest score to side 0, the others to side 1; False where no row changed sides."""
    n, width = ids.size, sums.size // 2
    dense, scale, node = features.dense, features.scale, scratch.node
    scores, keys, unsorted = scratch.scores[:n], scratch.keys[:n], scratch.unsorted[:n]
    for i in range(n):
        keys[i] = unsorted[i] = key_of(-scores[i], i)
    largest_first(unsorted, n, left)
    last = unsorted[left - 1]
    changed = False
    for i in range(n):
        old, new = side[i], np.int8(keys[i] < last)
        if new == old:
            continue
        changed = True
        side[i] = new
        if old >= 0:
            _add_row(dense, scale, node, ids, i, np.float32(-1), sums[old * width : (old + 1) * width])
        _add_row(dense, scale, node, ids, i, np.float32(1), sums[new * width : (new + 1) * width])
    return changed


@njit(cache=True)
def _add_row(
    dense: npt.NDArray[np.float32],
    scale: npt.NDArray[np.float32],
    node: Node,
    ids: npt.NDArray[np.int32],
    i: int,
    sign: np.float32,
    sums: npt.NDArray[np.float64],
) -> None:
    """Add row i of the node to the sums, or take it away. Takes no more than it needs: it is called for single rows."""
    if dense.shape[1]:
        row, weight = dense[ids[i]], sign * scale[ids[i]]
        for j in range(row.size):
            sums[j] += weight * row[j]
        return
    start, stop = node.indptr[i], node.indptr[i + 1]
    columns, values = node.indices[start:stop], node.data[start:stop]
    for j in range(columns.size):
        sums[columns[j]] += sign * values[j]


@njit(cache=True, fastmath={"reassoc", "contract"})
def _towards(total: npt.NDArray[np.float64], centre: npt.NDArray[np.float64]) -> float:
    """<total, centre>; then the centre becomes the direction of the total."""
    similarity = square = 0.0
    for j in range(total.size):
        similarity += total[j] * centre[j]
        square += total[j] * total[j]
    scale = 1 / np.sqrt(square) if square > 0 else 0.0
    for j in range(total.size):
        centre[j] = total[j] * scale
    return similarity


@njit(cache=True)
def _part(ids: npt.NDArray[np.int32], side: npt.NDArray[np.int8], moved: npt.NDArray[np.int32]) -> None:
    left = right = 0
    for i in range(ids.size):
        if side[i] == 1:
            moved[right] = ids[i]
            right += 1
        else:
            ids[left] = ids[i]
            left += 1
    ids[left:] = moved[:right]
