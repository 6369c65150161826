"""Many linear SVMs on dense points, each on its own few points: the classifiers at the nodes of a label tree.

The solver is dual coordinate descent for the squared hinge loss (Hsieh et al. 2008). It has no learning rate, and stops
when no point of a classifier would change it by more than a tolerance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit

from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, arrays_of, dot
from xcbench.kernels.parallel import in_blocks
from xcbench.kernels.random import below, stream, word_at
from xcbench.progress import titled

CLASSIFIERS_AT_A_TIME = 16


class Examples(NamedTuple):
    """The training points of each classifier. Row numbers are ascending, and none occurs twice in a row."""

    group: Ints  # [classifiers]; classifier c trains on the points of points[group[c]]
    points: sp.csr_array  # [groups, N]
    positive: sp.csr_array  # [classifiers, N]; the positives of each classifier, a subset of its points


def fit_classifiers(
    X: Floats,
    examples: Examples,
    C: float,
    seed: int,
    tolerance: float = 0.1,
    epochs: int = 50,
) -> Floats:
    """Minimise |w|^2 / 2 + C sum_i max(0, 1 - y_i <w, x_i>)^2 for each classifier, and return all w.

    Parameters
    ----------
    X : the points, with a bias column of their own.
    examples : which points each classifier trains on, and which of them are positive.
    C : the weight of the losses.
    seed : decides, with a classifier's number alone, in which order it visits its points.
    tolerance : a classifier is done when no gradient is larger.
    epochs : how often at most a classifier visits all of its points.
    """
    classifiers = len(examples.group)
    W = np.zeros((classifiers, X.shape[1]), np.float32)
    squares = np.einsum("ij,ij->i", X, X)
    points = arrays_of(examples.points)
    positive = arrays_of(examples.positive)

    def fit_block(block: slice) -> None:
        _fit_classifiers(
            X,
            squares,
            examples.group,
            points,
            positive,
            block.start,
            block.stop,
            np.float32(C),
            np.float32(tolerance),
            epochs,
            np.uint64(seed),
            W,
        )

    block_size = 1
    if classifiers > 4 * CLASSIFIERS_AT_A_TIME:
        block_size = CLASSIFIERS_AT_A_TIME
    with titled("classifiers"):
        in_blocks(classifiers, block_size, fit_block)
    return W


@njit(cache=True)
def _row_indices(matrix: CsrArrays, row: int) -> Ints:
    start = matrix.indptr[row]
    stop = matrix.indptr[row + 1]
    return matrix.indices[start:stop]


@njit(cache=True)
def _signs(points: Ints, positive: Ints) -> Floats:
    """Return 1 for the points that are positive, and -1 for the others. Both lists are ascending."""
    signs = np.full(len(points), -1, np.float32)
    next_positive = 0
    for i, point in enumerate(points):
        if next_positive < len(positive) and positive[next_positive] == point:
            signs[i] = 1
            next_positive += 1
    return signs


@njit(cache=True)
def shuffle(order: Longs, key: np.uint64) -> None:
    """Shuffle in place, with the random words of a stream (Fisher and Yates)."""
    for i in range(len(order) - 1, 0, -1):
        j = below(word_at(key, i), i + 1)
        order[i], order[j] = order[j], order[i]


@njit(cache=True, nogil=True)
def _fit_classifiers(
    X: Floats,
    squares: Floats,
    group: Ints,
    points_of: CsrArrays,
    positive_of: CsrArrays,
    first: int,
    stop: int,
    C: np.float32,
    tolerance: np.float32,
    epochs: int,
    seed: np.uint64,
    W: Floats,
) -> None:
    ridge = np.float32(0.5) / C
    for c in range(first, stop):
        points = _row_indices(points_of, group[c])
        positive = _row_indices(positive_of, c)
        signs = _signs(points, positive)
        w = W[c]
        alpha = np.zeros(len(points), np.float32)
        order = np.arange(len(points))
        for epoch in range(epochs):
            shuffle(order, stream(seed, c * epochs + epoch))
            worst = np.float32(0)
            for i in order:
                x = X[points[i]]
                slope = signs[i] * dot(x, w) - 1 + ridge * alpha[i]
                if alpha[i] == 0 and slope >= 0:
                    continue
                worst = max(worst, abs(slope))
                curvature = squares[points[i]] + ridge
                new_alpha = max(alpha[i] - slope / curvature, np.float32(0))
                change = new_alpha - alpha[i]
                alpha[i] += change
                step = change * signs[i]
                for d in range(len(w)):
                    w[d] += step * x[d]
            if worst < tolerance:
                break
