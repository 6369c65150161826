"""The best entries of a product of two sparse matrices, row by row, without ever forming the product."""

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit, prange

from xcbench.data import TopK
from xcbench.kernels.selection import key_of, write_best


def best_of_product(A: sp.csr_array, B: sp.csr_array, k: int) -> TopK:
    """The k best entries of each row of A B, among those that some term of the sum touches.

    With A = X and B = Z^T these are the nearest labels by text; with neighbours' weights as A and their targets as B,
    the labels they vote for. Memory beyond the result is one row of the product a thread.
    """
    if A.shape[1] != B.shape[0]:
        raise ValueError(f"shapes {A.shape} and {B.shape} do not fit together")
    labels = np.empty((A.shape[0], k), np.int32)
    scores = np.empty((A.shape[0], k), np.float32)
    # More pieces than threads, since rows differ in length; a piece pays for one row of zeros.
    pieces = max(1, min(A.shape[0], 8 * numba.get_num_threads()))
    _multiply(*_parts(A), *_parts(B), int(B.shape[1]), pieces, labels, scores)
    return TopK(labels, scores)


def _parts(M: sp.csr_array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    return (
        M.indptr.astype(np.int64, copy=False),
        M.indices.astype(np.int32, copy=False),
        M.data.astype(np.float32, copy=False),
    )


@njit(cache=True, parallel=True)
def _multiply(
    a_start: npt.NDArray[np.int64],
    a_column: npt.NDArray[np.int32],
    a_value: npt.NDArray[np.float32],
    b_start: npt.NDArray[np.int64],
    b_column: npt.NDArray[np.int32],
    b_value: npt.NDArray[np.float32],
    columns: int,
    pieces: int,
    labels: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
) -> None:
    rows = len(a_start) - 1
    for piece in prange(pieces):
        total = np.zeros(columns, np.float32)
        seen = np.zeros(columns, np.bool_)
        touched = np.empty(columns, np.int32)
        keys = np.empty(columns, np.uint64)
        for i in range(piece * rows // pieces, (piece + 1) * rows // pieces):
            count = 0
            for a in range(a_start[i], a_start[i + 1]):
                weight, j = a_value[a], a_column[a]
                for b in range(b_start[j], b_start[j + 1]):
                    column = b_column[b]
                    if not seen[column]:
                        seen[column] = True
                        touched[count] = column
                        count += 1
                    total[column] += weight * b_value[b]
            for place in range(count):
                column = touched[place]
                keys[place] = key_of(total[column], column)
                total[column] = np.float32(0.0)
                seen[column] = False
            write_best(keys, count, labels[i], scores[i])
