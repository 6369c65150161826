"""Small random datasets for the tests of storing and writing."""

import numpy as np
import scipy.sparse as sp

from xcbench.data.dataset import Dataset, Propensity, Split, TextColumn
from xcbench.data.matrices import unit_rows


def random_csr(rng, rows, columns, density, soft=False):
    matrix = sp.random_array(
        (rows, columns),
        density=density,
        format="csr",
        dtype=np.float32,
        rng=rng,
    )
    matrix.data[:] = 1
    if soft:
        matrix.data[:] = rng.random(matrix.nnz) + 0.1
    matrix.indices = matrix.indices.astype(np.int32)
    matrix.indptr = matrix.indptr.astype(np.int32)
    matrix.sort_indices()
    return matrix


def random_dataset(
    seed=0,
    train=40,
    test=15,
    labels=12,
    features=30,
    soft=False,
    titles=True,
):
    """Includes empty rows, awkward titles and a label without points."""
    rng = np.random.default_rng(seed)
    words = np.array(["red", "grün", "苹果", "tree of life", "", " spaced ", "a:b,c"])

    def column(count):
        if not titles:
            return None
        return TextColumn.of([" ".join(rng.choice(words, 3)) for _ in range(count)])

    def split(count):
        pairs = rng.integers(0, [count, labels], (5, 2))
        X = unit_rows(random_csr(rng, count, features, 0.1, soft=True))
        Y = random_csr(rng, count, labels, 0.1, soft)
        return Split(X, Y, column(count), np.unique(pairs, axis=0))

    Z = unit_rows(random_csr(rng, labels, features, 0.1, soft=True))
    return Dataset("toy", split(train), split(test), Z, column(labels), Propensity(0.6, 2.6))
