"""The loop: one step compared with a dense slow reference, learning, resuming, several processes, stopping."""

import copy
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from xcbench.methods.astec import AstecEncoder

from tests.train.toys import parameters, random_matrix, same, toy
from xcbench.errors import InputError, XCBenchError
from xcbench.kernels.memory import MemoryEstimate
from xcbench.nn import FreeLabels, TokenEmbeddings
from xcbench.nn.dropout import start_step
from xcbench.signals import Terminated, terminate_as_interrupt
from xcbench.train import Points, RankAll, Schedule, Training, Work, all_classifiers, encode, estimate_memory, train
from xcbench.train.memory import check_fits

ROOT = Path(__file__).parent.parent.parent
QUIET = Work(device="cpu", log=lambda line: None)
SHORT = Training(epochs=3, batch_size=16, lr=0.02)


def dense_decaf_step(task, points, lr):
    """Parameters after one Adam step on all points, from plain float64 torch with nothing sparse in it."""
    task = copy.deepcopy(task).double()
    E = task.documents.E.weight
    D = task.documents.block
    L = task.labels
    X = torch.zeros(len(points), len(E), dtype=torch.float64)
    for i in range(len(points)):
        here = slice(points.X.indptr[i], points.X.indptr[i + 1])
        X[i, points.X.indices[here]] = torch.from_numpy(points.X.data[here]).double()
    rows = np.repeat(np.arange(len(L.text.Z)), np.diff(L.text.Z.indptr))
    Z = torch.zeros(len(L.text.Z), len(E), dtype=torch.float64)
    Z[rows, L.text.Z.indices] = torch.from_numpy(L.text.Z.data).double()

    def block(b, r):
        return torch.sigmoid(b.a) * (torch.relu(r) @ b.R().T + b.bias) + torch.sigmoid(b.c) * r

    x = torch.relu(block(D, X @ E))
    w = torch.sigmoid(L.C_L.alpha) * L.z2.weight + torch.sigmoid(L.C_L.beta) * block(L.E_L, Z @ E)
    scores = x @ w.T + L.bias.weight
    batch = points.cut(np.arange(len(points)))
    total = 0
    terms = 0
    if batch.shortlists is None:
        Y = torch.zeros_like(scores)
        for i in range(len(points)):
            Y[i, batch.targets.indices[batch.targets.indptr[i] : batch.targets.indptr[i + 1]]] = 1
        loss = nn.functional.binary_cross_entropy_with_logits(scores, Y)
    else:
        entries = batch.shortlists.entries
        for i in range(len(points)):
            here = slice(entries.indptr[i], entries.indptr[i + 1])
            s = scores[i, batch.shortlists.labels[entries.indices[here]]]
            y = torch.from_numpy(entries.data[here]).double()
            total = total + nn.functional.binary_cross_entropy_with_logits(s, y, reduction="sum")
            terms += len(y)
        loss = total / terms
    loss.backward()
    used = {name: p for name, p in task.named_parameters() if p.grad is not None}
    torch.optim.Adam(used.values(), lr=lr).step()
    return loss.item(), parameters(task)


@pytest.mark.parametrize("shortlists", [False, True])
def test_one_step_equals_a_dense_slow_reference(shortlists):
    task, points = toy(dropout=0.0, shortlists=shortlists)
    loss, expected = dense_decaf_step(task, points, lr=0.01)
    report = train(task, points, Training(steps=1, batch_size=1000, lr=0.01, schedule=Schedule("constant")), QUIET)
    assert report.losses == pytest.approx((loss,), rel=1e-6)
    for name, p in parameters(task).items():
        torch.testing.assert_close(p.double(), expected[name], rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("shortlists", [True, False])
def test_free_vectors_and_blocks_have_their_own_learning_rates(shortlists):
    """Adam's first step moves every parameter that has a gradient by its rate, whatever the gradient's size."""
    task, points = toy(points=30, dropout=0.0, shortlists=shortlists)
    before = parameters(task)
    settings = Training(
        lr=0.01,
        label_lr_factor=0.5,
        block_lr_factor=0.1,
        steps=1,
        batch_size=30,
        schedule=Schedule("constant"),
    )
    train(task, points, settings, QUIET)
    moved = {name: (p - before[name]).abs().max().item() for name, p in parameters(task).items()}
    expected = dict.fromkeys(moved, 0.001)
    expected |= {name: 0.01 for name in moved if name.endswith("E.weight")} | {"labels.z2.weight": 0.005}
    assert moved == pytest.approx(expected, rel=1e-2)


def test_training_fits_a_small_set():
    task, points = toy(points=50, labels=20, dim=16, dropout=0.0, shortlists=False)
    report = train(task, points, Training(epochs=150, batch_size=25, lr=0.02), QUIET)
    W, bias = all_classifiers(task, 20)
    scores = encode(task, random_matrix(50, 40, 0.2, 0)) @ W.T + bias
    has_label = np.diff(points.targets.indptr) > 0
    best = scores.argmax(1)
    for i in np.flatnonzero(has_label):
        labels = points.targets.indices[points.targets.indptr[i] : points.targets.indptr[i + 1]]
        assert best[i] in labels
    assert report.losses[-1] < 0.1 * report.losses[0]
    assert len(report.losses) == 150


def test_the_same_seed_gives_the_same_parameters_and_another_seed_others():
    results = []
    for seed in (0, 0, 1):
        task, points = toy(seed=0)
        train(task, points, SHORT, Work(seed, "cpu", log=lambda line: None))
        results.append(parameters(task))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


@pytest.mark.parametrize(("points", "labels", "batch_size"), [(1, 1, 255), (2, 1, 255), (2, 3, 1), (17, 5, 16)])
@pytest.mark.parametrize("shortlists", [False, True])
def test_the_smallest_problems_train(points, labels, batch_size, shortlists):
    task, data = toy(points, labels, shortlists=shortlists)
    report = train(task, data, Training(epochs=2, batch_size=batch_size), QUIET)
    assert report.steps == 2 * -(-points // batch_size)
    assert all(np.isfinite(report.losses))


def test_astec_trains_on_the_same_loop():
    X = random_matrix(40, 30, 0.2, 0)
    Y = random_matrix(40, 12, 0.2, 1)
    Y.data[:] = 1
    E = TokenEmbeddings(30, 8, lazy=True)
    surrogate = RankAll(AstecEncoder(8, 0.5, E), FreeLabels(12, 8), reduction="batch")
    losses = train(surrogate, Points(X, Y), Training(epochs=30, batch_size=8), QUIET).losses
    assert losses[-1] < losses[0]
    f = torch.relu(E.embed(Points(X, Y).X))
    extreme = RankAll(AstecEncoder(8, 0.5), FreeLabels(12, 8))
    losses = train(extreme, Points(f, Y), Training(epochs=30, batch_size=8), QUIET).losses
    assert losses[-1] < losses[0]
    assert encode(extreme, f.numpy()).shape == (40, 8)


def test_an_interrupted_training_continues_to_the_same_end(tmp_path):
    task, points = toy()
    train(task, points, SHORT, QUIET)
    work = Work(device="cpu", checkpoints=tmp_path, log=lambda line: None)
    stopped, _ = toy()
    eager = Training(epochs=3, batch_size=16, lr=0.02, checkpoint_seconds=0)

    steps = iter(range(100))

    def fail_at_step_7(batch):
        if next(steps) == 7:
            raise KeyboardInterrupt
        return type(stopped).loss(stopped, batch)

    stopped.loss = fail_at_step_7
    with pytest.raises(KeyboardInterrupt):
        train(stopped, points, eager, work)
    header = load_file(tmp_path / "module.safetensors")
    assert "module.labels.z2.weight" in header
    assert "adam.labels.z2.weight.m" in header
    lines = []
    resumed, _ = toy()
    train(resumed, points, eager, Work(device="cpu", checkpoints=tmp_path, log=lines.append))
    assert any("goes on from step" in line for line in lines)
    assert same(parameters(resumed), parameters(task))


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_signal_ends_the_training_after_its_step_with_a_checkpoint(tmp_path, number, raised):
    task, points = toy()
    train(task, points, SHORT, QUIET)
    stopped, _ = toy()
    steps = iter(range(100))

    def signal_at_step_7(batch):
        if next(steps) == 7:
            signal.raise_signal(number)
        return type(stopped).loss(stopped, batch)

    stopped.loss = signal_at_step_7
    lines = []
    work = Work(device="cpu", checkpoints=tmp_path, log=lines.append)
    with pytest.raises(raised), terminate_as_interrupt():
        train(stopped, points, SHORT, work)
    assert lines[-1] == "module: stopped after step 8 of 12, with a checkpoint"

    resumed, _ = toy()
    train(resumed, points, SHORT, work)
    assert "module: goes on from step 8" in lines
    assert same(parameters(resumed), parameters(task))


def test_without_checkpoints_a_signal_ends_the_training_at_once():
    task, points = toy()

    def interrupted(batch):
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal was held back")

    task.loss = interrupted
    with pytest.raises(KeyboardInterrupt):
        train(task, points, SHORT, QUIET)


def test_a_resumed_training_is_not_initialised_again(tmp_path):
    initialised = []

    def fill(module, points):
        initialised.append(len(points))
        with torch.no_grad():
            module.labels.bias.weight.fill_(-3.0)

    eager = Training(epochs=3, batch_size=16, lr=0.02, checkpoint_seconds=0)
    task, points = toy()
    with torch.no_grad():
        task.labels.bias.weight.fill_(-3.0)
    train(task, points, eager, QUIET)
    work = Work(device="cpu", checkpoints=tmp_path, log=lambda line: None)
    for _ in range(2):  # the second one finds a checkpoint behind the last step
        resumed, _ = toy()
        train(resumed, points, eager, work, initialise=fill)
        assert same(parameters(resumed), parameters(task))
    assert initialised == [len(points)]


def test_a_checkpoint_of_another_training_is_left_alone(tmp_path):
    work = Work(device="cpu", checkpoints=tmp_path, log=lambda line: None)
    eager = Training(epochs=1, batch_size=16, checkpoint_seconds=0)
    train(*toy(), eager, work)
    other = Training(epochs=2, batch_size=16, checkpoint_seconds=0)
    task, points = toy()
    train(task, points, other, work)
    alone, _ = toy()
    train(alone, points, other, QUIET)
    assert same(parameters(task), parameters(alone))
    whole = (tmp_path / "module.safetensors").read_bytes()
    for broken in (b"not a checkpoint", whole[: len(whole) // 2], whole[:-1]):
        (tmp_path / "module.safetensors").write_bytes(broken)
        again, _ = toy()
        train(again, points, other, work)
        assert same(parameters(again), parameters(alone))
    wider, points = toy(dim=9)
    train(wider, points, other, work)  # the same plan for other tables
    alone, _ = toy(dim=9)
    train(alone, points, other, QUIET)
    assert same(parameters(wider), parameters(alone))


KILLED = """
import sys, time
from pathlib import Path
import torch
from xcbench.threads import set_threads
set_threads(2)
from safetensors.torch import save_file
from tests.train.toys import parameters, toy
from xcbench.train import Training, Work, train
task, points = toy(points=400, labels=60, dim=16)
loss = task.loss
def slow(batch):
    time.sleep(float(sys.argv[2]))
    return loss(batch)
task.loss = slow
settings = Training(epochs=4, batch_size=16, lr=0.02, checkpoint_seconds=0.05)
train(task, points, settings, Work(3, "cpu", Path(sys.argv[1])))
save_file(parameters(task), Path(sys.argv[1]) / "end")
"""


def run_killed(folder, pause):
    command = [sys.executable, "-c", KILLED, str(folder), str(pause)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE)


def test_a_killed_process_ends_where_an_unbroken_one_does(tmp_path):
    unbroken = tmp_path / "unbroken"
    broken = tmp_path / "broken"
    unbroken.mkdir()
    broken.mkdir()
    whole = run_killed(unbroken, 0)
    killed = run_killed(broken, 0.02)
    deadline = time.monotonic() + 100
    while not (broken / "module.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert (broken / "module.safetensors").exists()
    assert not (broken / "end").exists()
    again = run_killed(broken, 0)
    assert b"goes on from step" in again.communicate()[0]
    whole.communicate()
    assert same(load_file(broken / "end"), load_file(unbroken / "end"))


SPREAD = """
import sys
import xcbench
import torch.distributed as dist
from safetensors.torch import save_file
from tests.train.toys import parameters, toy
from xcbench.train import Training, Work, train
for shortlists in (False, True):
    task, points = toy(points=33, labels=20, shortlists=shortlists, lazy=shortlists, dropout=0.2)
    train(task, points, Training(epochs=2, batch_size=16, lr=0.02), Work(1, "cpu", log=lambda line: None))
    if not dist.is_initialized() or dist.get_rank() == 0:
        save_file(parameters(task), f"{sys.argv[1]}-{shortlists}")
"""


def test_two_processes_train_like_one(tmp_path):
    # 33 points in batches of 16: the last one has a single point, and one process has none to encode.
    script = tmp_path / "spread.py"
    script.write_text(SPREAD)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    spread = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for command, name in ((spread, "two"), ([sys.executable], "one")):
        subprocess.run([*command, str(script), str(tmp_path / name)], cwd=ROOT, env=environment, check=True)
    for shortlists in (False, True):
        one = load_file(tmp_path / f"one-{shortlists}")
        two = load_file(tmp_path / f"two-{shortlists}")
        for name in one:
            torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-5)


def test_a_diverging_module_stops_with_the_place():
    class Diverging(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.ones(()))
            self.calls = 0

        def loss(self, batch):
            self.calls += 1
            return self.p * (float("nan") if self.calls == 6 else 1.0)

    points = Points(random_matrix(8, 3, 0.5, 0), random_matrix(8, 2, 0.5, 1))
    with pytest.raises(XCBenchError, match=r"extreme: the loss .* step 6 of 12 \(epoch 2 of 3\)"):
        train(Diverging(), points, Training(epochs=3, batch_size=2), QUIET, name="extreme")


def test_a_parameter_that_the_last_step_broke_is_found():
    class Breaking(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.ones(2))

        def loss(self, batch):
            return (self.p * 0).sqrt().sum()  # finite, with an infinite slope

    points = Points(random_matrix(4, 3, 0.5, 0), random_matrix(4, 2, 0.5, 1))
    with pytest.raises(XCBenchError, match="parameter p"):
        train(Breaking(), points, Training(epochs=1, batch_size=4), QUIET)


@pytest.mark.parametrize("shortlists", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
def test_the_torch_forms_that_gpus_use_train_alike(shortlists, lazy):
    kernels, points = toy(shortlists=shortlists, lazy=lazy)
    plain, _ = toy(shortlists=shortlists, lazy=lazy)
    train(kernels, points, SHORT, QUIET)
    train(plain.double(), points, SHORT, QUIET)  # what is not float32 on a CPU takes the way of other devices
    for name, p in parameters(kernels).items():
        torch.testing.assert_close(p.double(), parameters(plain)[name], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shortlists", [False, True])
def test_mixed_precision_gives_nearly_the_same_gradients(shortlists):
    task, points = toy(shortlists=shortlists, dropout=0.0)
    mixed = copy.deepcopy(task)
    batch = points.cut(np.arange(40))
    task.loss(batch).backward()
    with torch.autocast("cpu", torch.bfloat16):
        loss = mixed.loss(batch)
    loss.backward()
    for p, q in zip(task.parameters(), mixed.parameters(), strict=True):
        torch.testing.assert_close(*(g.to_dense() for g in (p.grad, q.grad)), rtol=0.1, atol=3e-3)


def test_masks_differ_from_step_to_step():
    task, points = toy(dropout=0.5)
    task.train()
    batch = points.cut(np.arange(10))
    losses = []
    for step in (0, 1, 0):
        start_step(0, step)
        losses.append(task.loss(batch).item())
    assert losses[0] != losses[1]
    assert losses[0] == losses[2]


def test_plain_lines_tell_loss_speed_and_time_left(monkeypatch):
    monkeypatch.setattr("xcbench.progress.LINE_EVERY", 0)
    lines = []
    train(*toy(), SHORT, Work(device="cpu", log=lines.append), name="surrogate")
    assert lines[0].startswith("surrogate: 12 steps on cpu, about ")
    assert lines[1].startswith("surrogate: 9%, loss ") or lines[1].startswith("surrogate: 8%, loss ")
    assert "points/s" in lines[1]
    assert "s left" in lines[1]


def test_what_cannot_be_trained_is_refused():
    task, points = toy()
    with pytest.raises(TypeError, match="no loss"):
        train(nn.Linear(1, 1), points, SHORT, QUIET)
    with pytest.raises(InputError, match="no points"):
        train(task, Points(random_matrix(0, 40, 0, 0), random_matrix(0, 30, 0, 0)), SHORT, QUIET)
    for wrong in ({"batch_size": 0}, {"epochs": -1}, {"lr": -0.1}, {"beta2": 1.0}):
        with pytest.raises(ValueError, match=r"at least|not negative"):
            Training(**wrong)
    with pytest.raises(InputError, match="unknown device 'gpu'"):
        train(task, points, SHORT, Work(device="gpu"))
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no GPU"):
            train(task, points, SHORT, Work(device="cuda"))
    with pytest.raises(InputError, match="precision"):
        train(task, points, Training(epochs=1, precision="half"), QUIET)


def test_memory_is_estimated_from_the_shapes():
    task, points = toy(points=60, labels=30, tokens=40, dim=8, shortlists=False)
    estimate = estimate_memory(task, points, 16)
    trained = sum(p.numel() for p in task.parameters()) * 4
    assert estimate["Adam"] == 2 * trained
    assert estimate["gradients"] == trained
    assert estimate["parameters"] > trained
    assert str(estimate).startswith("0 MiB (parameters 0 MiB")
    with pytest.raises(XCBenchError, match=r"rank needs about .* GiB more memory on cpu"):
        check_fits(MemoryEstimate({"parameters": 1 << 60, "data": 0}), "rank", torch.device("cpu"))


@pytest.mark.slow
def test_compiled_losses_give_the_same_gradients(monkeypatch):
    task, points = toy(dropout=0.0)
    eager = copy.deepcopy(task)
    monkeypatch.setattr(torch, "compile", lambda loss, dynamic: torch._dynamo.optimize("eager", dynamic=True)(loss))
    train(task, points, Training(epochs=1, batch_size=30, compile="on"), QUIET)
    train(eager, points, Training(epochs=1, batch_size=30, compile="off"), QUIET)
    for name, p in parameters(task).items():
        torch.testing.assert_close(p, parameters(eager)[name])
