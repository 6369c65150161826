"""Predictions as data: the top k labels of each point, which is all that an evaluation ever needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp


@dataclass(frozen=True)
class TopK:
    """The k best labels of n points, best first; unused places hold label -1 and score -inf.

    Ties are broken by the smaller label id, here and wherever scores are cut to a top k.
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
