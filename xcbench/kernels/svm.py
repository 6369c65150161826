"""Many linear SVMs at once, each on its own few points: what trains the nodes of a label tree.

Dual coordinate descent (Hsieh et al. 2008) for the squared hinge loss: no learning rate, and a classifier is done when
none of its points asks for more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.kernels.csr import dot
from xcbench.kernels.parallel import Floats
from xcbench.kernels.random import STEP, below, scramble, stream
from xcbench.kernels.threads import in_blocks

CLASSIFIERS_AT_A_TIME = 16


class Examples(NamedTuple):
    """Classifier c tells points positive[c] from the others of points[group[c]]; rows ascending, no row twice."""

    group: npt.NDArray[np.int32]  # [classifiers]
    points: sp.csr_array  # [groups, N]
    positive: sp.csr_array  # [classifiers, N]; a row is a part of its group's


def fit_classifiers(
    X: Floats, examples: Examples, C: float, seed: int, tolerance: float = 0.1, epochs: int = 50
) -> Floats:
    """Minimise |w|^2 / 2 + C sum max(0, 1 - y <w, x>)^2 for each classifier. Rows of X carry their own bias column.

    The order in which a classifier meets its points is drawn from the seed and its number alone.
    """
    W = np.zeros((len(examples.group), X.shape[1]), np.float32)
    squares = np.einsum("ij,ij->i", X, X)
    points, positive = (
        (m.indptr.astype(np.int64, copy=False), m.indices.astype(np.int32, copy=False))
        for m in (examples.points, examples.positive)
    )

    def work(block: slice) -> None:
        _descend(
            X, squares, examples.group, *points, *positive, block.start, block.stop,
            np.float32(C), np.float32(tolerance), epochs, np.uint64(seed), W,
        )  # fmt: skip

    in_blocks(len(W), CLASSIFIERS_AT_A_TIME if len(W) > 4 * CLASSIFIERS_AT_A_TIME else 1, work)
    return W


@njit(cache=True)
def _signs(points: npt.NDArray[np.int32], positive: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    signs = np.full(len(points), -1, np.float32)
    at = 0
    for i, point in enumerate(points):
        if at < len(positive) and positive[at] == point:
            signs[i] = 1
            at += 1
    return signs


@njit(cache=True)
def shuffle(order: npt.NDArray[np.int64], words: np.uint64) -> None:
    for i in range(len(order) - 1, 0, -1):
        j = below(scramble(words + np.uint64(i) * STEP), i + 1)
        order[i], order[j] = order[j], order[i]


@njit(cache=True, nogil=True)
def _descend(
    X: npt.NDArray[np.float32],
    squares: npt.NDArray[np.float32],
    group: npt.NDArray[np.int32],
    starts: npt.NDArray[np.int64],
    points_of: npt.NDArray[np.int32],
    positive_starts: npt.NDArray[np.int64],
    positive_of: npt.NDArray[np.int32],
    first: int,
    stop: int,
    C: np.float32,
    tolerance: np.float32,
    epochs: int,
    seed: np.uint64,
    W: npt.NDArray[np.float32],
) -> None:
    ridge = np.float32(0.5) / C
    for c in range(first, stop):
        points = points_of[starts[group[c]] : starts[group[c] + 1]]
        signs = _signs(points, positive_of[positive_starts[c] : positive_starts[c + 1]])
        w, alpha, order = W[c], np.zeros(len(points), np.float32), np.arange(len(points))
        for epoch in range(epochs):
            shuffle(order, stream(seed, c * epochs + epoch))
            worst = np.float32(0)
            for i in order:
                x = X[points[i]]
                slope = signs[i] * dot(x, w) - 1 + ridge * alpha[i]
                if alpha[i] == 0 and slope >= 0:
                    continue
                worst = max(worst, abs(slope))
                moved = max(alpha[i] - slope / (squares[points[i]] + ridge), np.float32(0)) - alpha[i]
                alpha[i] += moved
                step = moved * signs[i]
                for d in range(len(w)):
                    w[d] += step * x[d]
            if worst < tolerance:
                break
