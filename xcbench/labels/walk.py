"""ECLARE's label graph: how often short random walks from one label meet another."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.errors import InputError
from xcbench.labels.matrices import RowBlock, Rows, dot, pack, pattern, rows_of, stacked, unit_rows
from xcbench.labels.seeding import STEP, scramble, seed_word, stream
from xcbench.labels.selection import keep_largest
from xcbench.labels.workers import each, spans

LABELS_IN_A_BLOCK = 1 << 11
ONE, HALF, LOW = np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)


class Lists(NamedTuple):
    """List i is entries[start[i]:start[i + 1]]: the points of a label, or the labels of a point."""

    start: npt.NDArray[np.uint64]
    entries: npt.NDArray[np.uint32]


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

    Points are sorted by the rarest of their labels, labels by the first of their points: what shares points lies
    together, a walk stays within the cache, and the cost of a step hardly depends on L.
    """
    Y = pattern(Y)
    frequency = np.bincount(Y.indices, minlength=Y.shape[1])
    labels = np.flatnonzero((frequency > 0) & (frequency <= (Y.shape[0] if head_threshold is None else head_threshold)))
    rarity = np.empty(len(labels), np.int32)
    rarity[np.argsort(frequency[labels], kind="stable")] = np.arange(len(labels))
    Y = Y[:, labels]
    Y = Y[np.diff(Y.indptr) > 0]
    if len(labels):
        Y = Y[np.argsort(np.minimum.reduceat(rarity[Y.indices], Y.indptr[:-1]), kind="stable")]
    T = Y.T.tocsr()
    order = np.argsort(T.indices[T.indptr[:-1]], kind="stable")
    return Y[:, order], labels[order].astype(np.int32)


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
    # Unsigned throughout: numba then need not ask at each access whether an index counts from the end.
    points = Lists(points_of.indptr.view(np.uint64), points_of.indices.view(np.uint32))
    neighbours = Lists(labels_of.indptr.view(np.uint64), labels_of.indices.view(np.uint32))
    slots = 1
    while slots < 2 * walk.length:
        slots *= 2
    path, table = np.empty(walk.length, np.uint32), np.zeros(slots, np.uint32)
    visited, visits = np.empty(walk.length + 1, np.uint32), np.empty(walk.length + 1, np.float32)
    names = visited.view(np.int32)
    room = min(top, walk.length) + 1
    sizes = np.empty(stop - start, np.int64)
    ids, counts = np.empty(sizes.size * room, np.int32), np.empty(sizes.size * room, np.float32)
    for row in range(sizes.size):
        home = np.uint32(start + row)
        _follow(points, neighbours, home, walk.jump, stream(walk.seed, labels[home]), path)
        n = _tally(path, home, table, visited, visits)
        n = _forget_distant(home, vectors, walk.least_cosine, visited, visits, n)
        for i in range(n):
            names[i] = labels[visited[i]]
        n = keep_largest(visits[:n], names[:n], top, labels[home])
        ids[row * room : row * room + n] = names[:n]
        counts[row * room : row * room + n] = visits[:n]
        sizes[row] = n
    return pack(room * np.arange(sizes.size), sizes, ids, counts)


@njit(cache=True)
def _follow(
    points: Lists,
    neighbours: Lists,
    home: np.uint32,
    jump: np.uint64,
    words: np.uint64,
    path: npt.NDArray[np.uint32],
) -> None:
    """Walk from `home`, noting the label reached at each step; before a step the walk jumps back home at random."""
    label = home
    for step in range(path.size):
        word = scramble(words)
        # Two branches, not one address: the processor then starts on a step from home before the last one has ended.
        if scramble(words + STEP) >> HALF < jump:
            point = _one_of(points, home, word >> HALF)
        else:
            point = _one_of(points, label, word >> HALF)
        words += STEP + STEP
        label = _one_of(neighbours, point, word & LOW)
        path[step] = label


@njit(cache=True)
def _one_of(lists: Lists, which: np.uint32, fraction: np.uint64) -> np.uint32:
    """An entry of a list, chosen by 32 random bits."""
    first, end = lists.start[np.uint64(which)], lists.start[np.uint64(which) + ONE]
    entry: np.uint32 = lists.entries[first + (fraction * (end - first) >> HALF)]
    return entry


@njit(cache=True)
def _tally(
    path: npt.NDArray[np.uint32],
    home: np.uint32,
    table: npt.NDArray[np.uint32],
    visited: npt.NDArray[np.uint32],
    visits: npt.NDArray[np.float32],
) -> int:
    """Count the labels of a path by hashing (`table` is 0 before and after); home comes first, with at least 1."""
    mask = np.uint64(table.size - 1)
    visited[0], visits[0] = home, 0
    n = 1
    for step in range(path.size):
        label = path[step]
        if label == home:
            visits[0] += np.float32(1)
            continue
        slot = (np.uint64(label) * np.uint64(2654435769)) >> np.uint64(8) & mask
        while table[slot] != 0 and visited[table[slot]] != label:
            slot = (slot + ONE) & mask
        if table[slot] == 0:
            table[slot] = n
            visited[n], visits[n] = label, 0
            n += 1
        visits[table[slot]] += np.float32(1)
    visits[0] = max(visits[0], np.float32(1))
    table[:] = 0
    return n


@njit(cache=True)
def _forget_distant(
    home: np.uint32,
    vectors: npt.NDArray[np.float32],
    least_cosine: np.float32,
    visited: npt.NDArray[np.uint32],
    visits: npt.NDArray[np.float32],
    n: int,
) -> int:
    """Drop visits to labels whose cosine with home is below the least; home, the first entry, stays."""
    if vectors.shape[1] == 0:
        return n
    kept = 1
    for i in range(1, n):
        if dot(vectors[home], vectors[visited[i]]) >= least_cosine:
            visited[kept], visits[kept] = visited[i], visits[i]
            kept += 1
    return kept
