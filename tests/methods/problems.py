"""Small problems with known answers, and the shortest way to train a registered method on one."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xcbench.data import Dataset, Split
from xcbench.plugins.config import build, leaves
from xcbench.plugins.registry import entries, get_method
from xcbench.plugins.stages import seed_generators
from xcbench.runner.context import RunContext
from xcbench.runner.stage_cache import StageCache

QUICK = {"dim": 8, "epochs": 1, "rounds": 2, "min_steps": 2, "steps": 2, "batch_size": 64}


def quick(plugin):
    """Settings that make training short."""
    return {
        key: QUICK[key.rpartition(".")[2]]
        for key in leaves(plugin.config_type())
        if key.rpartition(".")[2] in QUICK and not key.endswith(".steps")
    }


def needs(name):
    """Skip where the library behind a method or reranker is not installed."""
    plugins = [*entries("method"), *entries("reranker")]
    problem = next(entry.problem for entry in plugins if entry.name == name)
    return pytest.mark.skipif(problem is not None, reason=f"{name}: {problem}")


def train(name, data, seed=0, device="cpu", **settings):
    """What `xcbench run --method name` would train, with a cache of its own."""
    method = get_method(name)
    plugin = method(build(method.config_type, settings))
    with tempfile.TemporaryDirectory() as scratch:
        plugin.check_data(data)
        seed_generators(seed)
        return plugin.fit(data, RunContext(seed, device, data, StageCache(Path(scratch)), plugin))


class StageOf:
    """A stage of a method on some data: its key, and its output when asked for."""

    def __init__(self, run, stage, data):
        self.run = run
        self.stage = stage
        self.data = data
        self.key = run.plan(stage, data).key

    def read(self):
        return self.run.stage(self.stage, self.data)

    def __getitem__(self, name):
        return self.read()[name]


def stages_of(method, data, run):
    """The stages of a method by name; nothing is computed until an output is read."""
    return {stage.name: StageOf(run, stage, data) for stage in method.stages}


def csr(rows):
    return sp.csr_array(np.array(rows, np.float32))


def separable(labels=12, points_each=6):
    """Every label has a word that its points have and no others do, beside one word that all have."""
    own = np.arange(labels * points_each) % labels
    words = np.eye(labels, dtype=np.float32)
    X = csr(np.hstack([0.9 * words[own], np.full((len(own), 1), 0.4, np.float32)]))
    Z = csr(np.hstack([words, np.zeros((labels, 1), np.float32)]))
    return Dataset("separable", Split(X, csr(words[own])), Split(X[:labels], csr(words)), Z=Z)


def gappy():
    """Label 0 has no point, point 0 no words, point 1 no label; labels 1 and 2 can be learnt all the same."""
    X = csr([[0, 0, 0], [0, 0, 1], *[[1, 0, 0.1], [0, 1, 0.1]] * 6])
    Y = csr([[0, 1, 1], [0, 0, 0], *[[0, 1, 0], [0, 0, 1]] * 6])
    return Dataset("gappy", Split(X, Y), Split(X[:4], Y[:4]), Z=csr([[0, 0, 1], [1, 0, 0], [0, 1, 0]]))
