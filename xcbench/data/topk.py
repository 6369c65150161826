"""Predictions as data: the top k labels per point, which is all that an evaluation needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.npz import csr_from_arrays, read_npz
from xcbench.errors import DataError, InputError
from xcbench.files import atomic_file

_UNUSED = np.iinfo(np.int32).max
"""The label id of an unused place while a row is sorted: it sorts behind every real id."""
_MAX_CELLS = 1 << 31


@dataclass(frozen=True)
class TopK:
    """The k best labels of n points, best first.

    Unused places hold label -1 and score -inf. Ties are broken by the smaller label id, here and wherever scores are
    cut to a top k. The constructor does not check the order; `TopK.of` sorts.

    Parameters
    ----------
    indices
        [n, k] int32 label ids.
    scores
        [n, k] float32 scores of these labels.
    """

    indices: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.indices.ndim != 2 or self.indices.shape != self.scores.shape:
            raise ValueError(
                f"TopK needs two [n, k] arrays of one shape, got {self.indices.shape} and {self.scores.shape}"
            )
        if self.indices.dtype != np.int32 or self.scores.dtype != np.float32:
            raise ValueError(f"TopK holds int32 and float32, got {self.indices.dtype} and {self.scores.dtype}")

    def __len__(self) -> int:
        """Return the number of points."""
        return int(self.indices.shape[0])

    @property
    def k(self) -> int:
        """The number of places per point."""
        return int(self.indices.shape[1])

    @classmethod
    def of(
        cls,
        indices: npt.NDArray[np.integer],
        scores: npt.NDArray[np.floating],
    ) -> TopK:
        """Sort labels and scores that come in any order.

        Raises `InputError` for a score that is nan, and for a label that occurs twice in a row.

        Parameters
        ----------
        indices
            [n, k] label ids; -1 for unused places.
        scores
            [n, k] scores. They are ranked in the precision they come in, then stored as float32.
        """
        is_used = indices >= 0
        ids = np.where(is_used, indices, _UNUSED).astype(np.int32)
        scores = np.where(is_used, scores, -np.inf)
        _refuse_rows(np.isnan(scores), "has a score that is not a number")

        by_label = np.sort(ids, axis=1)
        is_repeated = by_label[:, 1:] == by_label[:, :-1]
        _refuse_rows(is_repeated & (by_label[:, 1:] < _UNUSED), "lists a label twice")

        order = np.lexsort((ids, -scores), axis=1)
        ids = np.take_along_axis(ids, order, axis=1)
        ids[ids == _UNUSED] = -1
        ranked_scores = np.take_along_axis(scores, order, axis=1)
        return cls(ids, _float32(ranked_scores))

    @classmethod
    def from_csr(cls, scores: sp.csr_array, k: int | None = None) -> TopK:
        """Rank the stored entries of each row of a sparse matrix.

        Parameters
        ----------
        scores
            [n, L] scores. A stored zero is a prediction like any other. The matrix is not changed.
        k
            How many labels to keep per point; None keeps as many as the longest row has.
        """
        scores = sp.csr_array(scores)
        if not scores.has_canonical_format:
            scores = scores.copy()
            scores.sum_duplicates()

        is_nan = np.isnan(scores.data)
        if is_nan.any():
            row = np.searchsorted(scores.indptr, is_nan.argmax(), side="right") - 1
            raise InputError(f"point {row} has a score that is not a number")

        longest = int(np.diff(scores.indptr).max(initial=0))
        k = longest if k is None else min(k, longest)
        if scores.shape[1] > _UNUSED or scores.shape[0] * k > _MAX_CELLS:
            raise InputError(f"{scores.shape} scores, up to {k} a point, are too many to rank; name a k")

        labels, ranked_scores = _rank_rows(
            scores.indptr.astype(np.int64),
            scores.indices.astype(np.int32),
            scores.data.astype(np.float64),
            k,
        )
        return cls(labels, ranked_scores)

    @classmethod
    def load(
        cls,
        path: str | Path,
        shape: tuple[int, int] | None = None,
        k: int | None = None,
    ) -> TopK:
        """Read predictions from an npz file. Raises `DataError` where it holds none.

        Parameters
        ----------
        path
            A file of `TopK.save`, a sparse matrix of scores (`scipy.sparse.save_npz`), or any npz file with arrays
            `indices` and `scores` of shape [n, k].
        shape
            The expected numbers of points and labels; None accepts any.
        k
            How many labels to keep per point; None keeps all.
        """
        path = Path(path)
        arrays = read_npz(path)
        try:
            if "indptr" in arrays:
                matrix = csr_from_arrays(arrays, path)
                if shape is not None and matrix.shape != shape:
                    raise DataError(f"expected a {shape[0]} x {shape[1]} matrix of scores, got {matrix.shape}", path)
                return cls.from_csr(matrix, k)

            predictions = cls._from_arrays(arrays, path, shape)
            if k is None:
                return predictions
            return predictions.cut(k)
        except DataError:
            raise  # it names the file already
        except InputError as error:
            raise DataError(str(error), path) from None

    @classmethod
    def _from_arrays(
        cls,
        arrays: dict[str, npt.NDArray[Any]],
        path: Path,
        shape: tuple[int, int] | None,
    ) -> TopK:
        if not {"indices", "scores"} <= arrays.keys():
            present = ", ".join(sorted(arrays)) or "no array"
            raise DataError(
                f"expected a csr matrix (scipy.sparse.save_npz) or arrays 'indices' and 'scores', got {present}", path
            )

        indices = arrays["indices"]
        scores = arrays["scores"]
        _check_arrays(indices, scores, path)
        _check_label_ids(indices, path, shape or (len(indices), _UNUSED))

        if "ranked" in arrays:
            return cls(
                indices.astype(np.int32, copy=False),
                scores.astype(np.float32, copy=False),
            )
        precision = np.promote_types(scores.dtype, np.float32)
        return cls.of(
            indices.astype(np.int64, copy=False),
            scores.astype(precision),
        )

    def save(self, path: str | Path) -> None:
        """Write an npz file (`indices`, `scores`) that `TopK.load` and any numpy program can read."""
        with atomic_file(Path(path)) as part, part.open("wb") as stream:
            # `ranked` tells `load` to keep the order: scores ranked as float64 may have become ties as float32.
            np.savez(
                stream,
                indices=self.indices,
                scores=self.scores,
                ranked=np.True_,
            )

    @classmethod
    def concatenate(cls, parts: Sequence[TopK]) -> TopK:
        """Join the points of all parts, in order; rows of parts with a smaller k get unused places."""
        k = max(part.k for part in parts)
        padded = [part.padded(k) for part in parts]

        indices = np.concatenate([part.indices for part in padded])
        scores = np.concatenate([part.scores for part in padded])
        return cls(indices, scores)

    def padded(self, k: int) -> TopK:
        """Return the same predictions with k places per point; `k` is at least `self.k`."""
        widths = ((0, 0), (0, k - self.k))
        indices = np.pad(self.indices, widths, constant_values=-1)
        scores = np.pad(self.scores, widths, constant_values=-np.inf)
        return TopK(indices, scores)

    def cut(self, k: int) -> TopK:
        """Return the k best labels per point, or all where there are fewer places."""
        indices = np.ascontiguousarray(self.indices[:, :k])
        scores = np.ascontiguousarray(self.scores[:, :k])
        return TopK(indices, scores)

    def rows(
        self,
        selected: slice | npt.NDArray[np.integer] | npt.NDArray[np.bool_],
    ) -> TopK:
        """Return the predictions of the selected points: a slice, row numbers, or a boolean mask."""
        return TopK(self.indices[selected], self.scores[selected])

    def to_csr(self, label_count: int) -> sp.csr_array:
        """Return the scores as a sparse matrix [n, label_count]; scores of zero stay stored."""
        is_used = self.indices >= 0
        row_ends = np.cumsum(is_used.sum(axis=1))
        indptr = np.concatenate(([0], row_ends))
        entries = (self.scores[is_used], self.indices[is_used], indptr)

        matrix = sp.csr_array(entries, shape=(len(self), label_count))
        matrix.sort_indices()
        return matrix


def _check_arrays(
    indices: npt.NDArray[Any],
    scores: npt.NDArray[Any],
    path: Path,
) -> None:
    if indices.ndim != 2 or indices.shape != scores.shape:
        raise DataError(
            f"expected 'indices' and 'scores' of one shape [n, k], got {indices.shape} and {scores.shape}", path
        )
    if indices.dtype.kind not in "iu" or scores.dtype.kind not in "biuf":
        raise DataError(f"expected integers and numbers, got {indices.dtype} and {scores.dtype}", path)


def _check_label_ids(
    indices: npt.NDArray[Any],
    path: Path,
    shape: tuple[int, int],
) -> None:
    points, labels = shape
    if len(indices) != points:
        raise DataError(f"expected predictions for {points} points, got {len(indices)}", path)
    if not indices.size:
        return

    smallest = indices.min()
    largest = indices.max()
    if smallest < -1 or largest >= labels:
        wrong = smallest if smallest < -1 else largest
        raise DataError(f"expected label ids from 0 to {labels - 1} (-1: unused place), got {wrong}", path)


def _refuse_rows(is_wrong: npt.NDArray[np.bool_], problem: str) -> None:
    """Raise `InputError` for the first row with a wrong place, if there is one."""
    if is_wrong.any():
        raise InputError(f"point {is_wrong.any(axis=1).argmax()} {problem}")


def _float32(scores: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


@numba.njit(cache=True, parallel=True)
def _rank_rows(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    data: npt.NDArray[np.float64],
    k: int,
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
