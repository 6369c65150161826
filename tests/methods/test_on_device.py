"""Every method that trains by the loop learns on another device what it learns on the CPU."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.stand_in_device import StandInDevice, train_on_stand_in
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.plugins.stages import seed_generators
from xcbench.runner.context import RunContext
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset

MODULES = ("surrogate", "shortlister", "extreme")
SHORT = {"epochs": 1, "min_steps": 6, "batch_size": 32}


def cascade(**settings):
    short = {f"{module}.training.{key}": value for module in MODULES for key, value in SHORT.items()}
    return {"dim": 8} | short | settings


# Biases start at 0: their fitted start is a search, which stops at a slightly different value for any rounding.
RUNS = {
    "decaf": ("decaf", cascade(fitted_bias=False)),
    "decaf, frozen": ("decaf", cascade(fitted_bias=False, freeze=True)),
    "eclare": ("eclare", cascade(**{"classifier.fitted_bias": False})),
    "eclare, frozen": ("eclare", cascade(freeze=True, **{"classifier.fitted_bias": False})),
    "astec": ("astec", {"dim": 8} | {f"{m}.{key}": v for m in ("surrogate", "extreme") for key, v in SHORT.items()}),
    "mach": ("mach", {"repetitions": 2, "hidden": 8, "epochs": 2, "batch_size": 32}),
    "siamese": ("siamese", {"dim": 8, "rounds": 2, "epochs": 1, "batch_size": 32}),
    "siamesexml": ("siamesexml", {"dim": 8, "rounds": 2, "epochs": 1, "extreme_epochs": 1, "batch_size": 32}),
}


def predictions(name, settings, device):
    """The best labels of the test points, after a short training."""
    method = get_method(name)
    plugin = method(build(method.config_type, settings))
    data = toy_dataset()
    with tempfile.TemporaryDirectory() as scratch:
        seed_generators(0)
        predictor = plugin.fit(data, RunContext(0, device, data, StageCache(Path(scratch)), plugin))
    return predictor.predict(data.test.X, 5)


@pytest.mark.parametrize("name", RUNS)
def test_a_method_learns_there_what_it_learns_on_the_cpu(name, monkeypatch):
    train_on_stand_in(monkeypatch)
    method, settings = RUNS[name]
    expected = predictions(method, settings, "cpu")
    with StandInDevice() as device:
        result = predictions(method, settings, "standin")
    assert device.count("to device") > 0
    waits = {event.line.split(":")[0] for event in device.events if event.kind == "wait"}
    expected_waits = {"xcbench/train/loop.py"}  # which reads the loss now and then
    if method == "eclare":
        expected_waits.add("xcbench/shortlist/device/rows.py")  # GAME's lists, of training points before they train
    assert waits == expected_waits
    np.testing.assert_allclose(result.scores, expected.scores, rtol=1e-3, atol=1e-4)
    assert (result.indices == expected.indices).mean() > 0.98  # but for ties
