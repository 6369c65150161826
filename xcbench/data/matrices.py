"""Small operations on the matrices of a dataset that several rooms need: patterns, binary targets, unit rows."""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import POSITIVE

Floats = npt.NDArray[np.float32]

_UNIT_TOLERANCE = 1e-6
"""Rows whose length is this close to 1 are left unchanged, so that writing and reading a dataset changes nothing."""


def pattern(Y: sp.csr_array) -> sp.csr_array:
    """Return the sparsity pattern of a matrix: 1 at every entry that is not zero.

    Repeated entries become one. `Y` itself is
    not changed, but the result may share its index arrays.
    """
    if not Y.has_canonical_format or not Y.data.all():
        Y = Y.copy()
        Y.sum_duplicates()
        Y.eliminate_zeros()

    ones = np.ones(Y.nnz, np.float32)
    return sp.csr_array((ones, Y.indices, Y.indptr), shape=Y.shape)


def binary_targets(Y: sp.csr_array) -> sp.csr_array:
    """Return targets of 1 where a soft target is at least one half, for algorithms that know no soft targets.

    The other entries are gone. Whoever lists negatives must not take them for some: see `weak_targets`. Repeated
    entries become one.
    """
    if not Y.has_canonical_format:
        Y = Y.copy()
        Y.sum_duplicates()
    positive = Y.data >= POSITIVE
    positives_before_entry = np.concatenate(([0], np.cumsum(positive)))
    indptr = positives_before_entry[Y.indptr]

    ones = np.ones(indptr[-1], np.float32)
    return sp.csr_array((ones, Y.indices[positive], indptr), shape=Y.shape)


def weak_targets(Y: sp.csr_array) -> sp.csr_array:
    """Return a 1 where a soft target is below one half: such a label is neither a positive nor a negative."""
    is_weak = (Y.data > 0) & (Y.data < POSITIVE)
    weak = sp.csr_array((is_weak.astype(np.float32), Y.indices, Y.indptr), shape=Y.shape, copy=True)
    weak.eliminate_zeros()
    return weak


def with_constant(X: sp.csr_array, value: float = 1.0) -> sp.csr_array:
    """Append a column that has the same value in every row: its weight is the bias of a linear classifier."""
    rows = X.shape[0]
    constant = np.full((rows, 1), value, np.float32)
    widened: sp.csr_array = sp.hstack(
        [X, sp.csr_array(constant)],
        format="csr",
        dtype=np.float32,
    )
    return widened


def unit_vectors(vectors: Floats) -> Floats:
    """Return the rows of a dense matrix divided by their Euclidean length; a row of zeros stays zero."""
    squared_lengths = np.einsum("ij,ij->i", vectors, vectors)
    lengths = np.sqrt(squared_lengths)[:, None]

    units = np.zeros(vectors.shape, np.float32)
    np.divide(vectors, lengths, out=units, where=lengths > 0)
    return units


def unit_rows(matrix: sp.csr_array) -> sp.csr_array:
    """Divide the rows of a sparse matrix by their Euclidean length, in place; an empty row stays empty.

    Returns the same matrix, so that calls can be nested.
    """
    _normalise_rows(matrix.indptr, matrix.data)
    return matrix


@numba.njit(cache=True)
def _normalise_rows(indptr: Any, data: Any) -> None:
    for row in range(len(indptr) - 1):
        squares = 0.0
        for entry in range(indptr[row], indptr[row + 1]):
            squares += np.float64(data[entry]) ** 2

        length = np.sqrt(squares)
        if squares > 0 and abs(length - 1) > _UNIT_TOLERANCE:
            for entry in range(indptr[row], indptr[row + 1]):
                data[entry] = data[entry] / length
