"""Vectors of tokens learnt from text alone, or read from a file: what a method gets that must not learn its own.

Two tokens are close where they share titles more often than chance. The matrix of shifted positive pointwise mutual
information is what skip-gram with negative sampling factors implicitly (Levy and Goldberg 2014); a truncated SVD
does it directly, without another library and without chance. Titles are shorter than any window, so a title is one.
"""

from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import svds

from xcbench.errors import DataError

Floats = npt.NDArray[np.float32]

SMOOTHING = 0.75
"""Counts of contexts are raised to this power, as word2vec does: rare contexts say less than they seem to."""


def learn_vectors(texts: sp.csr_array, dim: int, seed: int = 0) -> Floats:
    """[V, dim] from a bag of tokens a row; rows of unit length, zero for tokens that share no text with another."""
    V = int(texts.shape[1])
    P = _mutual_information(texts)
    vectors = np.zeros((V, dim), np.float32)
    rank = min(dim, V - 1)
    if rank > 0 and P.nnz:
        start = np.random.default_rng(seed).normal(size=V).astype(np.float32)
        U, s, _ = svds(P, k=rank, v0=start)
        order = np.argsort(-s, kind="stable")
        signs = np.sign(U[np.abs(U).argmax(axis=0), np.arange(rank)])  # an SVD leaves them open
        vectors[:, :rank] = (U * signs * np.sqrt(np.maximum(s, 0)))[:, order]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 1e-6)
    return unit


def vectors_digest(path: Path) -> str:
    """What tells a file of vectors from another of the same name."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from None


def read_vectors(path: Path, shape: tuple[int, int]) -> Floats:
    """An npy file with a row per feature, as the XC repository has them for its fastText vectors."""
    try:
        # Mapped, since a short file may claim any size, and what is mapped must be there.
        vectors: npt.NDArray[np.generic] = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy parses the header as Python and fails in many ways
        raise DataError(f"cannot be read as an npy array ({' '.join(str(error).split())})", path) from None
    if vectors.shape != shape or not np.issubdtype(vectors.dtype, np.floating):
        raise DataError(f"expected floats of shape {shape}, got {vectors.dtype} {vectors.shape}", path)
    return np.array(vectors, np.float32)


def _mutual_information(texts: sp.csr_array) -> sp.csr_array:
    """max(0, log p(t, c) / (p(t) p(c))) over pairs of different tokens in one text."""
    bags = sp.csr_array((np.ones(texts.nnz, np.float32), texts.indices, texts.indptr), shape=texts.shape)
    pairs = sp.coo_array(bags.T @ bags)
    apart = pairs.row != pairs.col
    rows, columns, counts = pairs.row[apart], pairs.col[apart], pairs.data[apart].astype(np.float64)
    V = texts.shape[1]
    of_token = np.bincount(rows, counts, minlength=V)
    of_context = of_token**SMOOTHING
    ratio = counts * of_context.sum() / (of_token[rows] * of_context[columns])
    values = np.log(np.maximum(ratio, 1)).astype(np.float32)
    return sp.csr_array((values, (rows, columns)), shape=(V, V))
