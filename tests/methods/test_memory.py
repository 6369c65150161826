"""What DECAF, ECLARE and Astec say that they will need, before they start, against what they then take."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.methods.problems import train
from xcbench.data import Dataset, Split
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.meter import Meter
from xcbench.runner.toy import toy_dataset
from xcbench.train import loop

ROOT = Path(__file__).parents[2]
MODULES = ("surrogate", "shortlister", "extreme")
SHORT = {"epochs": 0, "min_steps": 4}
methods = pytest.mark.parametrize("name", ["decaf", "eclare", "astec"])


def settings(name, dim):
    modules = {"astec": ["surrogate", "extreme"]}.get(name, [f"{m}.training" for m in MODULES])
    return {"dim": dim} | {f"{module}.{key}": value for module in modules for key, value in SHORT.items()}


def wide(points=2000, labels=8000, tokens=20_000):
    """Few points, many labels and tokens: what is learnt weighs more than the process it is learnt in."""
    random = np.random.default_rng(0)
    X, Z = (
        sp.random_array((n, tokens), density=8 / tokens, format="csr", dtype=np.float32, random_state=random)
        for n in (points, labels)
    )
    Y = sp.random_array((points, labels), density=3 / labels, format="csr", dtype=np.float32, random_state=random)
    Y.data[:] = 1
    return Dataset("wide", Split(X, Y), Split(X[:1], Y[:1]), Z=Z)


def estimated(name, data, dim):
    method = get_method(name)
    return method(build(method.config_type, settings(name, dim))).estimate_memory(data)


@methods
def test_no_module_once_it_is_there_asks_for_much_more(name, monkeypatch):
    data, estimates = wide(400, 500, 3000), []
    monkeypatch.setattr(loop, "check_fits", lambda estimate, *_: estimates.append(estimate.total))
    train(name, data, **settings(name, 32))
    assert len(estimates) == (2 if name == "astec" else 3)
    assert max(estimates) / 2 < estimated(name, data, 32)


@methods
@pytest.mark.parametrize("size", [1, 2, 50])
def test_any_size_can_be_asked(name, size):
    data = toy_dataset(labels=size, train=size, test=1)
    assert 0 < estimated(name, data, 300) < 2**30


@pytest.mark.slow
@methods
def test_training_takes_what_was_said_within_a_factor_of_two(name):
    """In a process of its own: what other tests have left free would be used again unseen."""
    code = f"from tests.methods.test_memory import measured; print(*measured({name!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    took, said = map(int, done.stdout.split()[-2:])
    assert took / 2 < said < took * 2


def measured(name, dim=128):
    """Bytes that training added, and that it said it would."""
    train(name, toy_dataset(), **settings(name, 8))  # compiles kernels
    data = wide()
    before = Meter()
    with before:
        pass
    with Meter() as training:
        train(name, data, **settings(name, dim))
    return training.peak_memory - before.peak_memory, estimated(name, data, dim)
