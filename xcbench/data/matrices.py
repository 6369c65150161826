"""Small operations on the matrices of a dataset that every room needs: patterns, whole targets, unit rows."""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

_UNIT_ENOUGH = 1e-6
"""Rows this near to unit length are left as they are, so that writing and reading a dataset changes nothing."""


def pattern(Y: sp.csr_array) -> sp.csr_array:
    """Ones where Y is not zero, each entry once: soft targets count as whole ones."""
    if not Y.has_canonical_format or not Y.data.all():
        Y = Y.copy()
        Y.sum_duplicates()
        Y.eliminate_zeros()
    return sp.csr_array((np.ones(Y.nnz, np.float32), Y.indices, Y.indptr), shape=Y.shape)


def binary_targets(Y: sp.csr_array) -> sp.csr_array:
    """Ones where a target is at least one half: for what knows no soft targets."""
    whole = Y.data >= 0.5
    kept = np.concatenate(([0], np.cumsum(whole)))[Y.indptr]
    return sp.csr_array((np.ones(kept[-1], np.float32), Y.indices[whole], kept), shape=Y.shape)


def with_constant(X: sp.csr_array, value: float = 1.0) -> sp.csr_array:
    """One more column, the same in every row: its weight is a linear classifier's bias."""
    constant = sp.csr_array(np.full((X.shape[0], 1), value, np.float32))
    widened: sp.csr_array = sp.hstack([X, constant], format="csr", dtype=np.float32)
    return widened


def unit_vectors(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Rows divided by their length; a row of zeros stays one."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    units: npt.NDArray[np.float32] = np.zeros(vectors.shape, np.float32)
    np.divide(vectors, lengths, out=units, where=lengths > 0)
    return units


def unit_rows(matrix: sp.csr_array) -> sp.csr_array:
    """Give every row that is not empty the length 1, in place."""
    _normalise(matrix.indptr, matrix.data)
    return matrix


@numba.njit(cache=True)
def _normalise(indptr: Any, data: Any) -> None:
    for row in range(len(indptr) - 1):
        squares = 0.0
        for entry in range(indptr[row], indptr[row + 1]):
            squares += np.float64(data[entry]) ** 2
        length = np.sqrt(squares)
        if squares > 0 and abs(length - 1) > _UNIT_ENOUGH:
            for entry in range(indptr[row], indptr[row + 1]):
                data[entry] = data[entry] / length
