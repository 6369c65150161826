"""Predictions as data: the top k labels of each point, which is all that an evaluation ever needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.npz import csr_of, read_npz
from xcbench.errors import DataError, InputError
from xcbench.files import atomic_file

LAST_ID = np.iinfo(np.int32).max  # stands for an unused place while sorting
MOST_CELLS = 1 << 31


@dataclass(frozen=True)
class TopK:
    """The k best labels of n points, best first; unused places hold label -1 and score -inf.

    Ties are broken by the smaller label id, here and wherever scores are cut to a top k. The constructor trusts its
    caller in this; `TopK.of` sorts what comes unsorted.
    """

    indices: npt.NDArray[np.int32]  # [n, k]
    scores: npt.NDArray[np.float32]  # [n, k]

    def __post_init__(self) -> None:
        if self.indices.ndim != 2 or self.indices.shape != self.scores.shape:
            raise ValueError(
                f"TopK needs two [n, k] arrays of one shape, got {self.indices.shape} and {self.scores.shape}"
            )
        if self.indices.dtype != np.int32 or self.scores.dtype != np.float32:
            raise ValueError(f"TopK holds int32 and float32, got {self.indices.dtype} and {self.scores.dtype}")

    def __len__(self) -> int:
        return int(self.indices.shape[0])

    @property
    def k(self) -> int:
        return int(self.indices.shape[1])

    @classmethod
    def of(cls, indices: npt.NDArray[np.integer], scores: npt.NDArray[np.floating]) -> TopK:
        """Labels and scores in any order, -1 for unused places. A nan, or a label twice in a row, is refused.

        Scores are ranked in the precision they come in, then kept as float32.
        """
        used = indices >= 0
        ids = np.where(used, indices, LAST_ID).astype(np.int32)
        scores = np.where(used, scores, -np.inf)
        _refuse_rows(np.isnan(scores), "has a score that is not a number")
        by_label = np.sort(ids, axis=1)
        _refuse_rows((by_label[:, 1:] == by_label[:, :-1]) & (by_label[:, 1:] < LAST_ID), "lists a label twice")
        order = np.lexsort((ids, -scores), axis=1)
        ids = np.take_along_axis(ids, order, axis=1)
        ids[ids == LAST_ID] = -1
        return cls(ids, _float32(np.take_along_axis(scores, order, axis=1)))

    @classmethod
    def from_csr(cls, scores: sp.csr_array, k: int | None = None) -> TopK:
        """The k best stored entries of each row (all of them without k); a stored zero is a prediction like any."""
        scores = sp.csr_array(scores)
        if not scores.has_canonical_format:
            scores = scores.copy()
            scores.sum_duplicates()
        if (bad := np.isnan(scores.data)).any():
            row = np.searchsorted(scores.indptr, bad.argmax(), side="right") - 1
            raise InputError(f"point {row} has a score that is not a number")
        longest = int(np.diff(scores.indptr).max(initial=0))
        k = longest if k is None else min(k, longest)
        if scores.shape[1] > LAST_ID or scores.shape[0] * k > MOST_CELLS:
            raise InputError(f"{scores.shape} scores, up to {k} a point, are too many to rank; name a k")
        indptr, indices = scores.indptr.astype(np.int64), scores.indices.astype(np.int32)
        return cls(*_rank_rows(indptr, indices, scores.data.astype(np.float64), k))

    @classmethod
    def load(cls, path: str | Path, shape: tuple[int, int] | None = None, k: int | None = None) -> TopK:
        """Read an npz: a csr of scores (`scipy.sparse.save_npz`), or arrays `indices` and `scores` [n, k].

        `shape` is (points, labels) as the caller expects them; `k` cuts what is kept.
        """
        path = Path(path)
        arrays = read_npz(path)
        try:
            if "indptr" in arrays:
                matrix = csr_of(arrays, path)
                if shape is not None and matrix.shape != shape:
                    raise DataError(f"expected a {shape[0]} x {shape[1]} matrix of scores, got {matrix.shape}", path)
                return cls.from_csr(matrix, k)
            predictions = cls._of_arrays(arrays, path, shape)
            return predictions if k is None else predictions.cut(k)
        except DataError:
            raise  # it names the file already
        except InputError as error:
            raise DataError(str(error), path) from None

    @classmethod
    def _of_arrays(cls, arrays: dict[str, npt.NDArray[Any]], path: Path, shape: tuple[int, int] | None) -> TopK:
        if not {"indices", "scores"} <= arrays.keys():
            held = ", ".join(sorted(arrays)) or "no array"
            raise DataError(
                f"expected a csr matrix (scipy.sparse.save_npz) or arrays 'indices' and 'scores', got {held}", path
            )
        indices, scores = arrays["indices"], arrays["scores"]
        if indices.ndim != 2 or indices.shape != scores.shape:
            raise DataError(
                f"expected 'indices' and 'scores' of one shape [n, k], got {indices.shape} and {scores.shape}", path
            )
        if indices.dtype.kind not in "iu" or scores.dtype.kind not in "biuf":
            raise DataError(f"expected integers and numbers, got {indices.dtype} and {scores.dtype}", path)
        points, labels = shape or (len(indices), LAST_ID)
        if len(indices) != points:
            raise DataError(f"expected predictions for {points} points, got {len(indices)}", path)
        if indices.size and (indices.min() < -1 or indices.max() >= labels):
            found = indices.min() if indices.min() < -1 else indices.max()
            raise DataError(f"expected label ids from 0 to {labels - 1} (-1: unused place), got {found}", path)
        if "ranked" in arrays:
            return cls(indices.astype(np.int32, copy=False), scores.astype(np.float32, copy=False))
        return cls.of(indices.astype(np.int64, copy=False), scores.astype(np.promote_types(scores.dtype, np.float32)))

    def save(self, path: str | Path) -> None:
        """Write an npz (`indices`, `scores`) that `load` and any numpy program can read."""
        with atomic_file(Path(path)) as part, part.open("wb") as stream:
            # `ranked` tells `load` to keep the order: scores ranked as float64 may have become ties as float32.
            np.savez(stream, indices=self.indices, scores=self.scores, ranked=np.True_)

    @classmethod
    def concatenate(cls, parts: Sequence[TopK]) -> TopK:
        """The points of all parts, in order; shorter lists get unused places."""
        k = max(part.k for part in parts)
        padded = [part.padded(k) for part in parts]
        return cls(np.concatenate([p.indices for p in padded]), np.concatenate([p.scores for p in padded]))

    def padded(self, k: int) -> TopK:
        """The same predictions in k >= self.k columns."""
        wider = ((0, 0), (0, k - self.k))
        indices = np.pad(self.indices, wider, constant_values=-1)
        return TopK(indices, np.pad(self.scores, wider, constant_values=-np.inf))

    def cut(self, k: int) -> TopK:
        """The first k columns."""
        return TopK(np.ascontiguousarray(self.indices[:, :k]), np.ascontiguousarray(self.scores[:, :k]))

    def rows(self, selected: slice | npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> TopK:
        """The predictions of some points."""
        return TopK(self.indices[selected], self.scores[selected])

    def to_csr(self, label_count: int) -> sp.csr_array:
        """Scores as a sparse n x L matrix (explicit zeros kept), for code that thinks in matrices."""
        used = self.indices >= 0
        indptr = np.concatenate(([0], np.cumsum(used.sum(axis=1))))
        matrix = sp.csr_array((self.scores[used], self.indices[used], indptr), shape=(len(self), label_count))
        matrix.sort_indices()
        return matrix


def _refuse_rows(bad: npt.NDArray[np.bool_], why: str) -> None:
    if bad.any():
        raise InputError(f"point {bad.any(axis=1).argmax()} {why}")


def _float32(scores: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


@numba.njit(cache=True, parallel=True)
def _rank_rows(
    indptr: npt.NDArray[np.int64], indices: npt.NDArray[np.int32], data: npt.NDArray[np.float64], k: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    n = len(indptr) - 1
    labels = np.full((n, k), -1, np.int32)
    scores = np.full((n, k), -np.inf, np.float32)
    for i in numba.prange(n):
        # A stable sort of rows that come sorted by label: equal scores stay in the order of their ids.
        order = indptr[i] + np.argsort(-data[indptr[i] : indptr[i + 1]], kind="mergesort")
        for place in range(min(k, len(order))):
            labels[i, place] = indices[order[place]]
            scores[i, place] = data[order[place]]
    return labels, scores
