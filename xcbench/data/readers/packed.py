"""Matrices of `scipy.sparse.save_npz`. As in scipy, ids may be unsorted, and repeated ids are added up."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xcbench.data.npz import csr_from_arrays, read_npz
from xcbench.data.readers.archive import unpacked_limit
from xcbench.data.sparse_kernels import MAX_ID
from xcbench.errors import DataError, InputError


def read_packed_matrix(path: Path) -> sp.csr_array:
    """Read a csr matrix as float32."""
    matrix = _load(path)
    if max(matrix.shape) > MAX_ID:
        raise DataError(
            f"the matrix is {matrix.shape[0]:,} x {matrix.shape[1]:,}; at most {MAX_ID:,} are possible", path
        )

    with np.errstate(over="ignore"):
        data = matrix.data.astype(np.float32)
    if not np.isfinite(data).all():
        raise DataError("expected finite numbers that fit float32", path)

    width = np.int32 if matrix.nnz <= MAX_ID else np.int64
    indices = matrix.indices.astype(width)
    indptr = matrix.indptr.astype(width)
    return sp.csr_array((data, indices, indptr), shape=matrix.shape)


def _load(path: Path) -> sp.csr_array:
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > unpacked_limit(path.stat().st_size):
            raise DataError("refused: unpacks to more than a matrix can be", path)
        return csr_from_arrays(read_npz(path), path)
    except (InputError, OSError):
        raise
    except Exception as error:  # numpy reads an array's header as Python and fails in many ways on a damaged one
        message = " ".join(str(error).split())
        raise DataError(f"not a matrix saved by scipy.sparse.save_npz ({message})", path) from None
