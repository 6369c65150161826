"""The thread fan-out: results in order, errors raised, nested calls, and no more threads than asked for."""

import threading

import numpy as np
import pytest

from xcbench.kernels.parallel import in_blocks, map_threads, rows_in_block, share_ranges, split_range


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_parts(threads):
    parts = list(range(100))
    assert map_threads(lambda part: part**2, parts, threads) == [part**2 for part in parts]
    assert map_threads(str, [], threads) == []


def test_no_more_threads_work_than_asked_for():
    seen = set()
    map_threads(lambda _: seen.add(threading.get_ident()), range(200), threads=3)
    assert len(seen) <= 3


def test_calls_may_be_nested():
    def inner(part):
        return sum(map_threads(lambda i: i * part, range(10), threads=3))

    assert map_threads(inner, range(20), threads=3) == [45 * part for part in range(20)]


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_is_raised_and_ends_the_work(threads):
    done = []

    def work(part):
        if part == 3:
            raise ValueError("part 3")
        done.append(part)

    with pytest.raises(ValueError, match="part 3"):
        map_threads(work, range(10_000), threads)
    assert len(done) < 9_999
    assert map_threads(abs, [-1, -2, -3], threads) == [1, 2, 3]  # the pool is as it was


def test_ranges_cover_everything_once():
    assert split_range(10, 4) == [(0, 4), (4, 8), (8, 10)]
    hits = np.zeros(10, np.int64)

    def count(block):
        hits[block] += 1

    in_blocks(10, 3, count)

    def count_rows(first, last, array):
        array[first:last] += 1

    share_ranges(count_rows, [0, 2, 2, 10], hits)
    assert hits.tolist() == [2] * 10


@pytest.mark.parametrize(("points", "workers", "rows"), [(0, 2, 1), (10, 4, 3), (10**6, 2, 1024)])
def test_blocks_are_small_and_leave_no_worker_idle(points, workers, rows):
    assert rows_in_block(points, workers) == rows
