"""An epoch and a prediction of InceptionXML at the authors' settings, compared with a plain torch version of the same.

The plain version pads every title to 32 words, multiplies the attentions in the better of the two orders, and uses
torch's convolutions, dropout, losses and Adam. Both take steps of the same sizes on the same titles, in turn, so that
other work on the machine slows both alike.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.parametrizations import spectral_norm

from benchmarks.figure import Figure
from xcbench.data import Dataset, load_dataset
from xcbench.kernels.arrays import Longs
from xcbench.kernels.csr import SparseRows
from xcbench.methods.inceptionxml import TitleNetwork, free_labels, network_of, words
from xcbench.nn import inception_size
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.plugins.stages import seed_generators
from xcbench.runner.context import RunContext
from xcbench.runner.stage_cache import StageCache
from xcbench.shortlist import exact_topk
from xcbench.threads import set_threads
from xcbench.train import Points, RankAll, Training, train

S = 32
D = 300
B = 128
STEPS = 10
ROUNDS = 4
PLAIN = "plain torch"
POINTS = 1024
TOP = 100


class PlainInception(nn.Module):
    """Encoder, head and classifiers as one would write them first."""

    def __init__(self, vocabulary: int, labels: int) -> None:
        super().__init__()
        self.E = nn.Embedding(vocabulary + 1, D, padding_idx=vocabulary)
        self.W1 = spectral_norm(nn.Conv1d(S, S, 1, bias=False))
        self.W2 = spectral_norm(nn.Conv1d(D, D, 1, bias=False))
        self.g1 = nn.Parameter(torch.zeros(()))
        self.g2 = nn.Parameter(torch.zeros(()))
        self.projection = nn.Sequential(nn.Conv1d(S, 32, 1), nn.GELU(), nn.BatchNorm1d(32), nn.Dropout(0.25))
        self.branches = nn.ModuleList(
            nn.Conv1d(32, 32, width, 4, padding, padding_mode="circular")
            for width, padding in ((4, 0), (8, 2), (16, 6))
        )
        self.merge = nn.Sequential(nn.GELU(), nn.BatchNorm1d(96), nn.Dropout(0.25))
        self.last = nn.Sequential(nn.Conv1d(96, 32, 16, 4), nn.GELU(), nn.BatchNorm1d(32), nn.Flatten())
        size = inception_size(D)
        self.head = nn.Sequential(nn.Dropout(0.25), nn.Linear(size, size), nn.GELU(), nn.BatchNorm1d(size))
        self.labels = nn.Linear(size, labels)
        self.drop_words = nn.Dropout(0.25)
        self.drop_last = nn.Dropout(0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of all labels."""
        X0 = self.drop_words(self.E(ids))
        X1 = X0 + self.g1 * (X0 @ X0.transpose(1, 2)) @ self.W1(X0)
        X1_T = X1.transpose(1, 2)
        X2_T = X1_T + self.g2 * X1_T @ (X0 @ self.W2(X1_T))
        rows = self.projection(X2_T.transpose(1, 2))
        rows = self.merge(torch.cat([branch(rows) for branch in self.branches], 1))
        h = self.last(rows)
        logits: Tensor = self.labels(self.drop_last(self.head(h) + h))
        return logits


def measure() -> Iterator[Figure]:
    set_threads()
    data = load_dataset("lf-debian-4k")
    points, vocabulary = titles_of(data)
    yield training_figure(data, points, vocabulary)
    yield prediction_figure(data, points, vocabulary)


def titles_of(data: Dataset) -> tuple[Points, int]:
    """The words of the training titles with their labels, and the size of the vocabulary."""
    method = get_method("inceptionxml")
    with tempfile.TemporaryDirectory() as folder:
        run = RunContext(0, "cpu", data, StageCache(Path(folder)), method(build(method.config_type)))
        sequences = run.stage(words, data)["train"]
    return Points(sequences, data.train.Y), int(sequences.shape[1])


def our_task(data: Dataset, vocabulary: int) -> RankAll:
    seed_generators(0)
    method = get_method("inceptionxml")
    c = build(method.config_type, method.presets["LF-AmazonTitles-131K"])
    E = np.random.default_rng(0).uniform(-0.25, 0.25, (vocabulary, D)).astype(np.float32)
    return RankAll(network_of(c, E), free_labels(c, data.label_count, inception_size(D), 0.0), "mean")


def padded(points: Points, rows: Longs, vocabulary: int) -> Tensor:
    """[rows, 32] of ids, padded."""
    batch = points.cut(rows).X
    assert isinstance(batch, SparseRows)
    ids = torch.full((len(rows), S), vocabulary)
    for i in range(len(rows)):
        tokens = batch.indices[batch.indptr[i] : batch.indptr[i + 1]]
        ids[i, : len(tokens)] = torch.from_numpy(tokens)
    return ids


def training_figure(data: Dataset, points: Points, vocabulary: int) -> Figure:
    steps_per_epoch = -(-len(points) // B)
    ours = our_task(data, vocabulary)
    settings = Training(0.005, B, steps=STEPS)
    plain = PlainInception(vocabulary, data.label_count)
    optimiser = torch.optim.Adam(plain.parameters(), lr=0.005)
    ids = padded(points, np.arange(STEPS * B), vocabulary)  # prepared once: its preparation is not what is compared
    Y = data.train.Y[: STEPS * B]

    def plain_steps() -> None:
        plain.train()
        for first in range(0, STEPS * B, B):
            targets = torch.from_numpy(Y[first : first + B].toarray())
            loss = binary_cross_entropy_with_logits(plain(ids[first : first + B]), targets)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    def our_steps() -> None:
        train(ours, points, settings)

    our_cost, plain_cost = in_turn(our_steps, plain_steps)
    return Figure(
        what="epoch of InceptionXML on lf-debian-4k",
        ours=our_cost / STEPS * steps_per_epoch,
        reference=plain_cost / STEPS * steps_per_epoch,
        unit="CPU s",
        reference_name=PLAIN,
        at_least=1,
    )


def prediction_figure(data: Dataset, points: Points, vocabulary: int) -> Figure:
    ours = our_task(data, vocabulary)
    assert isinstance(ours.documents, TitleNetwork)
    W, bias = (table.detach().numpy() for table in ours.labels(None))
    rows = np.arange(POINTS)
    batch = points.cut(rows).X
    plain = PlainInception(vocabulary, data.label_count).eval()
    ids = padded(points, rows, vocabulary)
    ours.eval()

    @torch.no_grad()
    def our_prediction() -> None:
        exact_topk(ours.documents(batch), W, TOP, bias)

    @torch.no_grad()
    def plain_prediction() -> None:
        plain(ids).topk(TOP)

    our_cost, plain_cost = in_turn(our_prediction, plain_prediction)
    return Figure(
        what=f"prediction of {TOP} labels per title, in batches",
        ours=1000 * our_cost / POINTS,
        reference=1000 * plain_cost / POINTS,
        unit="ms",
        reference_name=PLAIN,
        at_least=1,
    )


def in_turn(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """The smallest CPU times of both, measured in turn after one call each that compiles and allocates."""
    first()
    second()
    costs = [(_cost(first), _cost(second)) for _ in range(ROUNDS)]
    return min(cost[0] for cost in costs), min(cost[1] for cost in costs)


def _cost(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
