"""`compile: on`: the loss through torch.compile, with real dropout, on the path that a GPU takes."""

import importlib

import pytest
import torch
from torch._dynamo.backends.debugging import aot_eager

from tests.train.test_on_device import PROBLEMS, SHORT, work
from tests.train.toys import parameters
from xcbench.nn import relu_dropout
from xcbench.nn.dropout import start_step
from xcbench.train import Training, train
from xcbench.train import loop as loop_module

COMPILED = Training(**{**vars(SHORT), "compile": "on"})
LAST_NEW_SIZE = 4
"""The step with the last points of the first epoch, which are fewer than a batch: no later one has anything new."""


@pytest.fixture
def no_kernels(monkeypatch):
    """Let the CPU compute in plain torch, as a GPU does."""
    for name in ("adam", "attention", "dropout", "embeddings", "losses", "residual", "spectral"):
        monkeypatch.setattr(importlib.import_module(f"xcbench.nn.{name}"), "kernels_support", lambda *tensors: False)
    yield
    torch._dynamo.reset()


class Graphs:
    """A backend of torch.compile that counts what it is given to compile, and computes it by torch's operations."""

    def __init__(self):
        self.count = 0

    def __call__(self, graph, inputs):
        self.count += 1
        return aot_eager(graph, inputs)


def graphs_after_each_step(monkeypatch, backend):
    """Compile with this backend; returns a list to which each step of a training adds how many graphs there are."""
    compile_with = torch.compile
    monkeypatch.setattr(torch, "compile", lambda loss, dynamic: compile_with(loss, dynamic=dynamic, backend=backend))
    train_step = loop_module._Trainer._train_step
    counts = []

    def counted(trainer, *args):
        points = train_step(trainer, *args)
        counts.append(backend.count)
        return points

    monkeypatch.setattr(loop_module._Trainer, "_train_step", counted)
    return counts


def check(name, monkeypatch):
    torch._dynamo.reset()
    expected, points = PROBLEMS[name]()
    train(expected, points, SHORT, work("cpu"))
    task, points = PROBLEMS[name]()
    counts = graphs_after_each_step(monkeypatch, Graphs())
    train(task, points, COMPILED, work("cpu"))

    assert counts[0] > 0
    assert set(counts[LAST_NEW_SIZE:]) == {counts[-1]}  # a new dropout key is no reason to compile anew
    for name, parameter in parameters(expected).items():
        torch.testing.assert_close(parameters(task)[name], parameter, rtol=1e-4, atol=1e-6)


def test_masks_of_new_keys_need_no_new_graph(no_kernels):
    x = torch.randn(6, 5)
    graphs = Graphs()
    compiled = torch.compile(lambda x: relu_dropout(2 * x, 0.5, training=True) + 1, dynamic=True, backend=graphs)
    results = []
    for step in range(5):
        start_step(seed=3, step=step)
        results.append(compiled(x))
        start_step(seed=3, step=step)
        torch.testing.assert_close(results[-1], relu_dropout(2 * x, 0.5, training=True) + 1)
        if step == 0:
            after_first = graphs.count
    assert graphs.count == after_first > 0
    assert not torch.equal(results[0], results[1])


def test_a_compiled_loss_learns_the_same(no_kernels, monkeypatch):
    check("decaf, shortlists, learning", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_so_does_every_other_loss(no_kernels, monkeypatch, name):
    check(name, monkeypatch)
