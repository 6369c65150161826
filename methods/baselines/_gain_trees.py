"""Trees of training points whose nodes are split for the gain of a ranking (FastXML, PfastXML). Not a method.

A node of a tree has training points. Each side of its split ranks the labels by the sum of their weights among its own
points, and a point gains sum_l y_l / log2(1 + rank of l). Points go where they gain more; then a sparse linear
separator learns to tell the sides apart, so that a new point finds its way. A leaf keeps the mean of its points'
labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.data import TopK
from xcbench.kernels.arrays import Doubles, Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, RowBlock, arrays_of, stack_rows
from xcbench.kernels.hash_table import add, collect, table_size
from xcbench.kernels.parallel import map_threads
from xcbench.kernels.random import seed_word, stream, word_at
from xcbench.kernels.selection import keep_largest, key_of, label_in, write_best
from xcbench.shortlist.blocks import empty_topk, topk_in_blocks

Sides = npt.NDArray[np.int8]

SMALLEST_GAIN = 1e-6
"""Sides are settled when the mean gain of a point grows by less. This and what follows are the authors' constants."""
SEPARATOR_TOLERANCE = 0.01
SEPARATOR_ROUNDS = 100
NEW_LIMIT = 10.0
"""A weight changes by no more than this at once."""
SUFFICIENT = 0.01
"""The share of the promised decrease with which a line search is content."""


class Forest(NamedTuple):
    """All trees, their nodes numbered through."""

    roots: Ints  # [trees]
    children: Ints  # [nodes, 2]: where a point goes whose margin is negative, and where all others go; -1 at a leaf
    separators: sp.csr_array  # [nodes, features]
    leaves: sp.csr_array  # [nodes, labels]

    def rank(self, X: sp.csr_array, k: int) -> TopK:
        """The k labels with the largest mean over the leaves that a point falls into."""
        separators = arrays_of(self.separators)
        leaves = arrays_of(self.leaves)
        largest_leaf = int(np.diff(self.leaves.indptr).max(initial=0))

        def rank_block(block: slice) -> TopK:
            result = empty_topk(block.stop - block.start, k)
            points = arrays_of(X[block])
            most_labels = largest_leaf * len(self.roots)
            _rank(points, self.roots, self.children, separators, leaves, most_labels, result.indices, result.scores)
            return result

        return topk_in_blocks(X.shape[0], k, rank_block)


def grow_forest(
    X: sp.csr_array,
    Y: sp.csr_array,
    *,
    trees: int,
    leaf_points: int,
    leaf_labels: int,
    C: float,
    seed: int,
) -> Forest:
    """Grow trees, as many at once as there are threads.

    Parameters
    ----------
    X
        The points, with a constant feature of their own.
    Y
        Weights of the labels that each point has.
    trees
        How many trees; they differ in the random sides that every split begins with.
    leaf_points
        A node of so many points, or fewer, is a leaf; so is one that cannot be split.
    leaf_labels
        How many labels a leaf keeps, the heaviest ones.
    C
        The weight of the separators' loss against the L1 norm of their weights.
    seed
        Of the random sides.
    """
    points = arrays_of(X)
    labels = arrays_of(Y)
    feature_count = X.shape[1]
    label_count = Y.shape[1]

    def grow(tree: int) -> tuple[Ints, RowBlock, RowBlock]:
        key = np.uint64(stream(seed_word(seed), tree))
        grown: tuple[Ints, RowBlock, RowBlock] = _grow_tree(
            points, feature_count, labels, label_count, leaf_points, leaf_labels, C, key
        )
        return grown

    grown = map_threads(grow, range(trees))
    sizes = [len(children) for children, _, _ in grown]
    roots = np.cumsum([0, *sizes[:-1]]).astype(np.int32)
    numbered = [
        np.where(children >= 0, children + root, -1) for root, (children, _, _) in zip(roots, grown, strict=True)
    ]
    return Forest(
        roots,
        np.concatenate(numbered).astype(np.int32),
        stack_rows([separators for _, separators, _ in grown], feature_count),
        stack_rows([leaves for _, _, leaves in grown], label_count),
    )


@njit(cache=True, nogil=True)
def _grow_tree(
    X: CsrArrays,
    feature_count: int,
    Y: CsrArrays,
    label_count: int,
    leaf_points: int,
    leaf_labels: int,
    C: float,
    key: np.uint64,
) -> tuple[Ints, RowBlock, RowBlock]:
    """Children, separators and leaves of one tree, in the order in which nodes are split: breadth first."""
    point_count = len(X.indptr) - 1
    local_feature = np.full(feature_count, -1, np.int32)
    local_label = np.full(label_count, -1, np.int32)

    points_of = [np.arange(point_count)]
    children = np.full((2 * point_count, 2), -1, np.int32)  # both sides of a split have points: no more nodes than this
    separator_sizes = np.zeros(2 * point_count, np.int64)
    leaf_sizes = np.zeros(2 * point_count, np.int64)
    separators = [(np.empty(0, np.int32), np.empty(0, np.float32))]
    leaves = [(np.empty(0, np.int32), np.empty(0, np.float32))]

    node = 0
    while node < len(points_of):
        points = points_of[node]
        if len(points) > leaf_points:
            sides = np.empty(len(points), np.int8)
            for i in range(len(points)):
                sides[i] = word_at(stream(key, node), i) >> np.uint64(63)
            weights = _split(X, Y, points, local_feature, local_label, C, sides)
            on_the_right = sides.sum()
            if 0 < on_the_right < len(points):
                children[node, 0] = len(points_of)
                children[node, 1] = len(points_of) + 1
                points_of.append(points[sides == 0])
                points_of.append(points[sides == 1])
                separators.append(weights)
                separator_sizes[node] = len(weights[0])

        if children[node, 0] < 0:
            distribution = _mean_labels(Y, points, local_label, leaf_labels)
            leaves.append(distribution)
            leaf_sizes[node] = len(distribution[0])
        node += 1
        points_of[node - 1] = points[:0]  # its points are no longer needed

    return children[:node], _joined(separator_sizes[:node], separators), _joined(leaf_sizes[:node], leaves)


@njit(cache=True)
def _joined(sizes: Longs, rows: list[tuple[Ints, Floats]]) -> RowBlock:
    """Rows that come one by one as one block; rows of size 0 may be missing."""
    indices = np.empty(sizes.sum(), np.int32)
    data = np.empty(sizes.sum(), np.float32)
    end = 0
    for row_indices, row_data in rows:
        begin = end
        end += len(row_indices)
        indices[begin:end] = row_indices
        data[begin:end] = row_data
    return sizes, indices, data


@njit(cache=True)
def _split(
    X: CsrArrays,
    Y: CsrArrays,
    points: Longs,
    local_feature: Ints,
    local_label: Ints,
    C: float,
    sides: Sides,
) -> tuple[Ints, Floats]:
    """Move points to the side where they gain more, then where the separator puts them. Return its weights."""
    labels = number_columns(Y, points, local_label)
    choose_sides(Y, points, labels, local_label, sides)
    local_label[labels] = -1

    features = number_columns(X, points, local_feature)
    columns = _columns(X, points, features, local_feature)
    local_feature[features] = -1
    w = fit_separator(columns, sides, C)

    margins = np.zeros(len(points))
    for j in range(len(features)):
        for e in range(columns.indptr[j], columns.indptr[j + 1]):
            margins[columns.indices[e]] += w[j] * columns.data[e]
    for i in range(len(points)):
        sides[i] = margins[i] >= 0

    used = np.flatnonzero(w)
    return features[used], w[used].astype(np.float32)


@njit(cache=True)
def number_columns(matrix: CsrArrays, rows: Longs, local: Ints) -> Ints:
    """The columns that some rows have, ascending; `local`, -1 everywhere before, gets the place of each of them."""
    count = 0
    for row in rows:
        for e in range(matrix.indptr[row], matrix.indptr[row + 1]):
            if local[matrix.indices[e]] < 0:
                local[matrix.indices[e]] = count
                count += 1

    columns = np.empty(count, np.int32)
    for row in rows:
        for e in range(matrix.indptr[row], matrix.indptr[row + 1]):
            columns[local[matrix.indices[e]]] = matrix.indices[e]
    columns.sort()
    for place, column in enumerate(columns):
        local[column] = place
    return columns


@njit(cache=True)
def _columns(matrix: CsrArrays, rows: Longs, columns: Ints, local: Ints) -> CsrArrays:
    """Some rows of a matrix, by column: entry (j, i) is that of the j-th column and the i-th row."""
    indptr = np.zeros(len(columns) + 1, np.int64)
    for row in rows:
        for e in range(matrix.indptr[row], matrix.indptr[row + 1]):
            indptr[local[matrix.indices[e]] + 1] += 1
    indptr = np.cumsum(indptr)

    position = indptr[:-1].copy()
    indices = np.empty(indptr[-1], np.int32)
    data = np.empty(indptr[-1], np.float32)
    for i, row in enumerate(rows):
        for e in range(matrix.indptr[row], matrix.indptr[row + 1]):
            j = local[matrix.indices[e]]
            indices[position[j]] = i
            data[position[j]] = matrix.data[e]
            position[j] += 1
    return CsrArrays(indptr, indices, data)


@njit(cache=True)
def choose_sides(
    Y: CsrArrays,
    points: Longs,
    labels: Ints,
    local_label: Ints,
    sides: Sides,
) -> float:
    """Alternate: each side ranks the labels of its points, then each point goes where its labels are ranked higher.

    Neither step can lower the mean gain. Returns it.
    """
    gain = -np.inf
    while True:
        totals = np.zeros((2, len(labels)))
        for i, point in enumerate(points):
            for e in range(Y.indptr[point], Y.indptr[point + 1]):
                totals[sides[i], local_label[Y.indices[e]]] += Y.data[e]

        new_gain = 0.0
        advantage = np.zeros(len(labels))  # by label: how much higher side 1 ranks it, in discounts
        for side in range(2):
            new_gain += _add_discounts(totals[side], 2.0 * side - 1.0, advantage)
        new_gain /= len(points)

        for i, point in enumerate(points):
            difference = 0.0
            for e in range(Y.indptr[point], Y.indptr[point + 1]):
                difference += Y.data[e] * advantage[local_label[Y.indices[e]]]
            if difference != 0:
                sides[i] = difference > 0

        if new_gain - gain < SMALLEST_GAIN:
            return new_gain
        gain = new_gain


@njit(cache=True)
def _add_discounts(totals: Doubles, sign: float, advantage: Doubles) -> float:
    """Rank labels by their totals, add each one's discount to its advantage, and return the gain of all points."""
    count = len(totals)
    keys = np.empty(count, np.uint64)
    for label in range(count):
        keys[label] = key_of(np.float32(totals[label]), label)
    keys.sort()

    gain = 0.0
    for place in range(count):
        label = label_in(keys[count - 1 - place])
        discount = 1 / np.log2(place + 2.0)
        advantage[label] += sign * discount
        gain += discount * totals[label]
    return gain


@njit(cache=True)
def fit_separator(columns: CsrArrays, sides: Sides, C: float) -> Doubles:
    """Minimise |w|_1 + sum_i c_i log(1 + exp(-s_i <w, x_i>)), s_i = 1 on side 1 and else -1; return w.

    c_i is C over the share of the points on i's side, so that both sides weigh the same. Weights are changed one by
    one, each by a Newton step and a line search (CDN, Yuan et al. 2010).

    Parameters
    ----------
    columns
        The points by feature, as `_columns` returns them.
    sides
        0 or 1, one per point.
    C
        The weight of the loss.
    """
    count = len(sides)
    on_the_right = sides.sum()
    cost = np.empty(count)
    for i in range(count):
        same_side = on_the_right
        if sides[i] == 0:
            same_side = count - on_the_right
        cost[i] = C * count / same_side

    feature_count = len(columns.indptr) - 1
    w = np.zeros(feature_count)
    margins = np.zeros(count)
    first_violation = 0.0
    for round_number in range(SEPARATOR_ROUNDS):
        violation = 0.0
        for j in range(feature_count):
            violation += _improve(columns, j, sides, cost, w, margins)
        if round_number == 0:
            first_violation = violation
        if violation <= SEPARATOR_TOLERANCE * first_violation:
            break
    return w


@njit(cache=True)
def _improve(columns: CsrArrays, j: int, sides: Sides, cost: Doubles, w: Doubles, margins: Doubles) -> float:
    """Minimise over the j-th weight, approximately. Return by how much the optimality condition was violated before."""
    begin = columns.indptr[j]
    end = columns.indptr[j + 1]
    gradient = 0.0
    curvature = 1e-12
    for e in range(begin, end):
        i = columns.indices[e]
        x = columns.data[e]
        probability = 1 / (1 + np.exp(-margins[i]))
        gradient += cost[i] * (probability - sides[i]) * x
        curvature += cost[i] * probability * (1 - probability) * x * x

    if w[j] == 0:
        violation = max(abs(gradient) - 1, 0.0)
    else:
        violation = abs(gradient + np.sign(w[j]))

    if gradient + 1 <= curvature * w[j]:
        step = -(gradient + 1) / curvature
    elif gradient - 1 >= curvature * w[j]:
        step = -(gradient - 1) / curvature
    else:
        step = -w[j]
    step = min(max(step, -NEW_LIMIT), NEW_LIMIT)
    if abs(step) < 1e-12:
        return violation

    promised = gradient * step + abs(w[j] + step) - abs(w[j])
    for _ in range(20):
        change = abs(w[j] + step) - abs(w[j])
        for e in range(begin, end):
            i = columns.indices[e]
            before = margins[i]
            after = before + step * columns.data[e]
            change += cost[i] * (_log_loss(after, sides[i]) - _log_loss(before, sides[i]))
        if change <= SUFFICIENT * promised:
            w[j] += step
            for e in range(begin, end):
                margins[columns.indices[e]] += step * columns.data[e]
            break
        step /= 2
        promised /= 2
    return violation


@njit(inline="always")
def _log_loss(margin: float, side: int) -> float:
    """log(1 + exp(-margin)) on side 1, log(1 + exp(margin)) on side 0."""
    loss: float = max(margin, 0.0) + np.log1p(np.exp(-abs(margin))) - side * margin
    return loss


@njit(cache=True)
def _mean_labels(Y: CsrArrays, points: Longs, local_label: Ints, keep: int) -> tuple[Ints, Floats]:
    """The mean of the points' labels, its largest entries."""
    labels = number_columns(Y, points, local_label)
    mean = np.zeros(len(labels), np.float32)
    for point in points:
        for e in range(Y.indptr[point], Y.indptr[point + 1]):
            mean[local_label[Y.indices[e]]] += Y.data[e]
    mean /= np.float32(len(points))
    local_label[labels] = -1

    kept = keep_largest(mean, labels, keep, -1)
    return labels[:kept], mean[:kept]


@njit(cache=True, nogil=True)
def _rank(
    X: CsrArrays,
    roots: Ints,
    children: Ints,
    separators: CsrArrays,
    leaves: CsrArrays,
    most_labels: int,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    """Write the labels with the largest mean over all trees' leaves."""
    size = table_size(most_labels)
    labels = np.empty(size, np.int32)
    totals = np.empty(size, np.float32)
    keys = np.empty(size, np.uint64)
    share = np.float32(1 / len(roots))
    for i in range(len(out_labels)):
        begin = X.indptr[i]
        end = X.indptr[i + 1]
        labels[:] = -1
        for root in roots:
            leaf = _leaf_of(X.indices[begin:end], X.data[begin:end], root, children, separators)
            for e in range(leaves.indptr[leaf], leaves.indptr[leaf + 1]):
                add(labels, totals, leaves.indices[e], share * leaves.data[e])
        count = collect(labels, totals, keys)
        write_best(keys, count, out_labels[i], out_scores[i])


@njit(cache=True)
def _leaf_of(features: Ints, values: Floats, root: int, children: Ints, separators: CsrArrays) -> int:
    """The leaf that a point falls into. A point has fewer features than a separator: each of them is looked up."""
    node = root
    while children[node, 0] >= 0:
        begin = separators.indptr[node]
        end = separators.indptr[node + 1]
        weighted = separators.indices[begin:end]
        margin = np.float32(0)
        for e in range(len(features)):
            place = np.searchsorted(weighted, features[e])
            if place < len(weighted) and weighted[place] == features[e]:
                margin += values[e] * separators.data[begin + place]
        node = children[node, np.int64(margin >= 0)]
    return node
