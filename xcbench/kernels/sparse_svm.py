"""Linear SVMs on sparse points, each on its own few examples: what ranks the labels of a shortlist anew.

The solver is that of `svm`, dual coordinate descent for the squared hinge loss; a step costs a point's words only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.errors import InputError
from xcbench.kernels.csr import RowBlock, Rows, rows_of, stacked
from xcbench.kernels.parallel import Floats
from xcbench.kernels.random import seed_word, stream
from xcbench.kernels.svm import shuffle
from xcbench.kernels.threads import in_blocks, rows_in_block

CLASSIFIERS_AT_A_TIME = 64


def fit_sparse_classifiers(
    X: sp.csr_array, examples: sp.csr_array, seed: int, *, tolerance: float = 0.1, epochs: int = 100, prune: float = 0.0
) -> sp.csr_array:
    """Minimise |w|^2 / 2 + sum_i |c_i| max(0, 1 - sign(c_i) <w, x_i>)^2 for each row c of `examples`; 0 is no example.

    Weights nearer to zero than `prune` are dropped. The order in which a classifier meets its examples is drawn from
    the seed and its number alone.
    """
    count = examples.shape[0]
    blocks: dict[int, RowBlock] = {}
    points, rows = rows_of(X), rows_of(examples)
    squares = _squares(points.indptr, points.data)

    def work(block: slice) -> None:
        blocks[block.start] = _descend(
            *points, squares, X.shape[1], *rows, block.start, block.stop,
            np.float32(tolerance), epochs, np.float32(prune), seed_word(seed),
        )  # fmt: skip

    in_blocks(count, CLASSIFIERS_AT_A_TIME, work)
    return stacked([blocks[start] for start in sorted(blocks)], X.shape[1])


@dataclass(frozen=True)
class LabelWeights:
    """Rows of weights as the kernel takes them, converted once: one point must not cost a pass over all labels."""

    rows: Rows
    width: int

    @classmethod
    def of(cls, W: sp.csr_array) -> LabelWeights:
        return cls(rows_of(W), W.shape[1])

    def margins(self, X: sp.csr_array, labels: npt.NDArray[np.int32], constant: bool = False) -> Floats:
        """<x, w_l> for the labels listed for each point; -inf where there is none (-1).

        With `constant` each point has a one behind its own features, which the last weight belongs to.
        """
        if X.shape != (len(labels), self.width - constant):
            expected = f"{len(labels)} lists and {self.width - constant} weights a label"
            raise InputError(f"{expected} do not fit points of shape {X.shape}")
        out = np.empty(labels.shape, np.float32)
        points = rows_of(X)

        def work(block: slice) -> None:
            _margins(*points, *self.rows, self.width, constant, labels, block.start, block.stop, out)

        in_blocks(len(labels), rows_in_block(len(labels), 64), work)
        return out


@njit(cache=True)
def _squares(starts: npt.NDArray[np.int64], values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """<x, x> of every row."""
    squares = np.zeros(len(starts) - 1, np.float32)
    for i in range(len(squares)):
        for e in range(starts[i], starts[i + 1]):
            squares[i] += values[e] * values[e]
    return squares


@njit(cache=True, nogil=True)
def _descend(
    starts: npt.NDArray[np.int64],
    words: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    squares: npt.NDArray[np.float32],
    width: int,
    example_starts: npt.NDArray[np.int64],
    example_points: npt.NDArray[np.int32],
    example_costs: npt.NDArray[np.float32],
    first: int,
    stop: int,
    tolerance: np.float32,
    epochs: int,
    prune: np.float32,
    seed: np.uint64,
) -> RowBlock:
    w, sizes = np.zeros(width, np.float32), np.zeros(stop - first, np.int64)
    ids, kept = np.empty(width, np.int32), np.empty(width, np.float32)
    held = 0
    for c in range(first, stop):
        points = example_points[example_starts[c] : example_starts[c + 1]]
        costs = example_costs[example_starts[c] : example_starts[c + 1]]
        _solve(starts, words, values, squares, points, costs, tolerance, epochs, seed, c, w)
        if held + width > ids.size:  # twice the room, and at least for one more dense row
            ids = np.concatenate((ids, np.empty(held + width, np.int32)))
            kept = np.concatenate((kept, np.empty(held + width, np.float32)))
        begin = held
        for point in points:
            for e in range(starts[point], starts[point + 1]):
                word = words[e]
                if w[word] != 0 and abs(w[word]) >= prune:
                    ids[held], kept[held] = word, w[word]
                    held += 1
                w[word] = 0  # for the next classifier, and lest this word be written twice
        sizes[c - first] = held - begin
    return sizes, ids[:held].copy(), kept[:held].copy()


@njit(cache=True, nogil=True)
def _solve(
    starts: npt.NDArray[np.int64],
    words: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    squares: npt.NDArray[np.float32],
    points: npt.NDArray[np.int32],
    costs: npt.NDArray[np.float32],
    tolerance: np.float32,
    epochs: int,
    seed: np.uint64,
    number: int,
    w: npt.NDArray[np.float32],
) -> None:
    """Leaves the weights in `w`, which comes as zeros."""
    alpha, order = np.zeros(len(points), np.float32), np.arange(len(points))
    for epoch in range(epochs):
        shuffle(order, stream(seed, number * epochs + epoch))
        worst = np.float32(0)
        for i in order:
            begin, end = starts[points[i]], starts[points[i] + 1]
            sign, ridge = np.sign(costs[i]), np.float32(0.5) / abs(costs[i])
            margin = np.float32(0)
            for e in range(begin, end):
                margin += values[e] * w[words[e]]
            slope = sign * margin - np.float32(1) + ridge * alpha[i]
            if alpha[i] == 0 and slope >= 0:
                continue
            worst = max(worst, abs(slope))
            moved = max(alpha[i] - slope / (squares[points[i]] + ridge), np.float32(0)) - alpha[i]
            alpha[i] += moved
            for e in range(begin, end):
                w[words[e]] += moved * sign * values[e]
        if worst < tolerance:
            break


@njit(cache=True, nogil=True)
def _margins(
    starts: npt.NDArray[np.int64],
    words: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    weight_starts: npt.NDArray[np.int64],
    weight_words: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    width: int,
    constant: bool,
    labels: npt.NDArray[np.int32],
    first: int,
    stop: int,
    out: npt.NDArray[np.float32],
) -> None:
    x = np.zeros(width, np.float32)  # one point spread out, so that a label's few weights find its words at once
    if constant:
        x[-1] = 1
    for i in range(first, stop):
        for e in range(starts[i], starts[i + 1]):
            x[words[e]] = values[e]
        for place, label in enumerate(labels[i]):
            total = np.float32(0 if label >= 0 else -np.inf)
            if label >= 0:
                for e in range(weight_starts[label], weight_starts[label + 1]):
                    total += weights[e] * x[weight_words[e]]
            out[i, place] = total
        for e in range(starts[i], starts[i + 1]):
            x[words[e]] = 0
