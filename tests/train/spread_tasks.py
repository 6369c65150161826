"""What the processes of `test_label_shards.py` do: train small problems together, and write down what each one held."""

import json
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from xcbench.methods.astec import AstecEncoder

from tests.train.test_on_device import PROBLEMS as CASCADES
from tests.train.toys import parameters, random_matrix, toy
from xcbench.nn import Adam, FreeLabels, LabelBank, TokenEmbeddings
from xcbench.ranks import process_count, rank
from xcbench.train import Candidates, Points, RankAll, RankShortlist, Training, Work, fit_bias, train

SHORT = Training(epochs=3, batch_size=16, lr=0.02, label_lr_factor=0.5)
COLLECTIVES = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "scatter", "gather", "send")


def astec(shortlists, points=60, labels=31, tokens=40, dim=8):
    """Astec's two modules, with a number of labels that two processes do not share evenly."""
    torch.manual_seed(0)
    Y = random_matrix(points, labels, 0.1, 2)
    Y.data[:] = 1
    if not shortlists:
        E = TokenEmbeddings(tokens, dim, lazy=True)
        task = RankAll(AstecEncoder(dim, 0.5, E), FreeLabels(labels, dim))
        return task, Points(random_matrix(points, tokens, 0.2, 0), Y)
    listed = np.random.default_rng(0).integers(-1, labels, (points, 4)).astype(np.int32)
    candidates = Candidates.of_labels(listed, labels, with_positives=True, random=3)
    f = torch.rand(points, dim)
    return RankShortlist(AstecEncoder(dim, 0.5), FreeLabels(labels, dim), "mean"), Points(f, Y, candidates)


def all_in_first_half():
    """Shortlists of the first ten of thirty labels: the second process never has one to score."""
    task, points = toy(lazy=True)
    Y = random_matrix(len(points), 30, 0.1, 2)
    Y.data[:] = 1
    listed = np.random.default_rng(0).integers(-1, 10, (len(points), 4)).astype(np.int32)
    return task, Points(random_matrix(len(points), 40, 0.2, 0), Y, Candidates.of_labels(listed, 30))


def in_torch(task, points):
    """The same in float64, for which there are no kernels: so it takes the way of other devices."""
    return task.double(), points


class OtherLabels(nn.Module):
    """A user's own label side: a plain parameter, and a bank of numbers that do not belong to labels."""

    def __init__(self, labels, dim):
        super().__init__()
        self.W = nn.Parameter(torch.randn(labels, dim))
        self.offsets = LabelBank(3, start=torch.randn(3))
        self.bias = None

    def forward(self, labels=None):
        if labels is None:
            labels = np.arange(len(self.W))
        ids = torch.from_numpy(labels)
        return self.W[ids], self.offsets(np.arange(3))[ids % 3]


def own_label_side(shortlists):
    task, points = toy(shortlists=shortlists)
    torch.manual_seed(1)
    task.labels = OtherLabels(30, 8)
    return task, points


class OwnLoss(RankShortlist):
    """A loss that needs all labels at once."""

    def loss(self, batch):
        W, _ = self.classifiers(None)
        scores = self.documents(batch.X) @ W.full().T
        return scores.logsumexp(1).mean()


def own_loss():
    task, points = toy(dropout=0.0)
    return OwnLoss(task.documents, task.labels, "batch"), points


TWO = {
    **CASCADES,
    "astec, all labels": lambda: astec(shortlists=False),
    "astec, shortlists": lambda: astec(shortlists=True),
    "one process without labels": all_in_first_half,
    "as on a GPU, one process without labels": lambda: in_torch(*all_in_first_half()),
    "as on a GPU, all labels": lambda: in_torch(*toy(shortlists=False)),
    "own label side, all labels": lambda: own_label_side(shortlists=False),
    "own loss": own_loss,
    "own label side, shortlists": lambda: own_label_side(shortlists=True),
}
THREE = {
    f"{points} points, {labels} labels, {'shortlists' if shortlists else 'all labels'}": (
        lambda points=points, labels=labels, shortlists=shortlists: toy(points, labels, shortlists=shortlists)
    )
    for points, labels in ((2, 30), (5, 2), (1, 1))
    for shortlists in (False, True)
}
PROBLEMS = {2: TWO, 3: THREE}


class Watched:
    """Counts messages, and notes the sizes of tables and moments when Adam steps."""

    def __init__(self):
        self.messages = Counter()
        self.by_step = []
        self.sizes = {}
        self.step = Adam.step
        for name in COLLECTIVES:
            setattr(dist, name, self.counted(name, getattr(dist, name)))
        Adam.step = lambda adam: self.note(adam)

    def counted(self, name, send):
        def counting(*args, **kwargs):
            self.messages[name] += 1
            return send(*args, **kwargs)

        return counting

    def note(self, adam):
        self.sizes = {
            name: [len(p) if p.dim() else 1, *(len(moment) if p.dim() else 1 for moment in adam.moments[name])]
            for name, p in adam.parameters.items()
        }
        self.step(adam)
        self.by_step.append(self.messages.total())


def train_all(folder, problems):
    watched = Watched()
    noted = {}
    for name, problem in problems.items():
        task, points = problem()
        lines = []
        watched.by_step.clear()
        initialise = None if name.startswith("own") else fit_bias
        report = train(task, points, SHORT, Work(1, "cpu", log=lines.append), name, initialise)
        per_step = np.diff(watched.by_step).tolist()
        noted[name] = {"sizes": watched.sizes, "messages": per_step, "losses": report.losses, "lines": lines}
        if rank() == 0:
            save_file(parameters(task), folder / name)
    (folder / f"noted {rank()}").write_text(json.dumps(noted))


def train_slowly(folder, pause):
    """Train with checkpoints, and leave the parameters behind at the end."""
    task, points = toy(points=120, labels=31)
    train_step = Adam.step

    def slow(adam):
        time.sleep(pause)
        train_step(adam)

    Adam.step = slow
    settings = Training(epochs=4, batch_size=16, lr=0.02, checkpoint_seconds=0.05)

    def say(line):
        if rank() == 0:
            print(line, flush=True)

    train(task, points, settings, Work(3, "cpu", folder, say), initialise=fit_bias)
    if rank() == 0:
        save_file(parameters(task), folder / "end")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        train_slowly(folder, float(sys.argv[2]))
    else:
        train_all(folder, PROBLEMS[process_count()])
