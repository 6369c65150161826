"""Nearest neighbours in a navigable small-world graph (faiss): labels are found by vectors that represent them.

A label may have one vector (its centroid, as in Slice) or several (Astec splits frequent labels). The vectors may also
be those of training points, which vote for their labels.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import faiss
import numba
import numpy as np
import scipy.sparse as sp
from numba import njit

from xcbench import progress
from xcbench.data import TopK
from xcbench.data.matrices import unit_vectors
from xcbench.errors import DataError, InputError
from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, arrays_of
from xcbench.kernels.hash_table import collect, slot_of, table_size
from xcbench.kernels.selection import write_best
from xcbench.progress import counted
from xcbench.shortlist.blocks import empty_topk, topk_in_blocks
from xcbench.shortlist.contract import Arrays, Vectors, as_matrix, load_parts, save_parts
from xcbench.threads import thread_count

_log = logging.getLogger(__name__)

SEARCHED_AT_ONCE = 1 << 14
"""How many points are searched before a search says how far it is."""

Vote: TypeAlias = Literal["best", "sum"]

INDEX_FILE = "index.faiss"
"""Beside the other parts of a saved shortlister. As an array among them, a large index would be in memory twice."""


@dataclass(frozen=True)
class HNSWShortlister:
    """Finds the labels of the nearest vectors, by cosine. `HNSWShortlister.of` builds the index.

    Parameters
    ----------
    index
        A `faiss.IndexHNSWFlat` over unit vectors.
    owners
        [vectors, L] the labels that each vector represents, and with what weight.
    neighbours
        How many vectors are looked up per point; None looks up as many as labels are wanted.
    vote
        How the cosines of a label's vectors, each times its weight, become the label's score: "best" takes the
        largest one, "sum" adds them up.
    """

    index: Any
    owners: sp.csr_array
    neighbours: int | None = None
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
        """Build the index.

        Parameters
        ----------
        vectors
            [vectors, D] vectors of any length; only their directions count.
        owners
            See the class. None means that vector l represents label l.
        neighbours, vote
            See the class.
        M
            How many edges a vector has in the graph.
        ef_construction, ef_search
            How many vectors faiss considers while it builds the graph, and while it searches.
        build_threads
            On one thread the same vectors give the same graph. More threads are faster, but then the graph's edges
            depend on which thread came first.
        """
        unit = unit_vectors(as_matrix(vectors))
        if owners is None:
            owners = sp.eye_array(len(unit), dtype=np.float32, format="csr")
        if owners.shape[0] != len(unit) or vote not in ("best", "sum"):
            raise InputError(f"{len(unit)} vectors need owners and a vote, got {owners.shape} and {vote!r}")

        index = faiss.IndexHNSWFlat(unit.shape[1], M, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = ef_construction
        index.hnsw.efSearch = ef_search
        with _faiss_threads(build_threads), _shown_while_it_grows(index, len(unit)):
            index.add(unit)
        return cls(index, sp.csr_array(owners), neighbours, vote)

    @property
    def label_count(self) -> int:
        return int(self.owners.shape[1])

    def shortlist(self, X: Vectors, k: int) -> TopK:
        """Return the k labels per point with the largest votes of the point's nearest vectors."""
        unit = unit_vectors(as_matrix(X, self.index.d))
        neighbours = max(1, min(self.neighbours or k, self.index.ntotal))
        # faiss returns no more vectors than it considers.
        parameters = faiss.SearchParametersHNSW(  # type: ignore[attr-defined]
            efSearch=max(self.index.hnsw.efSearch, neighbours)
        )
        cosines = np.empty((len(unit), neighbours), np.float32)
        nearest = np.empty((len(unit), neighbours), np.int64)
        with _faiss_threads(numba.get_num_threads()):
            for start in counted(range(0, len(unit), SEARCHED_AT_ONCE)):
                part = slice(start, start + SEARCHED_AT_ONCE)
                cosines[part], nearest[part] = self.index.search(unit[part], neighbours, params=parameters)

        owners = arrays_of(self.owners)

        def vote(block: slice) -> TopK:
            result = empty_topk(block.stop - block.start, k)
            _count_votes(
                nearest[block],
                cosines[block],
                owners,
                self.vote == "sum",
                result.indices,
                result.scores,
            )
            return result

        return topk_in_blocks(len(unit), k, vote)

    def save(self, folder: Path) -> None:
        settings = {"neighbours": self.neighbours, "vote": self.vote, "labels": self.label_count}
        arrays = {f"owners.{name}": array for name, array in arrays_of(self.owners)._asdict().items()}

        def write_index(part: Path) -> None:
            faiss.write_index(self.index, str(part / INDEX_FILE))

        save_parts(folder, "hnsw", settings, arrays, write_index)

    @classmethod
    def load(cls, folder: Path) -> HNSWShortlister:
        settings, arrays = load_parts(folder, "hnsw")
        index = _read_index(folder / INDEX_FILE, arrays)
        owners = sp.csr_array(
            (arrays["owners.data"], arrays["owners.indices"], arrays["owners.indptr"]),
            shape=(index.ntotal, settings["labels"]),
        )
        return cls(index, owners, settings["neighbours"], settings["vote"])


def build_at_once(*builds: Callable[[], HNSWShortlister]) -> list[HNSWShortlister]:
    """Build several indices, each in a thread of its own. Each graph is the one that it would be if built alone.

    Parameters
    ----------
    builds
        Functions that build one index each, on one thread.
    """
    with ThreadPoolExecutor(thread_count()) as threads:
        begun = [threads.submit(build) for build in builds]
    return [build.result() for build in begun]


def _read_index(path: Path, arrays: Arrays) -> Any:
    """Return the faiss index in this file. Until version 0.1, it was one of the arrays."""
    if not path.exists():
        return faiss.deserialize_index(arrays["index"])
    try:
        return faiss.read_index(str(path))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"cannot be read as an index of faiss: {reason}", path) from None


@contextlib.contextmanager
def _faiss_threads(count: int) -> Iterator[None]:
    """Limit the threads of faiss. It has an OpenMP pool of its own, which takes all cores by default."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@contextlib.contextmanager
def _shown_while_it_grows(index: Any, count: int) -> Iterator[None]:
    """Log how many vectors are in the graph of an index that is built during the block under `with`.

    One call adds them all, since the graph depends on which are added together. So another thread looks at it.
    """
    ended = threading.Event()
    every = progress.LINE_EVERY

    def watch() -> None:
        with progress.Counter("graph of nearest neighbours", count, _log.info) as counter:
            has_room = False
            while not ended.wait(every):
                if has_room:
                    counter.advance(_connected(index) - counter.done)
                # faiss first copies all vectors, then at once makes room for the whole graph: it may be looked at from
                # one interval later on.
                has_room = index.ntotal == count

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _connected(index: Any) -> int:
    """Return how many vectors have an edge by now."""
    graph = index.hnsw
    starts = faiss.rev_swig_ptr(graph.offsets.data(), graph.offsets.size())[:-1]
    neighbours = faiss.rev_swig_ptr(graph.neighbors.data(), graph.neighbors.size())
    return int((neighbours[starts.astype(np.int64)] >= 0).sum())


@njit(cache=True, nogil=True)
def _count_votes(
    nearest: Longs,
    cosines: Floats,
    owners: CsrArrays,
    add_up: bool,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    """Write the labels with the largest sum (or else maximum) of cosine times weight over the nearest vectors."""
    indptr, labels, weights = owners
    size = table_size(_max_labels(nearest, indptr))
    table_labels = np.empty(size, np.int32)
    votes = np.empty(size, np.float32)
    keys = np.empty(size, np.uint64)

    for i in range(len(nearest)):
        table_labels[:] = -1
        for place, vector in enumerate(nearest[i]):
            if vector < 0:  # faiss found fewer vectors than asked for
                continue
            for e in range(indptr[vector], indptr[vector + 1]):
                slot = slot_of(table_labels, labels[e])
                vote = cosines[i, place] * weights[e]
                if table_labels[slot] == -1:
                    table_labels[slot] = labels[e]
                    votes[slot] = vote
                elif add_up:
                    votes[slot] += vote
                else:
                    votes[slot] = max(votes[slot], vote)
        count = collect(table_labels, votes, keys)
        write_best(keys, count, out_labels[i], out_scores[i])


@njit(cache=True)
def _max_labels(nearest: Longs, indptr: Longs) -> int:
    """Return how many labels the nearest vectors of one point have together at most."""
    largest = 0
    for i in range(len(nearest)):
        count = 0
        for vector in nearest[i]:
            if vector >= 0:
                count += indptr[vector + 1] - indptr[vector]
        largest = max(largest, count)
    return largest
