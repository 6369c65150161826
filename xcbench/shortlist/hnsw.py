"""Nearest neighbours in a navigable small-world graph (faiss): labels found by vectors that stand for them.

A label may be one vector (its centroid, as in Slice), several (Astec splits head labels), or a target of many (the
training points, whose labels are voted for).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import faiss
import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.data import TopK
from xcbench.data.matrices import unit_vectors
from xcbench.errors import InputError
from xcbench.kernels.csr import Rows, rows_of
from xcbench.kernels.hash_table import collect, slot_of, table_size
from xcbench.kernels.selection import write_best
from xcbench.shortlist.blocks import topk_in_blocks
from xcbench.shortlist.contract import Vectors, as_matrix, load_parts, save_parts

Vote: TypeAlias = Literal["best", "sum"]


@dataclass(frozen=True)
class HNSWShortlister:
    """A label's score comes from the cosines of the `neighbours` nearest vectors that stand for it.

    vote "best" takes the largest, "sum" adds them up, each times its weight in `owners`.
    """

    index: Any  # faiss.IndexHNSWFlat over unit vectors
    owners: sp.csr_array  # [vectors, L]: which labels a vector stands for, and with what weight
    neighbours: int | None = None
    """How many vectors are looked up; as many as labels are wanted where None."""
    vote: Vote = "best"

    @classmethod
    def of(
        cls,
        vectors: Vectors,
        owners: sp.csr_array | None = None,
        neighbours: int | None = None,
        vote: Vote = "best",
        M: int = 32,
        ef_construction: int = 200,
        ef_search: int = 200,
        build_threads: int = 1,
    ) -> HNSWShortlister:
        """Build the graph over vectors; without owners vector l stands for label l.

        On one thread the same vectors give the same graph. More build it faster, but its edges then depend on which
        thread came first.
        """
        unit = unit_vectors(as_matrix(vectors))
        if owners is None:
            owners = sp.eye_array(len(unit), dtype=np.float32, format="csr")
        if owners.shape[0] != len(unit) or vote not in ("best", "sum"):
            raise InputError(f"{len(unit)} vectors need owners and a vote, got {owners.shape} and {vote!r}")
        index = faiss.IndexHNSWFlat(unit.shape[1], M, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = ef_construction
        index.hnsw.efSearch = ef_search
        with _faiss_threads(build_threads):
            index.add(unit)
        return cls(index, sp.csr_array(owners), neighbours, vote)

    @property
    def label_count(self) -> int:
        return int(self.owners.shape[1])

    def shortlist(self, X: Vectors, k: int) -> TopK:
        unit = unit_vectors(as_matrix(X, self.index.d))
        wanted = max(1, min(self.neighbours or k, self.index.ntotal))
        # faiss can rank no more vectors than the search keeps in view.
        settings = faiss.SearchParametersHNSW(  # type: ignore[attr-defined]
            efSearch=max(self.index.hnsw.efSearch, wanted)
        )
        with _faiss_threads(numba.get_num_threads()):
            cosines, nearest = self.index.search(unit, wanted, params=settings)
        owners = rows_of(self.owners)
        return topk_in_blocks(len(unit), k, lambda block: self._tally(nearest[block], cosines[block], owners, k))

    def _tally(self, nearest: npt.NDArray[np.int64], cosines: npt.NDArray[np.float32], owners: Rows, k: int) -> TopK:
        out = TopK(np.empty((len(nearest), k), np.int32), np.empty((len(nearest), k), np.float32))
        _tally(nearest, cosines, *owners, self.vote == "sum", out.indices, out.scores)
        return out

    def save(self, folder: Path) -> None:
        arrays = {f"owners.{name}": part for name, part in rows_of(self.owners)._asdict().items()}
        settings = {"neighbours": self.neighbours, "vote": self.vote, "labels": self.label_count}
        save_parts(folder, "hnsw", settings, arrays | {"index": faiss.serialize_index(self.index)})

    @classmethod
    def load(cls, folder: Path) -> HNSWShortlister:
        settings, arrays = load_parts(folder, "hnsw")
        index = faiss.deserialize_index(arrays["index"])
        indptr, indices, data = (arrays[f"owners.{name}"] for name in Rows._fields)
        owners = sp.csr_array((data, indices, indptr), shape=(index.ntotal, settings["labels"]))
        return cls(index, owners, settings["neighbours"], settings["vote"])


@contextlib.contextmanager
def _faiss_threads(count: int) -> Iterator[None]:
    """faiss keeps an OpenMP pool of its own, which must not grow beyond what torch and numba were given."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@njit(cache=True, nogil=True)
def _tally(
    nearest: npt.NDArray[np.int64],
    cosines: npt.NDArray[np.float32],
    indptr: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    summed: bool,
    out_labels: npt.NDArray[np.int32],
    out_scores: npt.NDArray[np.float32],
) -> None:
    most = 0
    for i in range(len(nearest)):
        owned = 0
        for vector in nearest[i]:
            if vector >= 0:
                owned += indptr[vector + 1] - indptr[vector]
        most = max(most, owned)
    size = table_size(most)
    held, votes, keys = np.empty(size, np.int32), np.empty(size, np.float32), np.empty(size, np.uint64)
    for i in range(len(nearest)):
        held[:] = -1
        for place, vector in enumerate(nearest[i]):
            if vector >= 0:
                for e in range(indptr[vector], indptr[vector + 1]):
                    slot, vote = slot_of(held, labels[e]), cosines[i, place] * weights[e]
                    if held[slot] == -1:
                        held[slot], votes[slot] = labels[e], vote
                    else:
                        votes[slot] = votes[slot] + vote if summed else max(votes[slot], vote)
        write_best(keys, collect(held, votes, keys), out_labels[i], out_scores[i])
