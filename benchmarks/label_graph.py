"""The random-walk label graph against the official algorithm, and how its cost grows with the number of labels."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numba import njit

from benchmarks.figure import Figure, cpu_seconds, grown_bytes, seconds
from xcbench.data import Dataset, Propensity
from xcbench.data.synth import Shape, from_shape
from xcbench.kernels.arrays import Ints, Longs
from xcbench.labels import random_walk_graph
from xcbench.threads import set_threads

WALK = 400
RESTART = 0.8
HEAD = 500
TOP = 10
LABELS_AT_A_TIME = 1000  # in the official code
AUTHORS_CPU_SECONDS = 1.33  # their compiled code, on 12,000 labels with 3.73 labels per point


def measure() -> Iterator[Figure]:
    set_threads()
    compile_kernels()
    yield against_official(dataset(12_000).train.Y)
    few = cost_of_a_label(dataset(10_000).train.Y)
    for labels, repeat in ((100_000, 3), (1_000_000, 2)):
        Y = dataset(labels).train.Y
        yield Figure(
            f"cost of a label's walk among {labels:,}",
            cost_of_a_label(Y, repeat),
            few,
            "CPU-us",
            "a label among 10,000",
            at_least=0.4,
            note=f"1.0x is linear; cache misses cost the rest; {memory(Y)}",
        )
    yield second_process()


def compile_kernels() -> None:
    """Run both algorithms once on few labels, so that no figure includes the time of compiling."""
    small = dataset(200).train.Y
    random_walk_graph(small)
    official_graph(small)


def against_official(Y: sp.csr_array) -> Figure:
    theirs = cpu_seconds(lambda: official_graph(Y))
    ours = cpu_seconds(lambda: random_walk_graph(Y), repeat=5)
    wall = seconds(lambda: random_walk_graph(Y))
    factor = AUTHORS_CPU_SECONDS / ours
    return Figure(
        "walk graph of 12,000 labels",
        ours,
        theirs,
        "CPU-s",
        "the official algorithm",
        at_least=5,
        note=f"{factor:.1f}x less than the {AUTHORS_CPU_SECONDS} CPU-s of the authors' own code; "
        f"{wall:.3f} s of wall time; {memory(Y)}",
    )


def dataset(labels: int) -> Dataset:
    shape = Shape(2 * labels, 1, labels, 40_000, 3.73, 8.0, 5.0, Propensity())
    return from_shape(shape, seed=0, name="bench")


def cost_of_a_label(Y: sp.csr_array, repeat: int = 5) -> float:
    """Return the CPU time per label in microseconds."""
    cpu = cpu_seconds(lambda: random_walk_graph(Y), repeat)
    return 1e6 * cpu / int(Y.shape[1])


def memory(Y: sp.csr_array) -> str:
    inputs = Y.data.nbytes + Y.indices.nbytes + Y.indptr.nbytes
    grown = grown_bytes(lambda: random_walk_graph(Y))
    return f"memory grew by {grown / inputs:.1f}x the size of Y"


def second_process() -> Figure:
    """Compare a process that starts with compiled kernels on disk to one that must compile them."""
    code = "import scipy.sparse as sp; from xcbench.labels import random_walk_graph as w; w(sp.csr_array([[1.0, 1.0]]))"
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}

        def start() -> None:
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)

        cold = seconds(start, repeat=1)
        warm = seconds(start)
    return Figure(
        "first walk of a new process",
        warm,
        cold,
        "s",
        "the same before anything is compiled",
        at_least=3,
    )


def official_graph(Y: sp.csr_array) -> sp.csr_array:
    """Do it as the authors do: compiled walks of 1,000 labels at a time, visits merged by sorting, then the top."""
    L = Y.shape[1]
    frequency = np.bincount(Y.indices, minlength=L)
    not_heads = (frequency <= HEAD).astype(np.float32)
    Y = (Y @ sp.diags_array(not_heads, format="csr")).tocsr()
    Y.eliminate_zeros()
    T = Y.T.tocsr()

    blocks = []
    for start in range(0, L, LABELS_AT_A_TIME):
        homes = np.arange(start, min(start + LABELS_AT_A_TIME, L))
        homes = homes[np.diff(T.indptr)[homes] > 0]
        visits = plain_walk(T.indptr, T.indices, Y.indptr, Y.indices, homes, WALK, RESTART)
        places = (np.repeat(homes, WALK), visits.ravel())
        block = sp.coo_array((np.ones(visits.size), places), shape=(L, L))
        block.sum_duplicates()
        blocks.append(block.tocsr())

    graph = sum(blocks[1:], start=blocks[0])
    top = rowwise_top(graph.tocsr(), TOP)
    old_diagonal = sp.diags_array(top.diagonal())
    new_diagonal = sp.diags_array(np.maximum(graph.diagonal(), 1))
    return sp.csr_array(top - old_diagonal + new_diagonal)


@njit(cache=True)
def plain_walk(
    point_ptr: Ints,
    points: Ints,
    label_ptr: Ints,
    labels: Ints,
    homes: Longs,
    length: int,
    restart: float,
) -> Longs:
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
    """Return the largest entries of each row, by one sort of all of them."""
    sizes = np.diff(graph.indptr)
    rows = np.repeat(np.arange(graph.shape[0]), sizes)
    order = np.lexsort((-graph.data, rows))
    rank = np.arange(graph.nnz) - np.repeat(graph.indptr[:-1], sizes)
    chosen = order[rank < top]
    places = (rows[chosen], graph.indices[chosen])
    return sp.csr_array((graph.data[chosen], places), shape=graph.shape)
