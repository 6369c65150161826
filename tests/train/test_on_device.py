"""Training on another device: the CPU's results there, and what a steady step may copy and wait for."""

import itertools
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.stand_in_device import DEVICE, StandInDevice, on_cpu, train_on_stand_in
from tests.train.toys import RefinedText, random_matrix, toy
from xcbench.kernels.csr import SparseRows
from xcbench.nn import (
    ComponentAttention,
    GatedBlock,
    LabelBank,
    NeighbourText,
    ResidualBlock,
    TokenEmbeddings,
)
from xcbench.train import (
    Candidates,
    Points,
    RankAll,
    RankShortlist,
    Training,
    Work,
    all_classifiers,
    document_side,
    encode,
    fit_bias,
    train,
)
from xcbench.train import loop as loop_module

SHORT = Training(epochs=3, batch_size=16, lr=0.02, label_lr_factor=0.5)


class Attention(nn.Module):
    """ECLARE's label side: the text of labels and of their neighbours, and a free vector, mixed by attention."""

    def __init__(self, E, Z, G, dim, frozen):
        super().__init__()
        self.text = NeighbourText(E, Z, G, range(3), frozen)
        self.blocks = nn.ModuleList(ResidualBlock(dim, 0.2) for _ in range(3))
        self.z3 = LabelBank(Z.shape[0], dim, E.embed(SparseRows.of(Z)))
        self.bias = LabelBank(Z.shape[0])
        self.attention = ComponentAttention(4, dim, 0.2)

    def forward(self, labels=None):
        parts = [block(r) for block, r in zip(self.blocks, self.text(labels), strict=True)]
        return self.attention(*parts, self.z3(labels)), self.bias(labels)


def eclare_toy(shortlists, frozen, points=60, labels=30, tokens=40, dim=8, dropout=0.2):
    X = random_matrix(points, tokens, 0.2, 0)
    Z = random_matrix(labels, tokens, 0.2, 1)
    G = random_matrix(labels, labels, 0.1, 3)
    torch.manual_seed(0)
    E = TokenEmbeddings(tokens, dim)
    documents, features = document_side(ResidualBlock(dim, dropout), E, X, frozen)
    return task_and_points(documents, Attention(E, Z, G, dim, frozen), features, points, labels, shortlists)


def decaf_toy(shortlists, frozen, points=60, labels=30, tokens=40, dim=8, dropout=0.2):
    X = random_matrix(points, tokens, 0.2, 0)
    Z = random_matrix(labels, tokens, 0.2, 1)
    torch.manual_seed(0)
    E = TokenEmbeddings(tokens, dim)
    documents, features = document_side(GatedBlock(dim, dropout), E, X, frozen)
    return task_and_points(documents, RefinedText(E, Z, dim, dropout, frozen), features, points, labels, shortlists)


def task_and_points(documents, labels_side, features, points, labels, shortlists):
    Y = random_matrix(points, labels, 0.1, 2)
    Y.data[:] = np.random.default_rng(0).choice(np.array([1.0, 0.7, np.nan], np.float32), len(Y.data))
    if not shortlists:
        return RankAll(documents, labels_side), Points(features, Y)
    listed = np.random.default_rng(0).integers(-1, labels, (points, 6)).astype(np.int32)
    candidates = Candidates.of_labels(listed, labels, with_positives=True, random=2)
    return RankShortlist(documents, labels_side, "batch"), Points(features, Y, candidates)


PROBLEMS = {
    "lazy, all labels": lambda: toy(shortlists=False, lazy=True),
    "lazy, shortlists": lambda: toy(shortlists=True, lazy=True),
}
for make, shortlists, frozen in itertools.product((decaf_toy, eclare_toy), (False, True), (False, True)):
    words = (make.__name__[:-4], "shortlists" if shortlists else "all labels", "frozen" if frozen else "learning")
    PROBLEMS[", ".join(words)] = lambda make=make, shortlists=shortlists, frozen=frozen: make(shortlists, frozen)

problems = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


@pytest.fixture
def device(monkeypatch):
    train_on_stand_in(monkeypatch)
    with StandInDevice() as device:
        yield device


def work(device, **settings):
    return Work(device=device, log=lambda line: None, **settings)


def assert_alike(task, expected):
    parameters = dict(task.named_parameters())
    for name, parameter in expected.named_parameters():
        assert parameters[name].device == DEVICE
        torch.testing.assert_close(on_cpu(parameters[name]).detach(), parameter.detach(), rtol=1e-4, atol=1e-5)


@problems
def test_the_device_learns_what_the_cpu_does(device, problem):
    expected, points = problem()
    task, device_points = problem()
    report = train(expected, points, SHORT, work("cpu"))
    device_report = train(task, device_points, SHORT, work("standin"))

    assert device_report.losses == pytest.approx(report.losses, rel=1e-5)
    assert_alike(task, expected)
    for result, reference in zip(all_classifiers(task, 30), all_classifiers(expected, 30), strict=True):
        np.testing.assert_allclose(result, reference, rtol=1e-4, atol=1e-5)
    X = points.X if isinstance(points.X, torch.Tensor) else random_matrix(60, 40, 0.2, 0)
    np.testing.assert_allclose(encode(task, X), encode(expected, X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lazy, shortlists", "decaf, shortlists, frozen", "eclare, all labels, learning"])
def test_an_interrupted_training_goes_on_there(device, name, tmp_path):
    problem = PROBLEMS[name]
    expected, points = problem()
    train(expected, points, SHORT, work("cpu"))
    eager = Training(**{**vars(SHORT), "checkpoint_seconds": 0})
    stopped, points = problem()
    steps = itertools.count()
    threads = threading.active_count()

    def fail_at_step_7(batch):
        if next(steps) == 7:
            raise KeyboardInterrupt
        return type(stopped).loss(stopped, batch)

    stopped.loss = fail_at_step_7
    with pytest.raises(KeyboardInterrupt):
        train(stopped, points, eager, work("standin", checkpoints=tmp_path))
    assert threading.active_count() == threads  # whoever cut the batches has ended
    assert load_file(tmp_path / "module.safetensors")

    lines = []
    resumed, points = problem()
    train(resumed, points, eager, Work(device="standin", checkpoints=tmp_path, log=lines.append))
    assert any("goes on from step" in line for line in lines)
    assert_alike(resumed, expected)


def test_biases_start_at_the_same_value(device):
    starts = []
    for name in ("cpu", "standin"):
        task, points = decaf_toy(shortlists=True, frozen=True)
        train(task, points, Training(steps=0), work(name), initialise=fit_bias)
        starts.append(float(on_cpu(task.labels.bias.weight)[0]))
    assert starts[0] == pytest.approx(starts[1], abs=0.05)  # the search stops when it is that near


class Recorded:
    """The events of each step of a training."""

    def __init__(self, device, monkeypatch):
        self.device = device
        self.steps = []
        train_step = loop_module._Trainer._train_step

        def recorded(trainer, *args):
            with device.recording() as events:
                result = train_step(trainer, *args)
            self.steps.append(events)
            return result

        monkeypatch.setattr(loop_module._Trainer, "_train_step", recorded)


COPIES = {
    "lazy, all labels": 6,  # three arrays of features, three of targets
    "lazy, shortlists": 7,  # three of features, three of candidates, and their labels
    "decaf, all labels, learning": 6,
    "decaf, all labels, frozen": 4,  # the numbers of the points, and three arrays of targets
    "decaf, shortlists, learning": 7,
    "decaf, shortlists, frozen": 5,
    "eclare, all labels, learning": 6,
    "eclare, all labels, frozen": 4,
    "eclare, shortlists, frozen": 5,
    "eclare, shortlists, learning": 9,  # and the labels that are one and two steps away
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_steady_step_copies_the_batch_and_never_waits(device, monkeypatch, name):
    task, points = PROBLEMS[name]()
    recorded = Recorded(device, monkeypatch)
    train(task, points, SHORT, work("standin"))
    assert len(recorded.steps) == 12
    for events in recorded.steps[1:]:
        assert {event.kind for event in events} == {"to device"}
        assert len(events) == COPIES[name], "\n".join(map(str, events))


def test_the_loss_is_read_now_and_then(device):
    task, points = toy(points=32)
    train(task, points, Training(steps=60, batch_size=16), work("standin"))
    counts = [event.line for event in device.events if event.kind == "wait" and "loop.py" in event.line]
    parameters = len(list(task.parameters()))
    epochs = 30
    assert len(counts) == epochs + parameters  # 50 is the end of an epoch, too; parameters are checked once, at the end


def test_constant_arrays_leave_the_device_with_their_module(device):
    from xcbench.nn import device_arrays

    before = len(device_arrays._copies)
    task, points = decaf_toy(shortlists=True, frozen=False)
    train(task, points, SHORT, work("standin"))
    assert len(device_arrays._copies) > before
    del task, points
    assert len(device_arrays._copies) == before
