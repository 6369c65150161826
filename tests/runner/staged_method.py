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


@register_method("staged")
class Staged(Method[StagedConfig]):
    """Centroids, in three stages"""

    config_type = StagedConfig
    predictor_type = StagedPredictor
    version = "7"
    ablations: ClassVar = {
        "cooc": Ablation("Staged-Cooc", {"graph.kind": "cooccurrence"}),
        "coarse": Ablation("Staged-2", {"clusters": 2}),
        "fast": Ablation("Staged-Fast", {"rate": 0.5}),
        "slow": Ablation("Staged-Slow", {"rate": 0.01}),
    }
    presets: ClassVar = {"Toy-50": {"rate": 0.2}, "other": {"rate": 0.3, "clusters": 8}}

    def trace(self, line):
        if self.config.trace:
            with Path(self.config.trace).open("a") as stream:
                stream.write(f"{line}\n")

    def stages(self, data, run):
        config = self.config
        graph = run.stage(
            "graph", lambda work: self.graph(data, work), data=run.unaugmented, config=config.graph, seeded=False
        )
        clusters = run.stage(
            "clusters",
            lambda work: self.clusters(graph["G"], work),
            config={"clusters": config.clusters},
            after=[graph],
            shared=True,
        )
        rank = run.stage(
            "rank",
            lambda work: self.rank(data, clusters["C"], work),
            data=data,
            config={"rate": config.rate},
            after=[clusters],
        )
        return {"graph": graph, "clusters": clusters, "rank": rank}

    def graph(self, data, work):
        self.trace("graph")
        time.sleep(self.config.pause)
        return {"G": (data.train.Y.T @ data.train.Y).tocsr(), "seed": work.seed}

    def clusters(self, G, work):
        self.trace("clusters")
        return {"C": work.generator().integers(0, self.config.clusters, G.shape[0])}

    def rank(self, data, C, work):
        W = (data.train.Y.T @ data.train.X).toarray()
        kept = work.checkpoints / "state.json"
        state = json.loads(kept.read_text()) if kept.exists() else {"step": 0, "total": 0.0}
        while state["step"] < STEPS:
            step = state["step"]
            self.trace(f"rank {step}")
            if step == self.config.die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            noise = np.random.default_rng([work.seed, step]).random()
            state = {"step": step + 1, "total": state["total"] + noise}
            kept.write_text(json.dumps(state))
        noise = np.random.default_rng(work.seed).normal(0, self.config.rate, W.shape)
        return {"W": (W + noise + 0.01 * C[:, None] + 0.001 * state["total"]).astype(np.float32)}

    def fit(self, data, run):
        return StagedPredictor(self.stages(data, run)["rank"]["W"])


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
