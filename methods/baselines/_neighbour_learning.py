"""Partitions and embeddings that keep points with common labels together: AnnexML's two steps. Not a method."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.kernels.arrays import Doubles, Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, arrays_of
from xcbench.kernels.random import below, seed_word, stream, word_at
from xcbench.kernels.svm import shuffle
from xcbench.shortlist.sparse_topk import best_of_product

Reals = npt.NDArray[np.floating]

PAIRS_PER_POINT = 5000
"""Labels with the most points are left out of a partition's neighbours where there would be more pairs than this."""


def label_neighbours(Y: sp.csr_array, count: int, seed: int) -> Ints:
    """The points [n, count] with the most labels in common, -1 where there are fewer; never the point itself.

    A label in common with a point of few labels says more: it counts one over their number. The seed decides between
    points that are equally good.
    """
    order = np.random.default_rng(seed).permutation(Y.shape[0]).astype(np.int32)
    shuffled = Y[order]
    sizes = np.diff(shuffled.indptr)
    weights = np.repeat(1 / np.maximum(sizes, 1), sizes).astype(np.float32)
    shares = sp.csr_array((weights, shuffled.indices, shuffled.indptr), shape=Y.shape)
    found = best_of_product(Y, shares.T.tocsr(), count + 1)

    points = np.where(found.indices >= 0, order[found.indices], -1)
    is_self = points == np.arange(Y.shape[0])[:, None]
    # Places stay in the order of the scores; a stable sort moves the unused ones to the end.
    is_unused = is_self | (points < 0)
    used_first = np.argsort(is_unused, axis=1, kind="stable")
    others = np.take_along_axis(np.where(is_unused, -1, points), used_first, axis=1)
    return np.ascontiguousarray(others[:, :count], np.int32)


def without_heads(Y: sp.csr_array, pairs_per_point: int = PAIRS_PER_POINT) -> sp.csr_array:
    """Y without the labels of most points, as many as needed for so many pairs of points that share a label."""
    frequency = np.bincount(Y.indices, minlength=Y.shape[1])
    rare_first = np.argsort(frequency, kind="stable")
    pairs = np.cumsum(frequency[rare_first] * (frequency[rare_first] - 1))
    is_kept = np.zeros(Y.shape[1], np.float32)
    is_kept[rare_first[pairs <= pairs_per_point * Y.shape[0]]] = 1
    kept: sp.csr_array = (Y @ sp.diags_array(is_kept, format="csr")).tocsr()
    kept.eliminate_zeros()
    return kept


def learn_partition(
    X: sp.csr_array,
    neighbours: Ints,
    clusters: int,
    *,
    rounds: int,
    lr: float,
    sparsity: float,
    seed: int,
) -> sp.csr_array:
    """Centres [clusters, features] such that neighbours are nearest to the same one.

    A point, its neighbours and as many random points are seen at a time: the centre nearest to the point learns, by
    logistic regression with an L1 penalty (FTRL), that the neighbours are its own and the random points are not.

    Parameters
    ----------
    X
        The points.
    neighbours
        As `label_neighbours` returns them.
    clusters
        How many; the first centres are that many points, drawn at random.
    rounds
        How often all points are seen.
    lr
        Learning rate.
    sparsity
        Weight of the L1 penalty.
    seed
        Of the first centres, the order of points and the random points.
    """
    centres = np.zeros((clusters, X.shape[1]), np.float32)
    _learn_centres(arrays_of(X), neighbours, rounds, lr, sparsity, seed_word(seed), centres)
    return sp.csr_array(centres)


def nearest_cluster(X: sp.csr_array, centres: sp.csr_array) -> Ints:
    """The centre with the largest inner product, for each point; of equal ones the first."""
    scores = (X @ centres.T).toarray()
    nearest: Ints = scores.argmax(axis=1).astype(np.int32)
    return nearest


def learn_embedding(
    X: sp.csr_array,
    neighbours: Ints,
    dim: int,
    *,
    rounds: int,
    lr: float,
    gamma: float,
    seed: int,
) -> Floats:
    """E [features, dim] such that a point's nearest by cosine are its neighbours; see `learn_from_point`.

    Parameters
    ----------
    X
        The points.
    neighbours
        As `label_neighbours` returns them.
    dim
        The length of an embedding.
    rounds
        How often all points are seen.
    lr
        Learning rate of AdaGrad.
    gamma
        How much a difference of cosines counts.
    seed
        Of the first E, the order of points and the random points.
    """
    words_per_point = X.nnz / max(X.shape[0], 1)
    largest = 1 / np.sqrt(max(words_per_point, 1))
    random = np.random.default_rng(seed)
    E = random.uniform(-largest, largest, (X.shape[1], dim)).astype(np.float32)
    _learn_rounds(arrays_of(X), neighbours, rounds, np.float32(lr), np.float32(gamma), seed_word(seed), E)
    return E


@njit(cache=True, nogil=True)
def _learn_centres(
    X: CsrArrays,
    neighbours: Ints,
    rounds: int,
    lr: float,
    sparsity: float,
    seed: np.uint64,
    centres: Floats,
) -> None:
    point_count = len(neighbours)
    order = np.arange(point_count)
    shuffle(order, stream(seed, 0))
    squares = np.ones(centres.shape, np.float32)
    sums = np.zeros(centres.shape, np.float32)
    for cluster in range(len(centres)):
        point = order[cluster]
        for e in range(X.indptr[point], X.indptr[point + 1]):
            value = X.data[e]
            centres[cluster, X.indices[e]] = value
            sums[cluster, X.indices[e]] = value / lr + np.sign(value) * sparsity

    for number in range(rounds):
        key = stream(seed, number + 1)
        shuffle(order, key)
        for step, point in enumerate(order):
            centre = _nearest(X, point, centres, stream(key, step + point_count))
            for place, neighbour in enumerate(neighbours[point]):
                if neighbour < 0:
                    break
                stranger = np.int64(below(word_at(stream(key, step), place), point_count))
                _attract(X, neighbour, 1.0, lr, sparsity, centres[centre], squares[centre], sums[centre])
                _attract(X, stranger, 0.0, lr, sparsity, centres[centre], squares[centre], sums[centre])


@njit(cache=True)
def _nearest(X: CsrArrays, point: np.integer, centres: Floats, key: np.uint64) -> int:
    """The centre with the largest inner product; of equal ones, which are many at first, one at random."""
    best = 0
    best_score = -np.inf
    equal = 1
    for cluster in range(len(centres)):
        score = _product(X, point, centres[cluster])
        if score > best_score:
            best = cluster
            best_score = score
            equal = 1
        elif score == best_score:
            equal += 1
            if below(word_at(key, cluster), equal) == 0:
                best = cluster
    return best


@njit(cache=True)
def _product(X: CsrArrays, point: np.integer, w: Floats) -> float:
    total = 0.0
    for e in range(X.indptr[point], X.indptr[point + 1]):
        total += X.data[e] * w[X.indices[e]]
    return total


@njit(cache=True)
def _attract(
    X: CsrArrays,
    point: np.integer,
    target: float,
    lr: float,
    sparsity: float,
    w: Floats,
    squares: Floats,
    sums: Floats,
) -> None:
    """One step of FTRL: the centre w is told whether the point is its own (target 1) or not (0)."""
    error = target - 1 / (1 + np.exp(-_product(X, point, w)))
    for e in range(X.indptr[point], X.indptr[point + 1]):
        feature = X.indices[e]
        slope = error * X.data[e]
        old_length = np.sqrt(squares[feature])
        squares[feature] += slope * slope
        length = np.sqrt(squares[feature])
        sums[feature] += slope + (length - old_length) / lr * w[feature]
        excess = max(abs(sums[feature]) - sparsity, 0.0)
        w[feature] = np.sign(sums[feature]) * excess * lr / length


@njit(cache=True, nogil=True)
def _learn_rounds(
    X: CsrArrays,
    neighbours: Ints,
    rounds: int,
    lr: np.float32,
    gamma: np.float32,
    seed: np.uint64,
    E: Floats,
) -> None:
    point_count, count = neighbours.shape
    order = np.arange(point_count)
    squares = np.ones(E.shape, np.float32)
    sample = np.empty(2 * count, np.int64)
    for number in range(rounds):
        key = stream(seed, number)
        shuffle(order, key)
        for step, point in enumerate(order):
            known = 0
            while known < count and neighbours[point, known] >= 0:
                known += 1
            if known == 0:
                continue
            for place in range(count):
                sample[place] = neighbours[point, place % known]  # where there are few, each counts several times
                sample[count + place] = below(word_at(stream(key, step), place), point_count)
            learn_from_point(X, point, sample, lr, gamma, E, squares)


@njit(cache=True)
def learn_from_point(
    X: CsrArrays,
    point: np.integer,
    sample: Longs,
    lr: np.floating,
    gamma: np.floating,
    E: Reals,
    squares: Reals,
) -> None:
    """Step up the gradient of sum_i log(e^{gamma cos_i} / (e^{gamma cos_i} + sum_j e^{gamma cos_j})), by AdaGrad.

    cos is the cosine of E x of the point and of another point; i runs over its neighbours, the first half of the
    sample, and j over random points, the second half.
    """
    dim = E.shape[1]
    half = len(sample) // 2
    own = np.zeros(dim, E.dtype)
    own_length = _embed(X, point, E, own)
    others = np.zeros((len(sample), dim), E.dtype)
    lengths = np.zeros(len(sample), E.dtype)
    cosines = np.zeros(len(sample), E.dtype)
    for s, other in enumerate(sample):
        lengths[s] = _embed(X, other, E, others[s])
        if own_length * lengths[s] > 0:
            cosines[s] = np.dot(own, others[s]) / (own_length * lengths[s])

    slopes = cosine_slopes(cosines, half, gamma)
    for s, other in enumerate(sample):
        if own_length * lengths[s] > 0:
            scale = slopes[s] / (own_length * lengths[s])
            _step(X, point, scale, others[s], cosines[s] * lengths[s] / own_length, own, lr, E, squares)
            _step(X, other, scale, own, cosines[s] * own_length / lengths[s], others[s], lr, E, squares)


@njit(cache=True)
def cosine_slopes(cosines: Reals, half: int, gamma: np.floating) -> Doubles:
    """The derivatives of the objective by the cosines."""
    slopes = np.zeros(len(cosines))
    ratios = np.empty(len(cosines) - half)
    for i in range(half):
        total = 1.0
        for j in range(half, len(cosines)):
            ratios[j - half] = np.exp(gamma * (cosines[j] - cosines[i]))
            total += ratios[j - half]
        for j in range(half, len(cosines)):
            slope = gamma * ratios[j - half] / total
            slopes[i] += slope
            slopes[j] -= slope
    return slopes


@njit(cache=True)
def _embed(X: CsrArrays, point: np.integer, E: Reals, vector: Reals) -> float:
    """Write E x of a point, and return its length."""
    for e in range(X.indptr[point], X.indptr[point + 1]):
        row = E[X.indices[e]]
        value = X.data[e]
        for d in range(len(vector)):
            vector[d] += value * row[d]
    length: float = np.sqrt(np.dot(vector, vector))
    return length


@njit(cache=True, error_model="numpy")
def _step(
    X: CsrArrays,
    point: np.integer,
    scale: float,
    towards: Reals,
    share: float,
    own: Reals,
    lr: np.floating,
    E: Reals,
    squares: Reals,
) -> None:
    """Move the rows of a point's features by its part of a cosine's gradient: scale * value * (towards - share own)."""
    for e in range(X.indptr[point], X.indptr[point + 1]):
        row = E[X.indices[e]]
        row_squares = squares[X.indices[e]]
        factor = row.dtype.type(scale * X.data[e])
        for d in range(len(row)):
            slope = factor * (towards[d] - share * own[d])
            row_squares[d] += slope * slope
            row[d] += lr * slope / np.sqrt(row_squares[d])
