"""A method that trains in as many processes as there are, and writes down which of them did what."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from xcbench.data import TopK
from xcbench.plugins import Method, Predictor, load_values, register_method, save_values, stage
from xcbench.train import Points, Training, train


def rank():
    return os.environ.get("RANK", "0")


@dataclass(frozen=True)
class SpreadConfig:
    trace: str = ""


class Linear(nn.Module):
    def __init__(self, tokens, labels):
        super().__init__()
        self.W = nn.Parameter(torch.zeros(labels, tokens))

    def loss(self, batch):
        X, Y = (torch.from_numpy(M[batch.rows].toarray()) for M in self.data)
        return nn.functional.binary_cross_entropy_with_logits(X @ self.W.T, Y)


class SpreadPredictor(Predictor):
    def __init__(self, W, trace=""):
        self.W, self.trace = W, trace

    def predict(self, X, k):
        scores = X @ self.W.T
        return TopK.of(np.tile(np.arange(len(self.W)), (X.shape[0], 1)), scores).cut(k).padded(k)

    def save(self, folder):
        note(self.trace, "saved")
        save_values(folder, {"W": self.W})

    @classmethod
    def load(cls, folder):
        return cls(load_values(folder)["W"])


def note(trace, what):
    if trace:
        with Path(trace).open("a") as stream:
            stream.write(f"{what} {rank()}\n")


WATCHED = {}


@stage()
def counts(work):
    note(WATCHED["trace"], "counts")
    mine = work.checkpoints / "mine"
    mine.write_text(rank())
    for _ in work.progress(range(3), "counting"):
        assert mine.read_text() == rank()
    return {"counts": work.data.train.Y.sum(axis=0) + float(rank())}  # what the first kept counts for all


@stage(after=[counts])
def learn(work):
    points = work.data.train
    note(WATCHED["trace"], f"counts begin with {work[counts]['counts'][0]:.0f}, learn")
    module = Linear(points.X.shape[1], work.data.label_count)
    module.data = points.X, points.Y
    train(module, Points(points.X, points.Y), Training(epochs=3, batch_size=16, lr=0.1), work)
    note(WATCHED["trace"], "learnt")
    return {"W": module.W.detach().numpy()}


@register_method("spread")
class Spread(Method[SpreadConfig]):
    """One matrix, learnt together"""

    config_type = SpreadConfig
    predictor_type = SpreadPredictor
    stages = (counts, learn)

    def fit(self, data, run):
        WATCHED["trace"] = self.config.trace
        return SpreadPredictor(run.stage(learn, data)["W"], self.config.trace)
