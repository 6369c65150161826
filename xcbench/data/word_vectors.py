"""Vectors of tokens, learned from text alone or read from a file, for methods that do not learn their own.

Two tokens are close where they share titles more often than chance. The matrix of shifted positive pointwise mutual
information is what skip-gram with negative sampling factors implicitly (Levy and Goldberg 2014). A truncated SVD
factors it directly, deterministically and without another library. Titles are shorter than any context window, so the
context of a token is its whole title.
"""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import svds

from xcbench.errors import DataError

Floats = npt.NDArray[np.float32]

SMOOTHING = 0.75
"""Counts of contexts are raised to this power, as in word2vec: it lowers the weight of rare contexts."""
SMALL = 1000
"""Up to so many tokens, all singular vectors are computed, which takes less than a second."""


def learn_vectors(texts: sp.csr_array, dim: int, seed: int = 0) -> Floats:
    """Learn a vector per token from the tokens' co-occurrence in texts.

    Returns [V, dim] vectors of unit length; the vector of a token that shares no text with another is zero.

    Parameters
    ----------
    texts
        [n, V] a bag of tokens per row. Only the pattern counts, not the values.
    dim
        The length of a vector.
    seed
        The start of the iterative SVD of larger vocabularies.
    """
    V = int(texts.shape[1])
    P = _mutual_information(texts)
    vectors = np.zeros((V, dim), np.float32)
    rank = min(dim, V)
    if P.nnz:
        U, s = _largest_singular(P, rank, seed)

        # An SVD leaves the signs open: make the largest entry of each singular vector positive.
        largest = np.abs(U).argmax(axis=0)
        signs = np.sign(U[largest, np.arange(len(s))])
        scaled = U * signs * np.sqrt(np.maximum(s, 0))
        order = np.argsort(-s, kind="stable")
        vectors[:, : len(s)] = scaled[:, order]

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.zeros_like(vectors)
    np.divide(vectors, lengths, out=unit, where=lengths > 1e-6)
    return unit


def _largest_singular(P: sp.csr_array, rank: int, seed: int) -> tuple[Floats, npt.NDArray[Any]]:
    """Return the left singular vectors [V, rank] of the largest singular values, and these.

    Small matrices often have equal singular values, where ARPACK starts again from numbers that nobody can seed.
    """
    if P.shape[0] <= SMALL:
        U, s, _ = np.linalg.svd(P.toarray())
        return U[:, :rank].astype(np.float32), s[:rank]
    start = np.random.default_rng(seed).normal(size=P.shape[0]).astype(np.float32)
    U, s, _ = svds(P, k=min(rank, P.shape[0] - 1), v0=start)
    return U, s


def vectors_digest(path: Path) -> str:
    """Return the sha256 of a file of vectors, which identifies it whatever its name is."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from None


def read_vectors(path: Path, shape: tuple[int, int]) -> Floats:
    """Read an npy file with a row per feature, the form of the XC repository's fastText vectors.

    Raises `DataError` where the file does not hold floats of the expected shape.
    """
    try:
        # Mapped, since a short file may claim any size, but only what is there can be mapped.
        vectors: npt.NDArray[np.generic] = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy parses the header as Python and fails in many ways
        message = " ".join(str(error).split())
        raise DataError(f"cannot be read as an npy array ({message})", path) from None

    if vectors.shape != shape or not np.issubdtype(vectors.dtype, np.floating):
        raise DataError(f"expected floats of shape {shape}, got {vectors.dtype} {vectors.shape}", path)
    return np.array(vectors, np.float32)


def read_word_vectors(path: Path, vocabulary: Sequence[str], dim: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Read the vectors of some words from a text file: a word per line, then its numbers, separated by blanks.

    That is GloVe's form and word2vec's text form, whose first line has two counts. A word may contain blanks itself,
    as some of GloVe's do. Returns the places of the words that were found in `vocabulary`, and their vectors.

    Parameters
    ----------
    path
        The file, as UTF-8. Only lines of words in the vocabulary are parsed.
    vocabulary
        The words.
    dim
        The length of a vector.
    """
    place = {word: number for number, word in enumerate(vocabulary)}
    found: dict[int, Floats] = {}
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                parts = line.rstrip().rsplit(b" ", dim)
                is_header = number == 1 and len(line.split()) == 2
                if is_header:
                    continue
                if len(parts) != dim + 1:
                    raise DataError(f"expected a word and {dim} numbers, got {len(parts) - 1} numbers", path, number)
                word = place.get(parts[0].decode("utf-8", "replace"))
                if word is not None and word not in found:
                    found[word] = _numbers(parts[1:], path, number)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from None

    if not found:
        raise DataError(f"holds a vector of none of the {len(place)} words of the data", path)
    places = np.fromiter(found, np.int64, len(found))
    return places, np.stack(list(found.values()))


def _numbers(parts: Sequence[bytes], path: Path, line: int) -> Floats:
    try:
        vector = np.array([float(part) for part in parts], np.float32)
    except ValueError as error:
        raise DataError(f"expected {len(parts)} numbers after the word: {error}", path, line) from None
    if not np.isfinite(vector).all():
        raise DataError("expected finite numbers", path, line)
    return vector


def _mutual_information(texts: sp.csr_array) -> sp.csr_array:
    """Return max(0, log p(t, c) / (p(t) p(c))) for all pairs of different tokens that share a text."""
    V = texts.shape[1]
    ones = np.ones(texts.nnz, np.float32)
    entries = (ones, texts.indices, texts.indptr)
    bags = sp.csr_array(entries, shape=texts.shape)
    pairs = sp.coo_array(bags.T @ bags)

    is_different = pairs.row != pairs.col
    tokens = pairs.row[is_different]
    contexts = pairs.col[is_different]
    counts = pairs.data[is_different].astype(np.float64)

    token_counts = np.bincount(tokens, counts, minlength=V)
    context_counts = token_counts**SMOOTHING
    ratio = counts * context_counts.sum() / (token_counts[tokens] * context_counts[contexts])
    information = np.log(np.maximum(ratio, 1))
    values = information.astype(np.float32)
    return sp.csr_array((values, (tokens, contexts)), shape=(V, V))
