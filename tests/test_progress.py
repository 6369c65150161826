"""Loops inside other work say how far they are, if they last long."""

import logging
import re
import threading

import numpy as np
import pytest

from xcbench import progress
from xcbench.kernels import parallel
from xcbench.kernels.parallel import map_threads
from xcbench.labels import balanced_clusters, dense_centroids
from xcbench.labels import centroids as centroids_module
from xcbench.progress import PartCounter, counted, titled
from xcbench.runner.toy import toy_dataset
from xcbench.shortlist import HNSWShortlister
from xcbench.shortlist.hnsw import _connected


class Clock:
    """A clock that work moves on."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def lasting(clock, seconds, result=None):
    clock.now += seconds
    return result


def test_a_long_loop_logs_a_line_every_ten_seconds(clock, caplog):
    caplog.set_level(logging.INFO, "xcbench")
    with titled("walks"):
        for _ in counted(range(10)):
            clock.now += 4
    # After 12, 24 and 36 of 40 seconds.
    assert caplog.messages == ["walks: 30%, 28 s left", "walks: 60%, 16 s left", "walks: 90%, 4 s left"]


def test_a_short_loop_logs_nothing(clock, caplog):
    caplog.set_level(logging.INFO, "xcbench")
    assert list(counted(iter("abc"), "letters", 3)) == ["a", "b", "c"]
    clock.now += 9
    assert list(counted([])) == []
    assert caplog.messages == []


def test_a_loop_of_unknown_length_says_how_much_is_done(clock, caplog):
    caplog.set_level(logging.INFO, "xcbench")
    for _ in counted(iter("ab"), "letters"):
        clock.now += 10
    assert caplog.messages == ["letters: 1 done", "letters: 2 done"]


def test_the_innermost_title_counts(clock, caplog):
    caplog.set_level(logging.INFO, "xcbench")
    with progress.activity("stage"):
        with titled("part of it"):
            list(counted([lasting]))
        with PartCounter(2) as counter:
            clock.now += 20
            counter.reach(1)
    assert caplog.messages == ["stage: 50%, 20 s left"]


def test_compiled_loops_count_their_parts(clock, caplog):
    caplog.set_level(logging.INFO, "xcbench")
    parts = list(range(40))
    with titled("blocks"):
        assert map_threads(lambda part: lasting(clock, 1.0, -part), parts, threads=1) == [-part for part in parts]
    assert caplog.messages[:2] == ["blocks: 25%, 30 s left", "blocks: 50%, 20 s left"]


def test_parts_that_other_threads_do_count_too(clock, caplog):
    caplog.set_level(logging.INFO, "xcbench")
    begun = threading.Event()
    others_are_done = threading.Event()
    done_by_others = []

    def work(part):
        if threading.current_thread() is threading.main_thread():
            begun.set()
            # The first part of this thread ends when the other one has begun its 20th.
            others_are_done.wait(timeout=60)
            clock.now += 20
            return
        begun.wait(timeout=60)
        done_by_others.append(part)
        if len(done_by_others) == 20:
            others_are_done.set()

    with titled("blocks"):
        map_threads(work, range(100), threads=2)
    percent, left = re.fullmatch(r"blocks: (\d+)%, (\d+) s left", caplog.messages[0]).groups()
    assert int(percent) >= 20
    assert int(left) <= 80


def test_loops_of_few_parts_are_not_counted(clock, monkeypatch):
    monkeypatch.setattr(parallel, "PartCounter", None)
    parts = range(parallel.FEW_PARTS)
    assert map_threads(lambda part: part, parts) == list(parts)


def test_a_terminal_has_a_row_only_for_what_lasts(clock, monkeypatch):
    rows = []

    class Screen:
        title_of = staticmethod(lambda title: title)

        def row(self, title):
            rows.append(title)
            return progress.contextlib.nullcontext()

        def count(self, done, total, remark):
            rows.append((done, total))

    monkeypatch.setattr(progress, "_screen", Screen())
    monkeypatch.setattr(progress, "_has_terminal", lambda: True)
    list(counted(range(100), "short"))
    assert rows == []
    for _ in counted(range(3), "long"):
        clock.now += 1.5
    assert rows == ["long", (2, 3), (3, 3)]


def test_centroids_are_the_same_in_parts(monkeypatch):
    Y = toy_dataset(labels=40, train=200).train.Y
    vectors = np.random.default_rng(0).normal(size=(200, 7)).astype(np.float32)
    whole = dense_centroids(Y, vectors)
    monkeypatch.setattr(centroids_module, "ROWS_AT_ONCE", 3)
    np.testing.assert_array_equal(dense_centroids(Y, vectors), whole)
    np.testing.assert_array_equal(np.asarray(Y.T @ vectors).argmax(1), whole.argmax(1))


def test_vectors_in_a_graph_are_counted_by_their_edges():
    vectors = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)
    assert _connected(HNSWShortlister.of(vectors).index) == 600
    assert _connected(HNSWShortlister.of(vectors[:1]).index) == 0  # it has no neighbour


def test_clusters_say_how_far_they_are(monkeypatch, caplog):
    monkeypatch.setattr(progress, "LINE_EVERY", 0)
    caplog.set_level(logging.INFO, "xcbench")
    vectors = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)
    balanced_clusters(vectors, 128)
    assert any(line.startswith("clusters of labels: ") for line in caplog.messages)
