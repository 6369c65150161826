"""A method whose accuracy, or misfortune, is set by its config. Points must carry their label as their only feature."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xcbench.data import TopK
from xcbench.plugins.contract import Method, Predictor, register_method


@dataclass(frozen=True)
class ScriptedConfig:
    right: float = 1.0
    """The share of points, from the first on, that get their label; the others get the next one."""
    noise: int = 0
    """Seeds move this many of the right points out of the front."""
    end: str = "well"
    """How training ends: well, error, memory, kill, crash or never."""
    note: str = ""
    """A file to write the process id to."""


class ScriptedPredictor(Predictor):
    def __init__(self, right: float, first: int, labels: int) -> None:
        self.right, self.first, self.labels = right, first, labels

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        n = X.shape[0]
        found = X.indices[X.indptr[:-1]].astype(np.int64)
        wrong = np.arange(n) >= self.first + round(self.right * n)
        wrong[: self.first] = True
        order = (found[:, None] + wrong[:, None] + np.arange(min(k, self.labels))) % self.labels
        indices = np.full((n, k), -1, np.int32)
        indices[:, : order.shape[1]] = order
        scores = np.full((n, k), -np.inf, np.float32)
        scores[:, : order.shape[1]] = -np.arange(order.shape[1])
        return TopK(indices, scores)

    def save(self, folder: Path) -> None:
        (folder / "scripted.txt").write_text(f"{self.right} {self.first} {self.labels}")

    @classmethod
    def load(cls, folder: Path) -> "ScriptedPredictor":
        right, first, labels = (folder / "scripted.txt").read_text().split()
        return cls(float(right), int(first), int(labels))


@register_method("scripted")
class Scripted(Method[ScriptedConfig]):
    """Does as it is told"""

    config_type = ScriptedConfig
    predictor_type = ScriptedPredictor

    def fit(self, data, run):
        if self.config.note:
            Path(self.config.note).write_text(str(os.getpid()))
        if self.config.end == "error":
            raise RuntimeError("the loss is not a number")
        if self.config.end == "memory":
            raise MemoryError("Unable to allocate 2.38 TiB")
        if self.config.end in ("kill", "crash"):
            os.kill(os.getpid(), signal.SIGKILL if self.config.end == "kill" else signal.SIGSEGV)
        if self.config.end == "never":
            time.sleep(600)
        run.report("curve", {"x": [1, 2, 3], "y": {"a": [1.0, 2.0, 3.0], "b": [3.0, 2.0, self.config.right]}})
        run.report("LMI", 12.5)
        return ScriptedPredictor(self.config.right, run.seed * self.config.noise, data.label_count)
