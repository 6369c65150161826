"""Each promise of the contract is broken once, and the check must notice exactly that."""

import dataclasses

import pytest

from xcbench.errors import InputError
from xcbench.plugins.registry import entries, get_method
from xcbench.runner.check import check_method
from xcbench.runner.resolve import resolve
from xcbench.runner.spec import RunSpec
from xcbench.runner.toy import toy_dataset

HONEST = """
import json
from dataclasses import dataclass, field

import numpy as np

from xcbench.plugins import Ablation, Method, Predictor, load_values, register_method, save_values, stage
from xcbench.data import TopK


@dataclass(frozen=True)
class Config:
    bonus: float = 0.0


class Linear(Predictor):
    def __init__(self, W):
        self.W = W

    def predict(self, X, k):
        scores = X @ self.W.T
        found = TopK.of(np.tile(np.arange(len(self.W)), (X.shape[0], 1)), scores).cut(k)
        return found.padded(k)

    def save(self, folder):
        save_values(folder, {"W": self.W})

    @classmethod
    def load(cls, folder):
        return cls(load_values(folder)["W"])


@stage(settings=["bonus"])
def weights(work):
    data, bonus = work.data, work.config.bonus
    return {"W": (data.train.Y.T @ data.train.X).toarray()}


@register_method("mine")
class Mine(Method):
    config_type = Config
    predictor_type = Linear
    ablations = {"more": Ablation("More", {"bonus": 1.0})}

    stages = (weights,)

    def fit(self, data, run):
        return Linear(run.stage(weights, data)["W"])
"""

BROKEN = {
    "trains on 50 labels": ("data, bonus = work.data, work.config.bonus", "raise RuntimeError('no gradient')"),
    "predictions are well-formed": ("found.padded(k)", "found.rows((slice(None), slice(None, None, -1)))"),
    "leaves the data unchanged": ('    return {"W"', '    data.train.X.data[:] *= 2\n    return {"W"'),
    "does not look at the test points": ("data.train.X).toarray()", "data.train.X).toarray() + len(data.test)"),
    "the same seed gives the same model": (
        "data.train.X).toarray()",
        "data.train.X).toarray() + np.random.default_rng().random((data.label_count, data.feature_count))",
    ),
    "finished stages are reused": (
        "bonus: float = 0.0",
        "bonus: float = field(default=0.0, metadata={'identity': lambda value: np.random.default_rng().random()})",
    ),
    "save and load change nothing": ('{"W": self.W}', '{"W": self.W + np.eye(*self.W.shape)}'),
    "points are predicted one by one": ("X @ self.W.T", "X @ self.W.T + X.sum()"),
    "odd inputs are fine": ("scores = X", "assert X.nnz\n        scores = X"),
    "tiny data is fine": ('    return {"W"', '    assert data.label_count > 2\n    return {"W"'),
    "every ablation trains": ('    return {"W"', '    assert not bonus\n    return {"W"'),
    "ablations and presets fit the config": ('{"bonus": 1.0}', '{"bonus": 0.0}'),
}


def problems(path):
    return {finding.question: finding.problem for finding in check_method(str(path)) if finding.broken}


def test_an_honest_method_passes(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HONEST)
    assert problems(path) == {}


@pytest.mark.parametrize("question", BROKEN)
def test_each_broken_promise_is_found(tmp_path, question):
    path = tmp_path / "mine.py"
    right, wrong = BROKEN[question]
    assert right in HONEST
    path.write_text(HONEST.replace(right, wrong))
    found = problems(path)
    assert question in found
    # A mistake may break one promise through another, but not most of them.
    assert len(found) <= 3, found


def test_a_pickle_is_found(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        HONEST.replace(
            'save_values(folder, {"W": self.W})',
            'import pickle; (folder / "w.bin").write_bytes(pickle.dumps(self.W)); save_values(folder, {"W": self.W})',
        )
    )
    assert "pickle" in problems(path)["save and load change nothing"]


def test_errors_say_where(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HONEST.replace("scores = X", "scores = X * (1 / 0) * X"))
    assert "ZeroDivisionError at mine.py:" in problems(path)["predictions are well-formed"]


def test_an_ablation_that_names_no_key_is_found(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HONEST.replace('{"bonus": 1.0}', '{"bonsu": 1.0}'))
    assert "did you mean bonus" in problems(path)["ablations and presets fit the config"]


def test_a_method_that_is_not_there_is_the_users_mistake():
    with pytest.raises(InputError, match="did you mean knn"):
        list(check_method("knnn"))


# On demand only: what installs something on first use, and what trains for long (asked with short training by tests of
# its own).
SLOW = {
    name: [pytest.mark.slow]
    for name in (
        "xrlinear",
        "decaf",
        "eclare",
        "astec",
        "inceptionxml",
        "inceptionxml-lf",
        "gandalf",
        "elias",
        "ova",
        "attentionxml",
    )
}
USABLE = [entry.name for entry in entries("method") if not entry.problem]


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, [])) for name in USABLE])
def test_built_in_methods_keep_the_contract(name):
    assert {f.question: f.problem for f in check_method(name) if f.broken} == {}


def test_a_dataset_without_titles_is_refused_when_the_run_is_resolved(monkeypatch):
    data = toy_dataset()
    monkeypatch.setattr(get_method("popularity"), "needs_titles", True)
    assert resolve(RunSpec("popularity"), data).data is data
    for split in ("train", "test"):
        without = dataclasses.replace(getattr(data, split), titles=None)
        with pytest.raises(InputError, match="method 'popularity' reads titles, which dataset 'toy-50' does not have"):
            resolve(RunSpec("popularity"), dataclasses.replace(data, **{split: without}))
