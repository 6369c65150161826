"""The random-walk label graph against the official algorithm, and how its cost grows with the number of labels."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from benchmarks.figure import Figure, cpu_seconds, grown_bytes, seconds
from xcbench.data import Dataset, Propensity
from xcbench.data.synth import Shape, from_shape
from xcbench.labels import random_walk_graph
from xcbench.threads import set_threads

WALK, RESTART, HEAD, TOP = 400, 0.8, 500, 10
AUTHORS_CPU_SECONDS = 1.33  # their code on 12,000 labels with 3.73 labels a point, compiled


def measure() -> Iterator[Figure]:
    set_threads()
    small, Y = dataset(200).train.Y, dataset(12_000).train.Y
    random_walk_graph(small)
    official_graph(small)
    theirs, ours = cpu_seconds(lambda: official_graph(Y)), cpu_seconds(lambda: random_walk_graph(Y), repeat=5)
    wall = seconds(lambda: random_walk_graph(Y))
    yield Figure(
        "walk graph of 12,000 labels", ours, theirs, "CPU-s", "the official algorithm", at_least=5,
        note=f"{AUTHORS_CPU_SECONDS / ours:.1f}x less than the {AUTHORS_CPU_SECONDS} CPU-s of the authors' own code; "
        f"{wall:.3f} s of wall time; {memory(Y)}",
    )  # fmt: skip
    each = cost_of_a_label(dataset(10_000).train.Y)
    for labels, repeat in ((100_000, 3), (1_000_000, 2)):
        Y = dataset(labels).train.Y
        yield Figure(
            f"cost of a label's walk among {labels:,}", cost_of_a_label(Y, repeat), each, "CPU-us",
            "a label among 10,000", at_least=0.4, note=f"1.0x is linear; cache misses cost the rest; {memory(Y)}",
        )  # fmt: skip
    yield second_process()


def dataset(labels: int) -> Dataset:
    return from_shape(Shape(2 * labels, 1, labels, 40_000, 3.73, 8.0, 5.0, Propensity()), seed=0, name="bench")


def cost_of_a_label(Y: sp.csr_array, repeat: int = 5) -> float:
    return 1e6 * cpu_seconds(lambda: random_walk_graph(Y), repeat) / Y.shape[1]


def memory(Y: sp.csr_array) -> str:
    inputs = Y.data.nbytes + Y.indices.nbytes + Y.indptr.nbytes
    return f"memory grew by {grown_bytes(lambda: random_walk_graph(Y)) / inputs:.1f}x the size of Y"


def second_process() -> Figure:
    """A process that starts with compiled kernels on disk, against one that must compile them."""
    code = "import scipy.sparse as sp; from xcbench.labels import random_walk_graph as w; w(sp.csr_array([[1.0, 1.0]]))"
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}

        def start() -> None:
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)

        cold = seconds(start, repeat=1)
        warm = seconds(start)
    return Figure("first walk of a new process", warm, cold, "s", "the same before anything is compiled", at_least=3)


def official_graph(Y: sp.csr_array) -> sp.csr_array:
    """As the authors do it: compiled walks of 1,000 labels at a time, visits merged by sorting, then each row's top."""
    L = Y.shape[1]
    frequency = np.bincount(Y.indices, minlength=L)
    heads = frequency > HEAD
    Y = (Y @ sp.diags_array((~heads).astype(np.float32), format="csr")).tocsr()
    Y.eliminate_zeros()
    T = Y.T.tocsr()
    blocks = []
    for start in range(0, L, 1000):
        homes = np.arange(start, min(start + 1000, L))
        homes = homes[np.diff(T.indptr)[homes] > 0]
        visits = plain_walk(T.indptr, T.indices, Y.indptr, Y.indices, homes, WALK, RESTART)
        block = sp.coo_array((np.ones(visits.size), (np.repeat(homes, WALK), visits.ravel())), shape=(L, L))
        block.sum_duplicates()
        blocks.append(block.tocsr())
    graph = sum(blocks[1:], start=blocks[0])
    kept = rowwise_top(graph.tocsr(), TOP)
    diagonal = np.maximum(graph.diagonal(), 1)
    return sp.csr_array(kept - sp.diags_array(kept.diagonal()) + sp.diags_array(diagonal))


@njit(cache=True)
def plain_walk(
    point_ptr: npt.NDArray[np.int32],
    points: npt.NDArray[np.int32],
    label_ptr: npt.NDArray[np.int32],
    labels: npt.NDArray[np.int32],
    homes: npt.NDArray[np.int64],
    length: int,
    restart: float,
) -> npt.NDArray[np.int64]:
    visits = np.empty((homes.size, length), np.int64)
    for i in range(homes.size):
        label = homes[i]
        for step in range(length):
            if np.random.random() < restart:  # noqa: NPY002 (numba's own stream)
                label = homes[i]
            point = points[np.random.randint(point_ptr[label], point_ptr[label + 1])]  # noqa: NPY002
            label = labels[np.random.randint(label_ptr[point], label_ptr[point + 1])]  # noqa: NPY002
            visits[i, step] = label
    return visits


def rowwise_top(graph: sp.csr_array, top: int) -> sp.csr_array:
    """The largest entries of each row, by one sort of all of them."""
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    order = np.lexsort((-graph.data, rows))
    rank = np.arange(graph.nnz) - np.repeat(graph.indptr[:-1], np.diff(graph.indptr))
    chosen = order[rank < top]
    return sp.csr_array((graph.data[chosen], (rows[chosen], graph.indices[chosen])), shape=graph.shape)
