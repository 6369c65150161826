"""A partition of the labels into clusters, however it was made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.npz import read_npz
from xcbench.errors import DataError
from xcbench.files import atomic_file
from xcbench.kernels.arrays import Ints, Longs


@dataclass(frozen=True)
class Clustering:
    """Every label in exactly one of K clusters. Make one with `Clustering.of`.

    Parameters
    ----------
    cluster_of : the cluster of each label.
    indptr, indices : the labels of each cluster: those of cluster m are indices[indptr[m]:indptr[m + 1]], ascending.
    """

    cluster_of: Ints  # [L]
    indptr: Longs  # [K + 1]
    indices: Ints  # [L]

    @classmethod
    def of(cls, cluster_of: npt.NDArray[np.integer], K: int) -> Clustering:
        """Return the clustering into K clusters in which label l is in cluster cluster_of[l]."""
        is_cluster = (cluster_of >= 0) & (cluster_of < K)
        if cluster_of.ndim != 1 or not is_cluster.all():
            raise ValueError(f"a clustering needs one cluster id in [0, {K}) per label")
        sizes = np.bincount(cluster_of, minlength=K)
        ends = np.cumsum(sizes)
        indptr = np.concatenate(([0], ends)).astype(np.int64)
        indices = np.argsort(cluster_of, kind="stable")
        return cls(cluster_of.astype(np.int32), indptr, indices.astype(np.int32))

    @property
    def K(self) -> int:  # noqa: N802
        """The number of clusters."""
        return len(self.indptr) - 1

    @property
    def sizes(self) -> Longs:
        """How many labels each cluster has."""
        return np.diff(self.indptr)

    def to_csr(self) -> sp.csr_array:
        """Return M, the 0/1 matrix L x K with one row per label and a single one in it."""
        L = len(self.cluster_of)
        ones = np.ones(L, np.float32)
        indptr = np.arange(L + 1)
        return sp.csr_array((ones, self.cluster_of, indptr), shape=(L, self.K))

    def save(self, path: Path) -> None:
        """Write the clustering to an npz file."""
        with atomic_file(path) as part, part.open("wb") as file:
            np.savez(file, cluster_of=self.cluster_of, K=np.int64(self.K))

    @classmethod
    def load(cls, path: Path) -> Clustering:
        """Read what `save` wrote."""
        arrays = read_npz(path)
        try:
            return cls.of(arrays["cluster_of"], int(arrays["K"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("expected a saved clustering (npz with cluster_of and K)", path) from error
