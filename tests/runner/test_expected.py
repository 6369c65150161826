"""The time and the disk that a plan expects."""

import dataclasses
from pathlib import Path

import pytest

from xcbench.costs import StageCost
from xcbench.disk import folder_size
from xcbench.plugins import Method
from xcbench.runner import expected
from xcbench.runner.execute import run
from xcbench.runner.expected import DiskForecast, Speed
from xcbench.runner.plan import plan
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset

STAGED = str(Path(__file__).with_name("staged_method.py"))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def slow_machine(monkeypatch):
    """1000 operations and 10 bytes per second."""
    monkeypatch.setattr(expected, "measured_speed", lambda _: Speed(1000, 10))


def test_time_follows_from_the_work_of_trainings(slow_machine, monkeypatch):
    costs = {"clusters": StageCost(operations=4000, traffic=50), "rank": StageCost(operations=500, output=7)}
    monkeypatch.setattr(Method, "estimate_costs", lambda *_: costs)
    planned = plan(RunSpec(STAGED, ensemble=2), data=toy_dataset())
    # At half of the speed of a large product.
    assert planned.time.stages == (None, 8 + 5, 1, None, 8 + 5, 1)
    assert planned.time.seconds == 28
    assert planned.time.source.startswith("training alone")
    assert planned.disk.stages == 14
    assert planned.disk.model == 14


def test_a_stored_run_with_the_same_settings_knows_better(slow_machine, monkeypatch):
    data = toy_dataset()
    assert plan(RunSpec(STAGED), data=data).time.seconds is None
    record = run(RunSpec(STAGED), data=data)
    seconds = [stage.seconds for stage in record.stages]
    same = plan(RunSpec(STAGED, seed=1), data=data)
    assert list(same.time.stages) == pytest.approx([0, *seconds[1:]])  # the graph has no seed, and is in the cache
    assert "with these settings" in same.time.source

    other = plan(RunSpec(STAGED, overrides={"rate": 0.5}), data=data)
    assert list(other.time.stages) == pytest.approx([0, 0, seconds[2]])  # the first two are in the cache
    assert "with other settings" in other.time.source

    costs = {"rank": StageCost(operations=500)}
    monkeypatch.setattr(Method, "estimate_costs", lambda *_: costs)
    assert plan(RunSpec(STAGED, overrides={"rate": 0.5}), data=data).time.seconds == 1


def forecast(**numbers):
    there = {
        "cache": Path("stages"),
        "stages": 10,
        "checkpoints": 5,
        "free_in_cache": 20,
        "store": Path("runs"),
        "predictions": 3,
        "model": 4,
        "free_in_store": 20,
        "is_one_disk": True,
    }
    return DiskForecast(**there | numbers)


def test_two_folders_on_one_disk_share_what_is_free():
    assert forecast(free_in_cache=22, free_in_store=22).problems == []
    shared = forecast(free_in_cache=21, free_in_store=21)
    assert len(shared.problems) == 1
    apart = dataclasses.replace(shared, is_one_disk=False)
    assert apart.problems == []
    (problem,) = dataclasses.replace(apart, free_in_store=6).problems
    assert "disk of runs" in problem


def test_what_is_not_known_does_not_count():
    unknown = forecast(stages=None, checkpoints=None, model=None, free_in_cache=3)
    assert unknown.problems == []


SHORT = {"epochs": 0, "min_steps": 2}
SETTINGS = {
    "decaf": {"dim": 32}
    | {f"{m}.training.{k}": v for m in ("surrogate", "shortlister", "extreme") for k, v in SHORT.items()},
    "ova": {"encoder.dim": 32} | {f"training.{k}": v for k, v in SHORT.items()},
}


@pytest.mark.parametrize("method", sorted(SETTINGS))
def test_stages_leave_what_was_said(method, home):
    data = toy_dataset(labels=600, train=1200)
    spec = RunSpec(method, preset="none", overrides=SETTINGS[method])
    before = plan(spec, data=data)
    record = run(spec, data=data)
    size = folder_size(StageCache().folder)
    assert size / 1.5 < before.disk.stages < size * 1.1
    assert before.disk.predictions == 8 * len(data.test) * 100
    assert before.disk.model > record.model_bytes / 2
    after = plan(spec, data=data)
    assert after.disk.stages == 0
