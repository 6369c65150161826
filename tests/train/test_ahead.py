"""Batches that are cut ahead: the same ones in the same order, from another thread, and errors where they belong."""

import itertools
import threading
import time

import numpy as np
import pytest
import torch

from tests.stand_in_device import StandInDevice, train_on_stand_in
from tests.train.toys import random_matrix, toy
from xcbench.nn import device_arrays
from xcbench.nn.device_arrays import on_device
from xcbench.nn.dropout import first_key, next_key, start_step
from xcbench.train import Candidates, Points, Training, Work, train
from xcbench.train.ahead import made_ahead


def test_items_come_in_order_and_from_another_thread():
    threads = set()

    def items():
        for number in range(50):
            threads.add(threading.get_ident())
            yield number

    with made_ahead(items()) as ready:
        assert list(ready) == list(range(50))
    assert threads != {threading.get_ident()}
    assert len(threads) == 1


def test_only_a_few_items_are_made_ahead():
    made = []
    with made_ahead((made.append(number) or number for number in itertools.count()), ahead=2) as ready:
        assert next(ready) == 0
        time.sleep(0.3)
        assert len(made) <= 4  # one is taken, two wait, and one is in the maker's hands


def test_an_error_comes_where_the_item_would_have_come():
    def items():
        yield 1
        raise ValueError("no second item")

    with made_ahead(items()) as ready:
        assert next(ready) == 1
        with pytest.raises(ValueError, match="no second item"):
            next(ready)


def test_the_thread_ends_with_the_context():
    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt), made_ahead(itertools.count()) as ready:
        next(ready)
        raise KeyboardInterrupt
    assert threading.active_count() == threads


@pytest.mark.parametrize(("device", "other_thread"), [("cpu", False), ("standin", True)])
def test_batches_are_cut_by_another_thread_only_beside_a_device(monkeypatch, device, other_thread):
    train_on_stand_in(monkeypatch)
    cut_by = []
    prepare = Points.prepare

    def recorded(points, rows, key=0):
        cut_by.append(threading.get_ident())
        return prepare(points, rows, key)

    task, points = toy()
    with StandInDevice():
        train(task, points, Training(steps=0), Work(device=device, log=lambda line: None))
        monkeypatch.setattr(Points, "prepare", recorded)
        train(task, points, Training(steps=5, batch_size=16), Work(device=device, log=lambda line: None))
    in_steps = cut_by[-5:]
    assert (threading.get_ident() not in in_steps) == other_thread


def test_the_key_of_random_candidates_is_known_ahead():
    for seed, step in ((0, 0), (3, 17), (-1, 5)):
        start_step(seed, step)
        assert first_key(seed, step) == next_key()


def test_page_locked_memory_is_what_goes_over(monkeypatch):
    """The loop pins for CUDA only. Here, a pinned copy is one that can be told apart."""
    pinned = []

    def pin_memory(tensor):
        pinned.append(tensor.shape)
        return tensor + 1

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    listed = np.zeros((6, 2), np.int32)
    X = random_matrix(6, 5, 0.5, 0)
    Y = random_matrix(6, 4, 0.5, 1)
    rows = np.arange(3)
    sparse = Points(X, Y, Candidates.of_labels(listed, 4)).prepare(rows)
    sparse.pin()
    assert len(pinned) == 7  # three arrays of features, labels, and three of candidates
    dense = Points(X.toarray(), Y).prepare(rows)
    dense.pin()
    assert len(pinned) == 11  # the numbers of the points, and three of targets

    with StandInDevice():
        device = torch.device("standin", 0)
        data = on_device(sparse.X.data, device)
        assert data.data_on_cpu.numpy() == pytest.approx(sparse.X.data + 1)
        assert on_device(sparse.X.data, device) is data
    del sparse, dense, data, rows
    assert not device_arrays._pinned
