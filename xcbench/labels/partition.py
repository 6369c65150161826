"""A partition of the labels into clusters, whoever made it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.npz import read_npz
from xcbench.errors import DataError
from xcbench.files import atomic_file


@dataclass(frozen=True)
class Clustering:
    """Every label in exactly one of K clusters."""

    cluster_of: npt.NDArray[np.int32]  # [L]
    indptr: npt.NDArray[np.int64]  # [K + 1]
    indices: npt.NDArray[np.int32]  # [L]; cluster m holds indices[indptr[m]:indptr[m + 1]], in ascending order

    @classmethod
    def of(cls, cluster_of: npt.NDArray[np.integer], K: int) -> Clustering:
        """The clustering that says for each label in which cluster it is."""
        if cluster_of.ndim != 1 or np.any(cluster_of < 0) or np.any(cluster_of >= K):
            raise ValueError(f"a clustering needs one cluster id in [0, {K}) per label")
        sizes = np.bincount(cluster_of, minlength=K)
        indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        return cls(cluster_of.astype(np.int32), indptr, np.argsort(cluster_of, kind="stable").astype(np.int32))

    @property
    def K(self) -> int:  # noqa: N802
        return len(self.indptr) - 1

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """How many labels each cluster holds."""
        return np.diff(self.indptr)

    def to_csr(self) -> sp.csr_array:
        """M, the 0/1 matrix L x K: a row per label, a single one in it."""
        L = len(self.cluster_of)
        return sp.csr_array((np.ones(L, np.float32), self.cluster_of, np.arange(L + 1)), shape=(L, self.K))

    def save(self, path: Path) -> None:
        with atomic_file(path) as part, part.open("wb") as file:
            np.savez(file, cluster_of=self.cluster_of, K=np.int64(self.K))

    @classmethod
    def load(cls, path: Path) -> Clustering:
        arrays = read_npz(path)
        try:
            return cls.of(arrays["cluster_of"], int(arrays["K"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("expected a saved clustering (npz with cluster_of and K)", path) from error
