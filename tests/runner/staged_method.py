"""A method in three stages that writes down what it computes, and can be told to die in the middle."""

import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from xcbench.data import Dataset, Split, TopK
from xcbench.plugins import (
    Ablation,
    Augmentation,
    Method,
    Predictor,
    Reranker,
    Rescorer,
    load_values,
    register_augmentation,
    register_method,
    register_reranker,
    save_values,
    stage,
)

STEPS = 5


@dataclass(frozen=True)
class GraphConfig:
    kind: Literal["walk", "cooccurrence"] = "walk"
    top: int = 10


@dataclass(frozen=True)
class StagedConfig:
    graph: GraphConfig = field(default_factory=GraphConfig)
    clusters: int = 4
    rate: float = 0.1
    trace: str = ""
    """A file that gets a line for each thing computed."""
    die_at: int = -1
    pause: float = 0.0


class StagedPredictor(Predictor):
    def __init__(self, W):
        self.W = W

    def predict(self, X, k):
        scores = X @ self.W.T
        return TopK.of(np.tile(np.arange(len(self.W)), (X.shape[0], 1)), scores).cut(k).padded(k)

    def save(self, folder):
        save_values(folder, {"W": self.W})

    @classmethod
    def load(cls, folder):
        return cls(load_values(folder)["W"])


WATCHED = {}


def trace(line):
    if WATCHED["trace"]:
        with Path(WATCHED["trace"]).open("a") as stream:
            stream.write(f"{line}\n")


@stage(settings=["graph"], data="unaugmented", seeded=False)
def graph(work):
    trace("graph")
    time.sleep(WATCHED["pause"])
    assert work.config.graph.kind
    Y = work.unaugmented.train.Y
    return {"G": (Y.T @ Y).tocsr(), "seed": work.seed}


@stage(settings=["clusters"], data=(), after=[graph], shared=True)
def clusters(work):
    trace("clusters")
    return {"C": work.generator().integers(0, work.config.clusters, work[graph]["G"].shape[0])}


@stage(settings=["rate"], after=[clusters])
def rank(work):
    train, C = work.data.train, work[clusters]["C"]
    W = (train.Y.T @ train.X).toarray()
    kept = work.checkpoints / "state.json"
    state = json.loads(kept.read_text()) if kept.exists() else {"step": 0, "total": 0.0}
    while state["step"] < STEPS:
        step = state["step"]
        trace(f"rank {step}")
        if step == WATCHED["die_at"]:
            os.kill(os.getpid(), signal.SIGKILL)
        noise = np.random.default_rng([work.seed, step]).random()
        state = {"step": step + 1, "total": state["total"] + noise}
        kept.write_text(json.dumps(state))
    noise = np.random.default_rng(work.seed).normal(0, work.config.rate, W.shape)
    return {"W": (W + noise + 0.01 * C[:, None] + 0.001 * state["total"]).astype(np.float32)}


@register_method("staged")
class Staged(Method[StagedConfig]):
    """Centroids, in three stages"""

    config_type = StagedConfig
    predictor_type = StagedPredictor
    version = "7"
    stages = (graph, clusters, rank)
    ablations: ClassVar = {
        "cooc": Ablation("Staged-Cooc", {"graph.kind": "cooccurrence"}),
        "coarse": Ablation("Staged-2", {"clusters": 2}),
        "fast": Ablation("Staged-Fast", {"rate": 0.5}),
        "slow": Ablation("Staged-Slow", {"rate": 0.01}),
    }
    presets: ClassVar = {"Toy-50": {"rate": 0.2}, "other": {"rate": 0.3, "clusters": 8}}

    def fit(self, data, run):
        # What is watched from outside is no input of a stage, so it takes another way than the config.
        WATCHED.update(trace=self.config.trace, die_at=self.config.die_at, pause=self.config.pause)
        return StagedPredictor(run.stage(rank, data)["W"])


@dataclass(frozen=True)
class DoubleConfig:
    times: int = 2


@register_augmentation("double")
class Double(Augmentation[DoubleConfig]):
    """Every training point several times"""

    config_type = DoubleConfig

    def apply(self, data, run):
        import scipy.sparse as sp

        train, times = data.train, self.config.times
        more = Split(sp.vstack([train.X] * times, format="csr"), sp.vstack([train.Y] * times, format="csr"))
        return Dataset(data.name, more, data.test, data.Z, data.label_titles, data.propensity, data.encoder)


class Reversed(Rescorer):
    def rescore(self, predictions, X, titles=None):
        return TopK.of(predictions.indices, -predictions.scores)

    def save(self, folder):
        save_values(folder, {})

    @classmethod
    def load(cls, folder):
        return cls()


@register_reranker("reverse")
class Reverse(Reranker):
    """Worst first"""

    rescorer_type = Reversed

    def fit(self, data, run, first):
        return Reversed()
