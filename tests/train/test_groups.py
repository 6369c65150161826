"""Groups of parameters, weight decay, accumulation, averaging, hooks and selection, against torch's own AdamW."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors.torch import load_file
from torch import nn
from torch.optim.swa_utils import AveragedModel

from tests.train.toys import parameters, random_matrix, same, toy
from xcbench.errors import InputError
from xcbench.kernels.csr import SparseRows
from xcbench.nn import Adam, LabelBank, TokenEmbeddings
from xcbench.train import Group, GroupedTraining, Keeping, Points, Schedule, Training, Work, train
from xcbench.train.loop import _BatchPlan

ROOT = Path(__file__).parent.parent.parent
QUIET = Work(device="cpu", log=lambda line: None)


class Net(nn.Module):
    """Two layers and a table of labels, on points that the batch only numbers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.labels = nn.Linear(8, 6)
        self.X = torch.randn(23, 5)
        self.Y = torch.rand(23, 6)
        self.epochs = []

    def loss_of(self, rows):
        return (self.labels(self.encoder(self.X[rows])) - self.Y[rows]).square().mean()

    def loss(self, batch):
        return self.loss_of(batch.rows)


def points_of(net):
    return Points(random_matrix(len(net.X), 3, 0.5, 0), random_matrix(len(net.X), 2, 0.5, 1))


GROUPED = GroupedTraining(
    lr=0.02,
    epochs=5,
    batch_size=4,
    schedule=Schedule("linear", warmup=0.1),
    groups={
        "all": Group("*", weight_decay=0.3),
        "labels": Group("labels.*", lr=0.05, weight_decay=0.1, accumulate=4, schedule=Schedule("constant")),
    },
    keep=Keeping(average_from=0.4, average_every=3),
)


def reference(net, settings, seed=0):
    """The same training in plain torch: two AdamW, summed gradients, torch's own averaging."""
    plan = _BatchPlan.of(len(net.X), settings, seed)
    encoder = torch.optim.AdamW(
        [
            {"params": [net.encoder[0].weight], "weight_decay": 0.3},
            {"params": [net.encoder[0].bias], "weight_decay": 0.0},
        ]
    )
    labels = torch.optim.AdamW(
        [{"params": [net.labels.weight], "weight_decay": 0.1}, {"params": [net.labels.bias], "weight_decay": 0.0}],
        lr=0.05,
    )
    averaged = AveragedModel(net)
    for step in range(plan.steps):
        net.loss_of(plan.rows(plan.order(step), step)).backward()
        for group in encoder.param_groups:
            group["lr"] = 0.02 * settings.schedule.factor(step, plan.steps)
        encoder.step()
        encoder.zero_grad()
        if (step + 1) % 4 == 0 or step + 1 == plan.steps:
            labels.step()
            labels.zero_grad()
        if step + 1 > 0.4 * plan.steps and (plan.steps - step - 1) % 3 == 0:
            averaged.update_parameters(net)
    return averaged.module


def test_groups_accumulation_and_averaging_equal_torch_adamw():
    net = Net()
    expected = reference(copy.deepcopy(net), GROUPED)
    train(net, points_of(net), GROUPED, QUIET)
    for name, parameter in parameters(net).items():
        torch.testing.assert_close(parameter, parameters(expected)[name], rtol=1e-5, atol=1e-6)


def test_a_group_that_is_not_averaged_keeps_its_last_weights():
    last = Net()
    train(last, points_of(last), GroupedTraining(**{**vars(GROUPED), "keep": Keeping()}), QUIET)
    groups = {**GROUPED.groups, "labels": Group(**{**vars(GROUPED.groups["labels"]), "average": False})}
    net = Net()
    train(net, points_of(net), GroupedTraining(**{**vars(GROUPED), "groups": groups}), QUIET)
    assert torch.equal(net.labels.weight, last.labels.weight)
    assert not torch.equal(net.encoder[0].weight, last.encoder[0].weight)


def test_an_average_over_less_than_its_interval_is_the_last_weights():
    last = Net()
    train(last, points_of(last), GroupedTraining(steps=3, batch_size=4), QUIET)
    net = Net()
    train(net, points_of(net), GroupedTraining(steps=3, batch_size=4, keep=Keeping(0.0, average_every=500)), QUIET)
    assert same(parameters(net), parameters(last))


def test_without_groups_a_grouped_training_is_a_plain_one():
    plain, points = toy()
    grouped, _ = toy()
    train(plain, points, Training(epochs=2, batch_size=16, lr=0.02, label_lr_factor=0.5), QUIET)
    train(grouped, points, GroupedTraining(epochs=2, batch_size=16, lr=0.02, label_lr_factor=0.5), QUIET)
    assert same(parameters(plain), parameters(grouped))


def dense_lazy_adamw(start, gradients, lr, weight_decay):
    """Rows without a gradient keep their moments but shrink all the same, in float64 numpy."""
    p = start.astype(np.float64)
    m = np.zeros_like(p)
    v = np.zeros_like(p)
    seen = []
    for step, (rows, grad) in enumerate(gradients, 1):
        seen.append(p[rows].copy())
        p *= 1 - lr * weight_decay
        m[rows] = 0.9 * m[rows] + 0.1 * grad
        v[rows] = 0.999 * v[rows] + 0.001 * grad**2
        corrected = np.sqrt(v[rows] / (1 - 0.999**step)) + 1e-8
        p[rows] -= lr * (m[rows] / (1 - 0.9**step)) / corrected
    return p, seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_take_their_decay_when_they_are_read(dtype):
    rng = np.random.default_rng(0)
    start = torch.randn(40, 6, dtype=dtype)
    bank = LabelBank(40, 6, start)
    adam = Adam(bank, lr=0.1, weight_decay=0.5)
    gradients = []
    read = []
    for _ in range(12):
        rows = np.sort(rng.choice(40, 7, replace=False))
        grad = rng.normal(size=(7, 6))
        gradients.append((rows, grad))
        values = bank(rows)
        read.append(values.detach().numpy().copy())
        (values * torch.from_numpy(grad).to(dtype)).sum().backward()
        adam.step()
    expected, seen = dense_lazy_adamw(start.numpy(), gradients, 0.1, 0.5)
    for ours, theirs in zip(read, seen, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    adam.close()
    np.testing.assert_allclose(bank.weight.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    before = bank.weight.detach().clone()
    bank(np.arange(40))
    assert torch.equal(bank.weight, before)


@pytest.mark.parametrize("dim", [None, 5])
def test_a_bank_that_is_read_whole_equals_torch_adamw_and_numbers_do_not_decay(dim):
    start = torch.randn((30,) if dim is None else (30, dim))
    bank = LabelBank(30, dim, start)
    dense = nn.Parameter(start.clone())
    ours = Adam(bank, lr=0.05, weight_decay=0.2)
    theirs = torch.optim.AdamW([dense], lr=0.05, weight_decay=0.2 if dim else 0.0)
    target = torch.randn_like(start)
    for step in range(6):
        rows = None if step % 2 else np.arange(30)
        (bank(rows) - target).square().sum().backward()
        ours.step()
        theirs.zero_grad()
        (dense - target).square().sum().backward()
        theirs.step()
    torch.testing.assert_close(bank.weight.detach(), dense.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_token_embeddings_decay_in_all_rows(lazy, dtype):
    E = TokenEmbeddings(9, 4, lazy).to(dtype)
    start = E.weight.detach().clone()
    adam = Adam(E, lr=0.1, weight_decay=0.5)
    texts = SparseRows.of(sp.csr_array((np.ones(2, np.float32), [1, 3], [0, 1, 2]), shape=(2, 9)))
    for _ in range(4):
        E(texts).sum().backward()
        adam.step()
    adam.close()
    torch.testing.assert_close(E.weight.detach()[[0, 2, 8]], start[[0, 2, 8]] * 0.95**4, rtol=1e-5, atol=1e-6)
    dense = nn.Parameter(start.clone())
    reference = torch.optim.AdamW([dense], lr=0.1, weight_decay=0.5)
    for _ in range(4):
        reference.zero_grad()
        dense[[1, 3]].sum().backward()
        reference.step()
    torch.testing.assert_close(E.weight.detach()[[1, 3]], dense.detach()[[1, 3]], rtol=1e-4, atol=1e-5)


def test_the_longest_pattern_counts_and_one_without_parameters_is_an_error():
    net = Net()
    before = parameters(net)
    groups = {"still": Group("*", lr=0.0), "bias": Group("labels.bi*", lr=0.5), "labels": Group("labels.*", lr=0.1)}
    constant = Schedule("constant")
    train(net, points_of(net), GroupedTraining(steps=1, batch_size=23, schedule=constant, groups=groups), QUIET)
    moved = {name: (p - before[name]).abs().max().item() for name, p in parameters(net).items()}
    assert moved["labels.bias"] == pytest.approx(0.5, rel=1e-3)
    assert moved["labels.weight"] == pytest.approx(0.1, rel=1e-3)
    assert moved["encoder.0.weight"] == 0
    with pytest.raises(InputError, match=r"group typo: no parameter matches 'lables\.\*'; there are encoder"):
        train(net, points_of(net), GroupedTraining(groups={"typo": Group("lables.*")}), QUIET)


@pytest.mark.parametrize("settings", [{"accumulate": 0}, {"weight_decay": -1}, {"lr": 2.0, "weight_decay": 0.5}])
def test_groups_refuse_what_makes_no_sense(settings):
    with pytest.raises(ValueError, match=r"at least|less than"):
        Group(**settings)


class Counting(nn.Module):
    """Its loss pulls p to the number of the epoch, which it counts in a buffer."""

    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.zeros(2))
        self.register_buffer("epoch", torch.zeros(()))
        self.steps = 0
        self.stop_at = None

    def start_epoch(self):
        self.epoch += 1

    def loss(self, batch):
        if self.steps == self.stop_at:
            raise KeyboardInterrupt
        self.steps += 1
        return (self.p - self.epoch).square().sum()


def test_a_hook_runs_once_per_epoch_and_the_best_weights_are_kept():
    scores = {2: 0.3, 4: 0.9, 6: 0.2}
    seen = []
    weights = []

    def validate(module):
        assert not module.training
        seen.append(int(module.epoch))
        weights.append(module.p.detach().clone())
        return scores[seen[-1]]

    counting = Counting()
    settings = GroupedTraining(epochs=6, batch_size=8, lr=0.1, keep=Keeping(validate_every=2))
    train(counting, points_of(Net()), settings, QUIET, validate=validate)
    assert seen == [2, 4, 6]
    assert torch.equal(counting.p, weights[1])
    assert int(counting.epoch) == 4
    assert counting.steps == 18


def test_a_stopped_training_with_everything_continues_to_the_same_end(tmp_path):
    settings = GroupedTraining(
        epochs=5,
        batch_size=16,
        lr=0.02,
        checkpoint_seconds=0,
        groups={
            "all": Group("*", weight_decay=0.2),
            "free": Group("labels.z2.*", lr=0.05, weight_decay=0.3, accumulate=3),
        },
        keep=Keeping(average_from=0.3, average_every=2, validate_every=2),
    )

    def validate(module):
        return -float(module.labels.z2.weight.detach().norm())

    unbroken, points = toy(lazy=True)
    train(unbroken, points, settings, QUIET, validate=validate)
    for stop in (2, 8, 13):
        stopped, _ = toy(lazy=True)
        steps = iter(range(100))

        def fail(batch, stopped=stopped, steps=steps, stop=stop):
            if next(steps) == stop:
                raise KeyboardInterrupt
            return type(stopped).loss(stopped, batch)

        stopped.loss = fail
        work = Work(device="cpu", checkpoints=tmp_path / str(stop), log=lambda line: None)
        work.checkpoints.mkdir()
        with pytest.raises(KeyboardInterrupt):
            train(stopped, points, settings, work, validate=validate)
        resumed, _ = toy(lazy=True)
        train(resumed, points, settings, work, validate=validate)
        assert same(parameters(resumed), parameters(unbroken))


def test_a_hook_is_not_repeated_when_a_training_continues(tmp_path):
    points = points_of(Net())
    settings = GroupedTraining(epochs=4, batch_size=8, lr=0.1, checkpoint_seconds=0)
    unbroken = Counting()
    report = train(unbroken, points, settings, QUIET)
    work = Work(device="cpu", checkpoints=tmp_path, log=lambda line: None)
    stopped = Counting()
    stopped.stop_at = 7
    with pytest.raises(KeyboardInterrupt):
        train(stopped, points, settings, work)
    resumed = Counting()
    again = train(resumed, points, settings, work)
    assert torch.equal(resumed.p, unbroken.p)
    assert torch.equal(resumed.epoch, torch.tensor(4.0))
    assert again.losses == pytest.approx(report.losses)


SPREAD = """
import sys
import xcbench
import torch.distributed as dist
from safetensors.torch import save_file
from tests.train.toys import parameters, toy
from xcbench.train import Group, GroupedTraining, Work, train
task, points = toy(points=33, labels=20, lazy=True, dropout=0.0)
groups = {"all": Group("*", weight_decay=0.2), "free": Group("labels.z2*", weight_decay=0.2, accumulate=3)}
train(task, points, GroupedTraining(epochs=2, batch_size=16, groups=groups), Work(1, "cpu", log=lambda line: None))
if not dist.is_initialized() or dist.get_rank() == 0:
    save_file(parameters(task), sys.argv[1])
"""


def test_two_processes_accumulate_and_decay_like_one(tmp_path):
    script = tmp_path / "spread.py"
    script.write_text(SPREAD)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    spread = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for command, name in ((spread, "two"), ([sys.executable], "one")):
        subprocess.run([*command, str(script), str(tmp_path / name)], cwd=ROOT, env=environment, check=True)
    one = load_file(tmp_path / "one")
    two = load_file(tmp_path / "two")
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-5)
