"""ECLARE's label graph: how often short random walks from one label visit another."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.data.matrices import binary_targets, unit_vectors
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, RowBlock, arrays_of, dot, pack_rows, write_rows
from xcbench.kernels.parallel import map_threads, split_range
from xcbench.kernels.random import STEP, scramble, seed_word, stream
from xcbench.kernels.selection import keep_largest
from xcbench.progress import titled

LABELS_IN_A_BLOCK = 1 << 11

# Kernels must not mix signed and unsigned integers.
ONE = np.uint64(1)
TWO = np.uint64(2)
HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
SPREAD = np.uint64(2654435769)  # Knuth's multiplicative hash: 2^32 / golden ratio


class Adjacency(NamedTuple):
    """Which label has which points and which point has which labels, so laid out that a step touches few cache lines.

    A label's record is its id, the number of its points, and the offset of each point's record in `point_records`. A
    point's record is the number of its labels, and the offset of each label's record in `label_records`. Offsets are
    unsigned, since numba then need not check at each access whether an index counts from the end.
    """

    label_records: npt.NDArray[np.uint32]
    point_records: npt.NDArray[np.uint32]
    label_offsets: npt.NDArray[np.uint32]  # where each label's record begins


class Walk(NamedTuple):
    """The settings of a walk as the kernel takes them."""

    length: int
    restart: np.uint64  # the probability of a return to the first label, times 2^32
    seed: np.uint64
    min_cosine: np.float32


def random_walk_graph(
    Y: sp.csr_array,
    walk_length: int = 400,
    restart: float = 0.8,
    head_threshold: int | None = 500,
    top: int | None = 10,
    seed: int = 0,
    label_vectors: Floats | None = None,
    limit: float = 1.0,
) -> sp.csr_array:
    """Return visit counts (L x L) of random walks, one from each label.

    Each step goes from a label to one of its points, and on to one of that point's labels.

    Parameters
    ----------
    Y : targets (N x L). An entry of at least one half counts as one, others as none.
    walk_length : how many steps a walk has.
    restart : the probability that a walk returns to its first label before a step.
    head_threshold : labels with more points are removed from Y first. They, and labels without points, have a self
        loop of 1 and no other edge. None: no threshold.
    top : how many counts a row keeps, the largest ones; None keeps all. The diagonal always stays, and is 1 if the
        walk never returned to its first label.
    seed : of the walks.
    label_vectors : one vector per label. With them, visits to distant labels are not counted.
    limit : the greatest cosine distance, 1 - cos, from the first label of a visit that counts.
    """
    if walk_length < 1 or not 0 <= restart <= 1:
        raise InputError(
            f"a walk has at least 1 step and restarts with probability 0 to 1, got {walk_length}, {restart}"
        )
    L = Y.shape[1]
    vectors = _unit_label_vectors(label_vectors, L)
    if top is None:
        top = walk_length + 1
    walk = Walk(
        length=walk_length,
        restart=np.uint64(restart * 2.0**32),
        seed=seed_word(seed),
        min_cosine=np.float32(1 - limit),
    )

    adjacency, labels = _adjacency(Y, head_threshold)

    def walk_from(rows: tuple[int, int]) -> RowBlock:
        return _walk_rows(adjacency, *rows, walk, vectors, top)

    ranges = split_range(len(labels), LABELS_IN_A_BLOCK)
    with titled("random walks"):
        blocks = map_threads(walk_from, ranges)
    return _stack_in_label_order(blocks, labels, L)


def _unit_label_vectors(label_vectors: Floats | None, L: int) -> Floats:
    """Scale vectors to unit length. A matrix without columns tells the kernel that there are none."""
    if label_vectors is None:
        return np.zeros((0, 0), np.float32)
    if len(label_vectors) != L:
        raise InputError(f"a graph of {L} labels needs as many vectors, got {len(label_vectors)}")
    return unit_vectors(label_vectors)


def _adjacency(Y: sp.csr_array, head_threshold: int | None) -> tuple[Adjacency, Ints]:
    """Return the records without head labels, empty columns and empty rows, and the label ids in their order.

    Points are sorted by the rarest of their labels, labels by the first of their points. So labels that share points
    are close to each other, a walk stays within the cache, and the cost of a step hardly depends on L.

    Compiled loops write the records straight from Y. Matrix by matrix, each copy is a walk through new memory, which
    costs more per label the more labels there are.
    """
    Y = binary_targets(Y)
    if Y.nnz + 2 * Y.shape[1] + Y.shape[0] >= 2**32:
        raise InputError(f"a walk goes over at most 2^32 targets, got {Y.nnz:,}")
    frequency = np.bincount(Y.indices, minlength=Y.shape[1])
    if head_threshold is None:
        head_threshold = Y.shape[0]
    is_connected = (frequency > 0) & (frequency <= head_threshold)
    connected = np.flatnonzero(is_connected)
    rarest_first = np.argsort(frequency[connected], kind="stable")
    rarity = np.full(Y.shape[1], -1, np.int32)
    rarity[connected[rarest_first]] = np.arange(len(connected))

    matrix = arrays_of(Y)
    points, sizes = _sort_points(matrix, rarity, len(connected))
    labels = _sort_labels(matrix, rarity, points, len(connected))

    # A label's record has two numbers before its list of points, a point's record one before its list of labels.
    label_offsets = _starts(frequency[labels] + 2)
    point_offsets = _starts(sizes + 1)
    targets = int(frequency[labels].sum())
    label_records = np.empty(targets + 2 * len(labels), np.uint32)
    point_records = np.empty(targets + len(points), np.uint32)
    offset_of = np.zeros(Y.shape[1], np.uint32)
    offset_of[labels] = label_offsets
    label_records[label_offsets] = labels
    label_records[label_offsets + np.uint32(1)] = 0
    _write_records(matrix, rarity, points, point_offsets, offset_of, label_records, point_records)
    return Adjacency(label_records, point_records, label_offsets), labels


def _starts(sizes: Longs) -> npt.NDArray[np.uint32]:
    """Return where each of several runs begins, one behind the other."""
    return (np.cumsum(sizes) - sizes).astype(np.uint32)


@njit(cache=True)
def _sort_points(matrix: CsrArrays, rarity: Ints, labels: int) -> tuple[Longs, Longs]:
    """Return the points that have a label with a rarity (others are -1), by their rarest, and how many each has."""
    count = matrix.indptr.size - 1
    rarest = np.full(count, labels, np.int32)
    sizes = np.zeros(count, np.int64)
    starts = np.zeros(labels + 2, np.int64)
    for point in range(count):
        for i in range(matrix.indptr[point], matrix.indptr[point + 1]):
            rank = rarity[matrix.indices[i]]
            if rank >= 0:
                sizes[point] += 1
                rarest[point] = min(rarest[point], rank)
        starts[rarest[point] + 1] += 1
    starts = np.cumsum(starts)

    points = np.empty(starts[labels], np.int64)
    sorted_sizes = np.empty(points.size, np.int64)
    for point in range(count):
        rank = rarest[point]
        if rank < labels:
            points[starts[rank]] = point
            sorted_sizes[starts[rank]] = sizes[point]
            starts[rank] += 1
    return points, sorted_sizes


@njit(cache=True)
def _sort_labels(matrix: CsrArrays, rarity: Ints, points: Longs, count: int) -> Ints:
    """Return the labels that have a rarity, in the order in which the points meet them first."""
    labels = np.empty(count, np.int32)
    is_met = np.zeros(rarity.size, np.bool_)
    n = 0
    for point in points:
        for i in range(matrix.indptr[point], matrix.indptr[point + 1]):
            label = matrix.indices[i]
            if rarity[label] >= 0 and not is_met[label]:
                is_met[label] = True
                labels[n] = label
                n += 1
    return labels


@njit(cache=True)
def _write_records(
    matrix: CsrArrays,
    rarity: Ints,
    points: Longs,
    point_offsets: npt.NDArray[np.uint32],
    offset_of: npt.NDArray[np.uint32],
    label_records: npt.NDArray[np.uint32],
    point_records: npt.NDArray[np.uint32],
) -> None:
    """Write the records of points, and append each point to those of its labels, whose counts begin at 0.

    `offset_of` says where a label's record begins.
    """
    for row in range(points.size):
        start = point_offsets[row]
        n = np.uint32(0)
        for i in range(matrix.indptr[points[row]], matrix.indptr[points[row] + 1]):
            label = matrix.indices[i]
            if rarity[label] < 0:
                continue
            offset = offset_of[label]
            n += np.uint32(1)
            point_records[start + n] = offset
            label_records[offset + np.uint32(1)] += np.uint32(1)
            label_records[offset + np.uint32(1) + label_records[offset + np.uint32(1)]] = start
        point_records[start] = n


def _stack_in_label_order(blocks: list[RowBlock], labels: Ints, L: int) -> sp.csr_array:
    """Put the rows of `labels` together in the order of their ids. All other labels get a self loop of 1."""
    block_sizes = [block[0] for block in blocks]
    sizes = np.ones(L, np.int64)
    sizes[labels] = np.concatenate([sizes[:0], *block_sizes])
    ends = np.cumsum(sizes)
    indptr = np.concatenate(([0], ends))

    ids = np.repeat(np.arange(L, dtype=np.int32), sizes)
    counts = np.ones(indptr[-1], np.float32)
    ranges = split_range(len(labels), LABELS_IN_A_BLOCK)
    for (start, stop), block in zip(ranges, blocks, strict=True):
        row_starts = indptr[labels[start:stop]]
        write_rows(block, row_starts, ids, counts)

    graph = sp.csr_array((counts, ids, indptr), shape=(L, L))
    graph.sort_indices()
    return graph


@njit(cache=True, nogil=True)
def _walk_rows(
    adjacency: Adjacency,
    start: int,
    stop: int,
    walk: Walk,
    vectors: Floats,
    top: int,
) -> RowBlock:
    table_size = 1
    while table_size < 2 * walk.length:
        table_size *= 2
    table = np.zeros(table_size, np.uint32)
    path = np.empty(walk.length, np.uint32)
    visited = np.empty(walk.length + 1, np.uint32)  # offsets of labels, which then become their ids
    visited_ids = visited.view(np.int32)
    visits = np.empty(walk.length + 1, np.float32)

    capacity = min(top, walk.length) + 1
    sizes = np.empty(stop - start, np.int64)
    ids = np.empty(sizes.size * capacity, np.int32)
    counts = np.empty(sizes.size * capacity, np.float32)
    for row in range(sizes.size):
        home = adjacency.label_offsets[start + row]
        _walk(adjacency.label_records, adjacency.point_records, home, walk, path)
        n = _count_visits(path, home, table, visited, visits)
        for i in range(n):
            visited_ids[i] = adjacency.label_records[visited[i]]
        n = _drop_distant(vectors, walk.min_cosine, visited_ids, visits, n)
        home_id = np.int32(adjacency.label_records[home])
        n = keep_largest(visits[:n], visited_ids[:n], top, home_id)

        first = row * capacity
        ids[first : first + n] = visited_ids[:n]
        counts[first : first + n] = visits[:n]
        sizes[row] = n
    row_starts = capacity * np.arange(sizes.size)
    return pack_rows(row_starts, sizes, ids, counts)


@njit(cache=True)
def _walk(
    label_records: npt.NDArray[np.uint32],
    point_records: npt.NDArray[np.uint32],
    home: np.uint32,
    walk: Walk,
    path: npt.NDArray[np.uint32],
) -> None:
    """Walk from the label whose record is at `home`, and write the label reached at each step to `path`.

    Each step takes two random words: one chooses the point (high half) and the label (low half), the other decides
    whether the walk returns home first.
    """
    words = stream(walk.seed, label_records[home])
    home_label = np.uint64(home)
    label = home_label
    for step in range(path.size):
        word = scramble(words)
        high = word >> HALF
        # Two branches, not one address: the processor then starts on a step from home before the last one has ended.
        if scramble(words + STEP) >> HALF < walk.restart:
            point = label_records[home_label + TWO + (high * label_records[home_label + ONE] >> HALF)]
        else:
            point = label_records[label + TWO + (high * label_records[label + ONE] >> HALF)]
        words += STEP + STEP
        label = np.uint64(point_records[point + ONE + ((word & LOW) * point_records[point] >> HALF)])
        path[step] = label


@njit(cache=True)
def _count_visits(
    path: npt.NDArray[np.uint32],
    home: np.uint32,
    table: npt.NDArray[np.uint32],
    visited: npt.NDArray[np.uint32],
    visits: Floats,
) -> int:
    """Count the labels of a path, and return how many there are. Home comes first, with a count of at least 1.

    `table` is a hash table of places in `visited`. It is all 0 before and after; home, at place 0, is not in it.
    """
    mask = np.uint64(table.size - 1)
    visited[0] = home
    visits[0] = 0
    n = 1
    for step in range(path.size):
        label = path[step]
        if label == home:
            visits[0] += np.float32(1)
            continue
        slot = (np.uint64(label) * SPREAD) >> np.uint64(8) & mask
        while table[slot] != 0 and visited[table[slot]] != label:
            slot = (slot + ONE) & mask
        if table[slot] == 0:
            table[slot] = n
            visited[n] = label
            visits[n] = 0
            n += 1
        visits[table[slot]] += np.float32(1)
    visits[0] = max(visits[0], np.float32(1))
    table[:] = 0
    return n


@njit(cache=True)
def _drop_distant(
    vectors: Floats,
    min_cosine: np.float32,
    visited: Ints,
    visits: Floats,
    n: int,
) -> int:
    """Drop labels whose cosine with the first one is below `min_cosine`, and return how many are left."""
    if vectors.shape[1] == 0:
        return n
    count = 1
    for i in range(1, n):
        cosine = dot(vectors[visited[0]], vectors[visited[i]])
        if cosine >= min_cosine:
            visited[count] = visited[i]
            visits[count] = visits[i]
            count += 1
    return count
