"""What methods of the training loop say that they will need, before they start, against what they then take."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.methods.problems import train
from tests.stand_in_device import MEMORY, StandInDevice, train_on_stand_in
from xcbench.data import Dataset, Split
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.meter import Meter
from xcbench.runner.toy import toy_dataset
from xcbench.train import loop

ROOT = Path(__file__).parents[2]
MODULES = ("surrogate", "shortlister", "extreme")
SHORT = {"epochs": 0, "min_steps": 4}
TRAININGS = {"elias": ("warm_up", "fixed", "learnt"), "ova": ("training",)}
methods = pytest.mark.parametrize("name", ["decaf", "eclare", "astec"])
all_methods = pytest.mark.parametrize("name", ["decaf", "eclare", "astec", *TRAININGS])


def settings(name, dim):
    if name in TRAININGS:
        lengths = {f"{training}.{key}": value for training in TRAININGS[name] for key, value in SHORT.items()}
        return {"encoder.dim": dim, "encoder.start": "random"} | lengths
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


def plugin(name, config):
    method = get_method(name)
    return method(build(method.config_type, config))


def estimated(name, data, dim):
    return plugin(name, settings(name, dim)).estimate_memory(data)


@methods
def test_no_module_once_it_is_there_asks_for_much_more(name, monkeypatch):
    data, estimates = wide(400, 500, 3000), []
    monkeypatch.setattr(loop, "check_fits", lambda estimate, *_: estimates.append(estimate.total))
    train(name, data, **settings(name, 32))
    assert len(estimates) == (2 if name == "astec" else 3)
    assert max(estimates) / 2 < estimated(name, data, 32)


@pytest.mark.parametrize("name", ["decaf", "decaf, frozen", "eclare", "eclare, frozen", "astec"])
def test_modules_take_on_a_device_what_was_said(name, monkeypatch):
    """The estimate of each module against the most bytes that the stand-in had allocated for it at a time."""
    train_on_stand_in(monkeypatch)
    method, *frozen = name.split(", ")
    data = wide(300, 1000, 3000)
    config = settings(method, 64)
    if frozen:
        config["freeze"] = True
    said = []
    took = []

    def note(estimate, *_):
        said.append(estimate.on_device)
        took.append(-MEMORY.start_of_peak())

    run_training = loop._Trainer.run

    def measured_run(trainer, *args):
        report = run_training(trainer, *args)
        took[-1] += MEMORY.peak
        return report

    monkeypatch.setattr(loop, "check_fits", note)
    monkeypatch.setattr(loop._Trainer, "run", measured_run)
    with StandInDevice():
        train(method, data, device="standin", **config)
    assert len(said) == (2 if method == "astec" else 3)
    assert np.array(said) == pytest.approx(np.array(took), rel=0.3)

    before_any_stage = plugin(method, config).estimate_device_memory(data)
    # One that is too low is found out by the modules; one that is too high would refuse what fits.
    assert max(took) / 3 < before_any_stage < max(took) * 2


@all_methods
@pytest.mark.parametrize("size", [1, 2, 50])
def test_any_size_can_be_asked(name, size):
    data = toy_dataset(labels=size, train=size, test=1)
    assert 0 < estimated(name, data, 300) < 2**30


@pytest.mark.slow
@all_methods
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
