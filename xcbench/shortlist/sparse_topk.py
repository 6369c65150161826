"""The best entries of each row of a product of two sparse matrices. The product itself is never stored."""

import numba
import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from xcbench.data import TopK
from xcbench.kernels.arrays import Floats, Ints
from xcbench.kernels.csr import CsrArrays, arrays_of
from xcbench.kernels.selection import key_of, write_best
from xcbench.shortlist.blocks import empty_topk


def best_of_product(A: sp.csr_array, B: sp.csr_array, k: int) -> TopK:
    """Return the k largest entries of each row of A B.

    With A = X and B = Z^T these are the nearest labels by text. With neighbours' weights as A and their labels as B,
    they are the labels with the most votes. Beyond the result, memory is one row of the product per thread.

    Parameters
    ----------
    A
        [n, m] one row per point.
    B
        [m, L] one column per label.
    k
        The number of labels per point. Only labels with at least one stored term count; the rest is padding.
    """
    if A.shape[1] != B.shape[0]:
        raise ValueError(f"shapes {A.shape} and {B.shape} do not fit together")
    result = empty_topk(A.shape[0], k)
    # More pieces than threads, since rows differ in length. Each piece needs memory for one row.
    pieces = max(1, min(A.shape[0], 8 * numba.get_num_threads()))
    _multiply(
        arrays_of(A),
        arrays_of(B),
        int(B.shape[1]),
        pieces,
        result.indices,
        result.scores,
    )
    return result


@njit(cache=True, parallel=True)
def _multiply(
    A: CsrArrays,
    B: CsrArrays,
    columns: int,
    pieces: int,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    a_indptr, a_indices, a_data = A
    b_indptr, b_indices, b_data = B
    rows = len(a_indptr) - 1
    for piece in prange(pieces):
        total = np.zeros(columns, np.float32)
        is_touched = np.zeros(columns, np.bool_)
        touched = np.empty(columns, np.int32)
        keys = np.empty(columns, np.uint64)
        first = piece * rows // pieces
        last = (piece + 1) * rows // pieces
        for i in range(first, last):
            count = 0
            for a in range(a_indptr[i], a_indptr[i + 1]):
                weight = a_data[a]
                inner = a_indices[a]
                for b in range(b_indptr[inner], b_indptr[inner + 1]):
                    column = b_indices[b]
                    if not is_touched[column]:
                        is_touched[column] = True
                        touched[count] = column
                        count += 1
                    total[column] += weight * b_data[b]

            for place in range(count):
                column = touched[place]
                keys[place] = key_of(total[column], column)
                total[column] = np.float32(0.0)
                is_touched[column] = False
            write_best(keys, count, out_labels[i], out_scores[i])
