"""Balanced spherical 2-means, the split from which trees of labels grow.

Two unit vectors, the centres c0 and c1, compete for the rows of a node. Rows are ranked by <f, c1 - c0>; the first part
goes to side 0 and the rest to side 1; each centre becomes the direction of its side's sum. This repeats until the mean
similarity of rows to their own centre stops growing.

Two things make it fast. Rows are multiplied with the difference c1 - c0 only. And only rows that change sides touch the
sums s0 and s1, from which the objective follows as (<s0, c0> + <s1, c1>) / n.
"""

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit

from xcbench.kernels.arrays import Doubles, Floats, Ints, Longs
from xcbench.kernels.csr import dot
from xcbench.kernels.random import below, stream, word_at
from xcbench.kernels.selection import key_of, largest_first

Count = TypeVar("Count", int, Longs)

MAX_DEPTH = 64
"""No tree of fewer than 2^64 leaves is deeper."""


class Features(NamedTuple):
    """The rows to cluster: dense ones or, if `dense` has no columns, sparse ones.

    Columns are unsigned: numba then need not check whether an index counts from the end, which halves inner loops.
    """

    dense: Floats
    indptr: Longs
    indices: npt.NDArray[np.uint32]
    data: Floats
    width: int
    scale: Floats  # one over the length of each row


class Node(NamedTuple):
    """The sparse rows of a node. Its columns are renumbered from 0, so that sums over them are short."""

    indptr: Longs
    indices: npt.NDArray[np.uint32]
    data: Floats


class Scratch(NamedTuple):
    """The working memory of one thread, sized for the largest node that it splits."""

    node: Node
    local_of: Ints  # [V]; the new number of each column of the features, -1 between nodes
    columns: npt.NDArray[np.uint32]  # the node's columns in the numbering of the features
    centres: Doubles  # [2 * width]: c0, then c1; one dimension, since only then both halves are contiguous
    sums: Doubles  # [2 * width]
    direction: Floats
    scores: Floats
    keys: npt.NDArray[np.uint64]
    unsorted: npt.NDArray[np.uint64]
    side: npt.NDArray[np.int8]
    moved: Ints


def left_share(n: Count, k: Count) -> tuple[Count, Count]:
    """Return how many of n rows and of k leaves go left, so that in the end all leaves have n // k rows or one more."""
    left_leaves = (k + 1) // 2
    larger_leaves = -(-(n % k) * left_leaves // k)  # those on the left that have one more; divided and rounded up
    left_rows = left_leaves * (n // k) + larger_leaves
    return left_rows, left_leaves


_left_share: Any = njit(cache=True)(left_share)


@njit(cache=True, nogil=True)
def split_node(
    features: Features,
    order: Ints,
    start: int,
    n: int,
    k: int,
    levels: int,
    seed: np.uint64,
    tolerance: float,
    iterations: int,
) -> None:
    """Split the node order[start:start + n] in place, by so many levels or until it is cut into its k leaves."""
    scratch = _new_scratch(features, order[start : start + n])
    nodes = [(start, n, k, levels)]
    while len(nodes) > 0:
        start, n, k, levels = nodes.pop()
        if k == 1 or n == k or levels == 0:
            continue
        left_n, left_k = _left_share(n, k)
        key = stream(seed, (start << 32) | n)  # no other node has this start and this size
        ids = order[start : start + n]
        _split(features, ids, left_n, key, tolerance, iterations, scratch)

        right_n = n - left_n
        right_k = k - left_k
        nodes.append((start, left_n, left_k, levels - 1))
        nodes.append((start + left_n, right_n, right_k, levels - 1))


@njit(cache=True)
def _new_scratch(features: Features, ids: Ints) -> Scratch:
    n = ids.size
    width = features.width
    entries = 0
    if features.dense.shape[1] == 0:
        for row in ids:
            entries += features.indptr[row + 1] - features.indptr[row]
        width = min(width, entries)

    # Dense rows need no renumbering of columns.
    all_columns = 0
    node_columns = 0
    if entries:
        all_columns = features.width
        node_columns = width

    node = Node(
        np.empty(n + 1, np.int64),
        np.empty(entries, np.uint32),
        np.empty(entries, np.float32),
    )
    return Scratch(
        node,
        np.full(all_columns, -1, np.int32),
        np.empty(node_columns, np.uint32),
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
    ids: Ints,
    left: int,
    key: np.uint64,
    tolerance: float,
    iterations: int,
    scratch: Scratch,
) -> None:
    """Reorder the rows of a node so that the `left` rows of side 0 come first. Within a side the old order stays."""
    n = ids.size
    is_dense = features.dense.shape[1] > 0
    if is_dense:
        width = features.width
    else:
        width = _copy_rows(features, ids, scratch)
    centres = scratch.centres[: 2 * width]
    sums = scratch.sums[: 2 * width]
    direction = scratch.direction[:width]
    scores = scratch.scores[:n]
    side = scratch.side[:n]

    # Two different rows at random are the first centres.
    first = below(word_at(key, 0), n)
    second = below(word_at(key, 1), n - 1)
    if second >= first:
        second += 1
    centres[:] = 0
    dense = features.dense
    scale = features.scale
    _add_row(dense, scale, scratch.node, ids, first, np.float32(1), centres[:width])
    _add_row(dense, scale, scratch.node, ids, second, np.float32(1), centres[width:])

    sums[:] = 0
    side[:] = -1
    objective = -np.inf
    for _ in range(iterations):
        for j in range(width):
            direction[j] = centres[width + j] - centres[j]
        if is_dense:
            _score_dense(dense, scale, ids, direction, scores)
        else:
            _score_sparse(scratch.node, direction, scores)
        if not _assign(features, ids, scratch, left, sums, side):
            break

        similarity_0 = _move_centre(sums[:width], centres[:width])
        similarity_1 = _move_centre(sums[width:], centres[width:])
        new_objective = (similarity_0 + similarity_1) / n
        if new_objective - objective < tolerance:
            break
        objective = new_objective
    _sort_by_side(ids, side, scratch.moved[:n])


@njit(cache=True)
def _copy_rows(features: Features, ids: Ints, scratch: Scratch) -> int:
    """Copy the sparse rows of a node to `scratch.node`, scaled to unit length. Return how many columns they have."""
    node = scratch.node
    local_of = scratch.local_of
    end = 0
    width = 0
    for i in range(ids.size):
        node.indptr[i] = end
        start = features.indptr[ids[i]]
        stop = features.indptr[ids[i] + 1]
        columns = features.indices[start:stop]
        values = features.data[start:stop]
        node_columns = node.indices[end : end + columns.size]
        node_values = node.data[end : end + columns.size]
        for j in range(columns.size):
            if local_of[columns[j]] < 0:
                local_of[columns[j]] = width
                scratch.columns[width] = columns[j]
                width += 1
            node_columns[j] = local_of[columns[j]]
            node_values[j] = values[j] * features.scale[ids[i]]
        end += columns.size
    node.indptr[ids.size] = end

    for column in scratch.columns[:width]:
        local_of[column] = -1
    return width


@njit(cache=True, fastmath={"reassoc", "contract"})
def _score_dense(
    dense: Floats,
    scale: Floats,
    ids: Ints,
    direction: Floats,
    scores: Floats,
) -> None:
    """Compute <f, direction> of all rows, four at a time, which halves the time spent waiting for memory."""
    n = ids.size
    for i in range(0, n - 3, 4):
        a = dense[ids[i]]
        b = dense[ids[i + 1]]
        c = dense[ids[i + 2]]
        d = dense[ids[i + 3]]
        score_a = np.float32(0)
        score_b = np.float32(0)
        score_c = np.float32(0)
        score_d = np.float32(0)
        for j in range(direction.size):
            score_a += a[j] * direction[j]
            score_b += b[j] * direction[j]
            score_c += c[j] * direction[j]
            score_d += d[j] * direction[j]
        scores[i] = score_a
        scores[i + 1] = score_b
        scores[i + 2] = score_c
        scores[i + 3] = score_d
    for i in range(n - n % 4, n):
        scores[i] = dot(dense[ids[i]], direction)
    for i in range(n):
        scores[i] *= scale[ids[i]]


@njit(cache=True, fastmath={"reassoc", "contract"})
def _score_sparse(node: Node, direction: Floats, scores: Floats) -> None:
    """Compute <f, direction> of all rows."""
    for i in range(scores.size):
        start = node.indptr[i]
        stop = node.indptr[i + 1]
        columns = node.indices[start:stop]
        values = node.data[start:stop]
        score = np.float32(0)
        for j in range(columns.size):
            score += values[j] * direction[columns[j]]
        scores[i] = score


@njit(cache=True)
def _assign(
    features: Features,
    ids: Ints,
    scratch: Scratch,
    left: int,
    sums: Doubles,
    side: npt.NDArray[np.int8],
) -> bool:
    """Assign the `left` rows of smallest score to side 0 and the others to side 1, and update the sums.

    Returns whether any row changed sides. Before the first call all sides are -1.
    """
    n = ids.size
    width = sums.size // 2
    dense = features.dense
    scale = features.scale
    node = scratch.node
    scores = scratch.scores[:n]
    keys = scratch.keys[:n]
    unsorted = scratch.unsorted[:n]

    for i in range(n):
        key = key_of(-scores[i], i)
        keys[i] = key
        unsorted[i] = key
    largest_first(unsorted, n, left)
    last_on_the_left = unsorted[left - 1]

    changed = False
    for i in range(n):
        old = side[i]
        new = np.int8(keys[i] < last_on_the_left)
        if new == old:
            continue
        changed = True
        side[i] = new
        if old >= 0:
            old_sums = sums[old * width : (old + 1) * width]
            _add_row(dense, scale, node, ids, i, np.float32(-1), old_sums)
        new_sums = sums[new * width : (new + 1) * width]
        _add_row(dense, scale, node, ids, i, np.float32(1), new_sums)
    return changed


@njit(cache=True)
def _add_row(
    dense: Floats,
    scale: Floats,
    node: Node,
    ids: Ints,
    i: int,
    sign: np.float32,
    sums: Doubles,
) -> None:
    """Add row i of the node to the sums (sign 1), or subtract it (sign -1).

    Takes arrays instead of `Features` and `Scratch`: it is called for single rows, and passing those takes time.
    """
    if dense.shape[1]:
        row = dense[ids[i]]
        weight = sign * scale[ids[i]]
        for j in range(row.size):
            sums[j] += weight * row[j]
        return
    start = node.indptr[i]
    stop = node.indptr[i + 1]
    columns = node.indices[start:stop]
    values = node.data[start:stop]
    for j in range(columns.size):
        sums[columns[j]] += sign * values[j]


@njit(cache=True, fastmath={"reassoc", "contract"})
def _move_centre(total: Doubles, centre: Doubles) -> float:
    """Return <total, centre>, and then let the centre be the direction of the total."""
    similarity = 0.0
    square = 0.0
    for j in range(total.size):
        similarity += total[j] * centre[j]
        square += total[j] * total[j]
    scale = 0.0
    if square > 0:
        scale = 1 / np.sqrt(square)
    for j in range(total.size):
        centre[j] = total[j] * scale
    return similarity


@njit(cache=True)
def _sort_by_side(ids: Ints, side: npt.NDArray[np.int8], moved: Ints) -> None:
    """Move the rows of side 0 to the front. `moved` is working memory for those of side 1."""
    left = 0
    right = 0
    for i in range(ids.size):
        if side[i] == 1:
            moved[right] = ids[i]
            right += 1
        else:
            ids[left] = ids[i]
            left += 1
    ids[left:] = moved[:right]
