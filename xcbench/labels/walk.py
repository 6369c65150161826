"""ECLARE's label graph: how often short random walks from one label meet another."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.errors import InputError
from xcbench.labels.matrices import RowBlock, Rows, dot, pack, pattern, rows_of, stacked, unit_rows
from xcbench.labels.seeding import STEP, below, scramble, seed_word, stream
from xcbench.labels.selection import keep_largest
from xcbench.labels.workers import each, spans

LABELS_IN_A_BLOCK = 1 << 11


class Walk(NamedTuple):
    """How to walk, in the form that the kernel needs."""

    length: int
    jump: np.uint64  # the share of 2^32 at which a step begins at home
    seed: np.uint64
    least_cosine: np.float32


def random_walk_graph(
    Y: sp.csr_array,
    walk_length: int = 400,
    restart: float = 0.8,
    head_threshold: int | None = 500,
    top: int | None = 10,
    seed: int = 0,
    label_vectors: npt.NDArray[np.float32] | None = None,
    limit: float = 1.0,
) -> sp.csr_array:
    """Visit counts (L x L) of a restarting walk label -> one of its points -> one of that point's labels.

    Labels with more than `head_threshold` points are taken out of Y before anyone walks; they, and labels without
    points, keep a self loop of 1 and nothing else. With `label_vectors`, visits to labels at a cosine distance
    above `limit` are forgotten. Then the `top` largest counts of a row stay (None: all), and always its diagonal:
    the own count, or 1 where the walk never came home. Any nonzero entry of Y counts as one.
    """
    if walk_length < 1 or not 0 <= restart <= 1:
        raise InputError(
            f"a walk has at least 1 step and restarts with probability 0 to 1, got {walk_length}, {restart}"
        )
    L = Y.shape[1]
    Y, labels = _walkable(Y, head_threshold)
    vectors = np.zeros((0, 0), np.float32) if label_vectors is None else unit_rows(label_vectors)[labels]
    labels_of, points_of = rows_of(Y), rows_of(Y.T.tocsr())
    walk = Walk(walk_length, np.uint64(restart * 2.0**32), seed_word(seed), np.float32(1 - limit))
    most = walk_length + 1 if top is None else top
    parts = spans(len(labels), LABELS_IN_A_BLOCK)
    walked = each(lambda rows: _walk_rows(points_of, labels_of, labels, *rows, walk, vectors, most), parts)
    return _with_self_loops(stacked(walked, L), labels)


def _walkable(Y: sp.csr_array, head_threshold: int | None) -> tuple[sp.csr_array, npt.NDArray[np.int32]]:
    """Y without head labels, empty columns and empty rows, and the label ids of its columns.

    Rows and columns are sorted so that labels which share points lie together: a walk then stays within the cache,
    and the cost of a step hardly depends on L. Each label takes the smallest id in its surroundings as its place.
    """
    Y = pattern(Y)
    frequency = np.bincount(Y.indices, minlength=Y.shape[1])
    labels = np.flatnonzero((frequency > 0) & (frequency <= (Y.shape[0] if head_threshold is None else head_threshold)))
    Y = Y[:, labels]
    Y = Y[np.diff(Y.indptr) > 0]
    T = Y.T.tocsr()
    place = np.arange(len(labels), dtype=np.int32)
    point_place = Y.indices[Y.indptr[:-1]]
    for _ in range(2 if len(labels) else 0):
        place = np.minimum.reduceat(point_place[T.indices], T.indptr[:-1])
        point_place = np.minimum.reduceat(place[Y.indices], Y.indptr[:-1])
    order = np.argsort(place, kind="stable")
    Y = Y[np.argsort(point_place, kind="stable")][:, order]
    return Y, labels[order].astype(np.int32)


def _with_self_loops(walked: sp.csr_array, labels: npt.NDArray[np.int32]) -> sp.csr_array:
    """All labels in their order: the rows of those that walked, a self loop of 1 for the others."""
    L = walked.shape[1]
    row_of = np.full(L, -1, np.int64)
    row_of[labels] = np.arange(len(labels))
    resting = np.flatnonzero(row_of < 0)
    row_of[resting] = np.arange(len(labels), L)
    loops = sp.csr_array((np.ones(len(resting), np.float32), resting, np.arange(len(resting) + 1)), (len(resting), L))
    graph: sp.csr_array = sp.vstack([walked, loops], format="csr")[row_of]
    graph.sort_indices()
    return graph


@njit(cache=True, nogil=True)
def _walk_rows(
    points_of: Rows,
    labels_of: Rows,
    labels: npt.NDArray[np.int32],
    start: int,
    stop: int,
    walk: Walk,
    vectors: npt.NDArray[np.float32],
    top: int,
) -> RowBlock:
    slots = 1
    while slots < 2 * walk.length:
        slots *= 2
    path, table = np.empty(walk.length, np.int32), np.full(slots, -1, np.int32)
    visited, visits = np.empty(walk.length + 1, np.int32), np.empty(walk.length + 1, np.float32)
    room = min(top, walk.length) + 1
    sizes = np.empty(stop - start, np.int64)
    ids, counts = np.empty(sizes.size * room, np.int32), np.empty(sizes.size * room, np.float32)
    for row in range(sizes.size):
        home = start + row
        _follow(points_of, labels_of, home, walk.jump, stream(walk.seed, labels[home]), path)
        n = _tally(path, home, table, visited, visits)
        n = _forget_distant(home, vectors, walk.least_cosine, visited, visits, n)
        for i in range(n):
            visited[i] = labels[visited[i]]
        n = keep_largest(visits[:n], visited[:n], top, labels[home])
        ids[row * room : row * room + n] = visited[:n]
        counts[row * room : row * room + n] = visits[:n]
        sizes[row] = n
    return pack(room * np.arange(sizes.size), sizes, ids, counts)


@njit(cache=True)
def _follow(
    points_of: Rows, labels_of: Rows, home: int, jump: np.uint64, words: np.uint64, path: npt.NDArray[np.int32]
) -> None:
    """Walk from `home`, noting the label reached at each step; before a step the walk jumps back home at random."""
    home_first, home_degree = points_of.indptr[home], points_of.indptr[home + 1] - points_of.indptr[home]
    label = home
    for step in range(path.size):
        word = scramble(words)
        # Two branches, not one address: the processor then starts on a step from home before the last one has ended.
        if scramble(words + STEP) >> np.uint64(32) < jump:
            point = points_of.indices[home_first + below(word, home_degree)]
        else:
            first = points_of.indptr[label]
            point = points_of.indices[first + below(word, points_of.indptr[label + 1] - first)]
        words += STEP + STEP
        first = labels_of.indptr[point]
        label = labels_of.indices[first + below(word << np.uint64(32), labels_of.indptr[point + 1] - first)]
        path[step] = label


@njit(cache=True)
def _tally(
    path: npt.NDArray[np.int32],
    home: int,
    table: npt.NDArray[np.int32],
    visited: npt.NDArray[np.int32],
    visits: npt.NDArray[np.float32],
) -> int:
    """Count the labels of a path by hashing (`table` is -1 before and after); home comes first, with at least 1."""
    mask = np.uint32(table.size - 1)
    visited[0] = home
    visits[0] = 0
    n = 1
    for label in path:
        if label == home:
            visits[0] += 1
            continue
        slot = (np.uint32(label) * np.uint32(2654435769)) >> np.uint32(8) & mask
        while table[slot] >= 0 and visited[table[slot]] != label:
            slot = (slot + np.uint32(1)) & mask
        if table[slot] < 0:
            table[slot] = n
            visited[n] = label
            visits[n] = 0
            n += 1
        visits[table[slot]] += 1
    visits[0] = max(visits[0], np.float32(1))
    table[:] = -1
    return n


@njit(cache=True)
def _forget_distant(
    home: int,
    vectors: npt.NDArray[np.float32],
    least_cosine: np.float32,
    visited: npt.NDArray[np.int32],
    visits: npt.NDArray[np.float32],
    n: int,
) -> int:
    """Drop visits to labels whose cosine with home is below the least; home, the first entry, stays."""
    if vectors.shape[1] == 0:
        return n
    kept = 1
    for i in range(1, n):
        if dot(vectors[home], vectors[visited[i]]) >= least_cosine:
            visited[kept] = visited[i]
            visits[kept] = visits[i]
            kept += 1
    return kept
