"""ECLARE's label graph: how often short random walks from one label meet another."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.data.matrices import pattern, unit_vectors
from xcbench.errors import InputError
from xcbench.kernels.csr import RowBlock, Rows, dot, pack, place_rows, rows_of
from xcbench.kernels.random import STEP, scramble, seed_word, stream
from xcbench.kernels.selection import keep_largest
from xcbench.kernels.threads import map_threads, split_range

LABELS_IN_A_BLOCK = 1 << 11
ONE, TWO, HALF, LOW = np.uint64(1), np.uint64(2), np.uint64(32), np.uint64(0xFFFFFFFF)


class Books(NamedTuple):
    """Who carries what, laid out so that a step of a walk touches few cache lines.

    A label's entry is its id, the number of its points, and where in the other book these stand; a point's entry is
    the number of its labels, and where these stand. Unsigned, since numba then need not ask at each access whether
    an index counts from the end.
    """

    of_labels: npt.NDArray[np.uint32]
    of_points: npt.NDArray[np.uint32]
    label_at: npt.NDArray[np.uint32]


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
    vectors = np.zeros((0, 0), np.float32) if label_vectors is None else unit_vectors(label_vectors)
    if label_vectors is not None and len(vectors) != L:
        raise InputError(f"a graph of {L} labels needs as many vectors, got {len(vectors)}")
    books, labels = _books(*_walkable(Y, head_threshold))
    walk = Walk(walk_length, np.uint64(restart * 2.0**32), seed_word(seed), np.float32(1 - limit))
    most = walk_length + 1 if top is None else top
    parts = split_range(len(labels), LABELS_IN_A_BLOCK)
    walked = map_threads(lambda rows: _walk_rows(books, *rows, walk, vectors, most), parts)
    return _in_label_order(walked, labels, L)


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
    points = np.flatnonzero(np.diff(Y.indptr))
    if len(points):
        rarest = np.minimum.reduceat(rarity[Y.indices], Y.indptr[points])
        Y = Y[points[np.argsort(rarest, kind="stable")]]
    T = Y.T.tocsr()
    order = np.argsort(T.indices[T.indptr[:-1]], kind="stable")
    return Y[:, order], labels[order].astype(np.int32)


def _books(Y: sp.csr_array, labels: npt.NDArray[np.int32]) -> tuple[Books, npt.NDArray[np.int32]]:
    if Y.nnz + 2 * len(labels) + Y.shape[0] >= 2**32:
        raise InputError(f"a walk goes over at most 2^32 targets, got {Y.nnz:,}")
    T = Y.T.tocsr()
    label_at = (T.indptr[:-1] + 2 * np.arange(T.shape[0])).astype(np.uint32)
    point_at = (Y.indptr[:-1] + np.arange(Y.shape[0])).astype(np.uint32)
    of_labels, of_points = np.empty(Y.nnz + 2 * T.shape[0], np.uint32), np.empty(Y.nnz + Y.shape[0], np.uint32)
    of_labels[label_at] = labels
    _write_lists(rows_of(T), label_at + np.uint32(1), point_at, of_labels)
    _write_lists(rows_of(Y), point_at, label_at, of_points)
    return Books(of_labels, of_points, label_at), labels


@njit(cache=True)
def _write_lists(
    lists: Rows, at: npt.NDArray[np.uint32], entry_at: npt.NDArray[np.uint32], book: npt.NDArray[np.uint32]
) -> None:
    """At each place the length of a list, then the places of its entries."""
    for row in range(at.size):
        start, end = lists.indptr[row], lists.indptr[row + 1]
        book[at[row]] = end - start
        for i in range(start, end):
            book[at[row] + 1 + i - start] = entry_at[lists.indices[i]]


def _in_label_order(walked: list[RowBlock], labels: npt.NDArray[np.int32], L: int) -> sp.csr_array:
    """All labels in their order: the rows of those that walked, a self loop of 1 for the others."""
    sizes = np.ones(L, np.int64)
    sizes[labels] = np.concatenate([sizes[:0], *(block[0] for block in walked)])
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    ids, counts = np.repeat(np.arange(L, dtype=np.int32), sizes), np.ones(indptr[-1], np.float32)
    for (start, stop), block in zip(split_range(len(labels), LABELS_IN_A_BLOCK), walked, strict=True):
        place_rows(block, indptr[labels[start:stop]], ids, counts)
    graph = sp.csr_array((counts, ids, indptr), shape=(L, L))
    graph.sort_indices()
    return graph


@njit(cache=True, nogil=True)
def _walk_rows(books: Books, start: int, stop: int, walk: Walk, vectors: npt.NDArray[np.float32], top: int) -> RowBlock:
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
        home = books.label_at[start + row]
        _follow(books.of_labels, books.of_points, home, walk, path)
        n = _tally(path, home, table, visited, visits)
        for i in range(n):
            names[i] = books.of_labels[visited[i]]
        n = _forget_distant(vectors, walk.least_cosine, names, visits, n)
        n = keep_largest(visits[:n], names[:n], top, np.int32(books.of_labels[home]))
        ids[row * room : row * room + n] = names[:n]
        counts[row * room : row * room + n] = visits[:n]
        sizes[row] = n
    return pack(room * np.arange(sizes.size), sizes, ids, counts)


@njit(cache=True)
def _follow(
    of_labels: npt.NDArray[np.uint32],
    of_points: npt.NDArray[np.uint32],
    home: np.uint32,
    walk: Walk,
    path: npt.NDArray[np.uint32],
) -> None:
    """Walk from `home`, noting the label reached at each step; before a step the walk jumps back home at random."""
    words = stream(walk.seed, of_labels[home])
    home_at = label = np.uint64(home)
    for step in range(path.size):
        word = scramble(words)
        # Two branches, not one address: the processor then starts on a step from home before the last one has ended.
        if scramble(words + STEP) >> HALF < walk.jump:
            point = of_labels[home_at + TWO + ((word >> HALF) * of_labels[home_at + ONE] >> HALF)]
        else:
            point = of_labels[label + TWO + ((word >> HALF) * of_labels[label + ONE] >> HALF)]
        words += STEP + STEP
        label = np.uint64(of_points[point + ONE + ((word & LOW) * of_points[point] >> HALF)])
        path[step] = label


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
        if dot(vectors[visited[0]], vectors[visited[i]]) >= least_cosine:
            visited[kept], visits[kept] = visited[i], visits[i]
            kept += 1
    return kept
