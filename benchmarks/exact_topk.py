"""Exact search among all labels against faiss' flat index, on the same cores."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.figure import Figure, grown_bytes
from xcbench.shortlist import exact_topk, search_memory
from xcbench.threads import set_threads

POINTS, LABELS, DIMENSION, K = 10_000, 131_072, 300, 100


def measure() -> Iterator[Figure]:
    import faiss  # after xcbench has told idle threads to sleep: on a busy machine spinning costs faiss a third

    threads = set_threads()
    faiss.omp_set_num_threads(threads)
    rng = np.random.default_rng(0)
    X, W = (rng.standard_normal((rows, DIMENSION), dtype=np.float32) for rows in (POINTS, LABELS))
    exact_topk(X[:300], W[:5000], K)
    grown = grown_bytes(lambda: exact_topk(X, W, K))
    index = faiss.IndexFlatIP(DIMENSION)
    index.add(W)
    cpu, wall = [float("inf")] * 2, [float("inf")] * 2
    for _ in range(3):  # in turn, so that a noisy neighbour hits both
        for side, work in enumerate((lambda: exact_topk(X, W, K), lambda: index.search(X, K))):
            spent, passed = _cpu_and_wall(work)
            cpu[side], wall[side] = min(cpu[side], spent), min(wall[side], passed)
    flops = 2 * POINTS * LABELS * DIMENSION
    yield Figure(
        f"exact top {K} of {POINTS:,} points over {LABELS:,} x {DIMENSION}",
        cpu[0],
        cpu[1],
        "CPU-s",
        "faiss IndexFlatIP",
        at_least=1.0,
        note=f"{flops / cpu[0] / 1e9:.0f} GFLOP/s a core; wall time on {threads} threads {wall[0]:.1f} s "
        f"against {wall[1]:.1f} s; peak memory grew by "
        f"{grown / 1e6:.0f} MB (estimate: {search_memory(POINTS, K, LABELS)}), "
        f"{grown / (X.nbytes + W.nbytes):.2f}x the inputs",
    )


def _cpu_and_wall(work: Callable[[], object]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall
