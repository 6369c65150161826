"""Many linear SVMs on sparse points, each on its own few examples: the classifiers that re-rank a shortlist.

The solver is that of `svm`, dual coordinate descent for the squared hinge loss. A step costs as much as the point has
entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numba import njit

from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats, Ints
from xcbench.kernels.csr import CsrArrays, RowBlock, SparseRows, arrays_of, stack_rows
from xcbench.kernels.parallel import in_blocks, rows_in_block
from xcbench.kernels.random import seed_word, stream
from xcbench.kernels.svm import shuffle
from xcbench.progress import titled

CLASSIFIERS_AT_A_TIME = 64
BLOCKS_OF_POINTS = 64


def fit_sparse_classifiers(
    X: sp.csr_array,
    examples: sp.csr_array,
    seed: int,
    *,
    tolerance: float = 0.1,
    epochs: int = 100,
    prune: float = 0.0,
) -> sp.csr_array:
    """Minimise |w|^2 / 2 + sum_i |c_i| max(0, 1 - sign(c_i) <w, x_i>)^2 for each row c of `examples`; return all w.

    Parameters
    ----------
    X : the points.
    examples : [classifiers, points]; the sign says whether a point is positive, the size what its loss costs, and
        points without an entry are not used.
    seed : decides, with a classifier's number alone, in which order it visits its examples.
    tolerance : a classifier is done when no gradient is larger.
    epochs : how often at most a classifier visits all of its examples.
    prune : weights nearer to zero than this are dropped.
    """
    points = arrays_of(X)
    rows = arrays_of(examples)
    squares = _squares(points)
    blocks: dict[int, RowBlock] = {}

    def fit_block(block: slice) -> None:
        blocks[block.start] = _fit_classifiers(
            points,
            squares,
            X.shape[1],
            rows,
            block.start,
            block.stop,
            np.float32(tolerance),
            epochs,
            np.float32(prune),
            seed_word(seed),
        )

    with titled("sparse classifiers"):
        in_blocks(examples.shape[0], CLASSIFIERS_AT_A_TIME, fit_block)
    in_order = [blocks[start] for start in sorted(blocks)]
    return stack_rows(in_order, X.shape[1])


@dataclass(frozen=True)
class LabelWeights:
    """Sparse weights per label in the kernel's form. Made once: a single point must not cost a pass over all labels."""

    rows: SparseRows

    @classmethod
    def of(cls, W: sp.csr_array) -> LabelWeights:
        return cls(SparseRows.of(W))

    def margins(
        self,
        X: sp.csr_array,
        labels: Ints,
        constant: bool = False,
    ) -> Floats:
        """Return <x, w_l> for each point and each of its labels, or -inf where the label is -1.

        With `constant`, each point gets a one behind its features, which the last weight belongs to.
        """
        features = self.rows.width - constant
        if X.shape != (len(labels), features):
            raise InputError(
                f"{len(labels)} lists and {features} weights per label do not fit points of shape {X.shape}"
            )
        points = arrays_of(X)
        weights = self.rows.arrays
        margins = np.empty(labels.shape, np.float32)

        def score_block(block: slice) -> None:
            _margins(
                points,
                weights,
                self.rows.width,
                constant,
                labels,
                block.start,
                block.stop,
                margins,
            )

        block_size = rows_in_block(len(labels), BLOCKS_OF_POINTS)
        in_blocks(len(labels), block_size, score_block)
        return margins


@njit(cache=True)
def _squares(points: CsrArrays) -> Floats:
    """Return <x, x> of each point."""
    squares = np.zeros(len(points.indptr) - 1, np.float32)
    for i in range(len(squares)):
        for e in range(points.indptr[i], points.indptr[i + 1]):
            squares[i] += points.data[e] * points.data[e]
    return squares


@njit(cache=True, nogil=True)
def _fit_classifiers(
    X: CsrArrays,
    squares: Floats,
    width: int,
    examples: CsrArrays,
    first: int,
    stop: int,
    tolerance: np.float32,
    epochs: int,
    prune: np.float32,
    seed: np.uint64,
) -> RowBlock:
    w = np.zeros(width, np.float32)
    sizes = np.zeros(stop - first, np.int64)
    indices = np.empty(width, np.int32)
    weights = np.empty(width, np.float32)
    end = 0
    for c in range(first, stop):
        first_example = examples.indptr[c]
        last_example = examples.indptr[c + 1]
        points = examples.indices[first_example:last_example]
        costs = examples.data[first_example:last_example]
        _solve(X, squares, points, costs, tolerance, epochs, seed, c, w)

        if end + width > indices.size:  # twice the size, and enough for one more dense row
            more = end + width
            indices = np.concatenate((indices, np.empty(more, np.int32)))
            weights = np.concatenate((weights, np.empty(more, np.float32)))

        begin = end
        for point in points:
            for e in range(X.indptr[point], X.indptr[point + 1]):
                feature = X.indices[e]
                if w[feature] != 0 and abs(w[feature]) >= prune:
                    indices[end] = feature
                    weights[end] = w[feature]
                    end += 1
                w[feature] = 0  # zero for the next classifier, and so that no feature is written twice
        sizes[c - first] = end - begin
    return sizes, indices[:end].copy(), weights[:end].copy()


@njit(cache=True, nogil=True)
def _solve(
    X: CsrArrays,
    squares: Floats,
    points: Ints,
    costs: Floats,
    tolerance: np.float32,
    epochs: int,
    seed: np.uint64,
    number: int,
    w: Floats,
) -> None:
    """Train one classifier. `w` must be zero, and holds the weights afterwards."""
    alpha = np.zeros(len(points), np.float32)
    order = np.arange(len(points))
    for epoch in range(epochs):
        shuffle(order, stream(seed, number * epochs + epoch))
        worst = np.float32(0)
        for i in order:
            begin = X.indptr[points[i]]
            end = X.indptr[points[i] + 1]
            sign = np.sign(costs[i])
            ridge = np.float32(0.5) / abs(costs[i])

            margin = np.float32(0)
            for e in range(begin, end):
                margin += X.data[e] * w[X.indices[e]]
            slope = sign * margin - np.float32(1) + ridge * alpha[i]
            if alpha[i] == 0 and slope >= 0:
                continue
            worst = max(worst, abs(slope))

            curvature = squares[points[i]] + ridge
            new_alpha = max(alpha[i] - slope / curvature, np.float32(0))
            change = new_alpha - alpha[i]
            alpha[i] += change
            for e in range(begin, end):
                w[X.indices[e]] += change * sign * X.data[e]
        if worst < tolerance:
            break


@njit(cache=True, nogil=True)
def _margins(
    X: CsrArrays,
    weights: CsrArrays,
    width: int,
    constant: bool,
    labels: Ints,
    first: int,
    stop: int,
    margins: Floats,
) -> None:
    x = np.zeros(width, np.float32)  # one point as a dense vector, in which a label's few weights find their features
    if constant:
        x[-1] = 1
    for i in range(first, stop):
        for e in range(X.indptr[i], X.indptr[i + 1]):
            x[X.indices[e]] = X.data[e]

        for place, label in enumerate(labels[i]):
            if label < 0:
                margins[i, place] = -np.inf
                continue
            total = np.float32(0)
            for e in range(weights.indptr[label], weights.indptr[label + 1]):
                total += weights.data[e] * x[weights.indices[e]]
            margins[i, place] = total

        for e in range(X.indptr[i], X.indptr[i + 1]):
            x[X.indices[e]] = 0
