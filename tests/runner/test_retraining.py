"""Retraining in a second process: the same stages as one training after the other, whatever happens to the process."""

import sys
import time

import numpy as np
import psutil
import pytest

from xcbench.data.binary import store_dataset
from xcbench.runner import launchers, retraining
from xcbench.runner.context import RunContext
from xcbench.runner.execute import run
from xcbench.runner.plan import plan
from xcbench.runner.resolve import resolve
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset

SHORT = {"dim": 8} | {f"{module}.training.steps": 3 for module in ("surrogate", "shortlister", "extreme")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dataset that any process can load, with as many points as calibration needs to ask for a retraining."""
    folder = tmp_path_factory.mktemp("data") / "toy"
    store_dataset(toy_dataset(train=2500), folder)
    return folder


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setenv("XCBENCH_THREADS", "2")


def spec_of(folder, **changes):
    return RunSpec("decaf", str(folder), **{"rerank": "calibrated", "overrides": SHORT, **changes})


def go(folder, home, **how):
    return run(spec_of(folder), store=home / "runs", cache=home / "stages", **how)


def states(record):
    return [stage.state for stage in record.stages]


def test_stages_are_those_of_trainings_one_after_the_other(folder, tmp_path, monkeypatch, caplog):
    both = go(folder, tmp_path / "two")
    assert states(both) == ["ran"] * 3 + ["parallel"] * 3
    assert "retraining in a second process, with 1 of 2 threads" in caplog.text
    assert both.train_seconds <= both.seconds
    assert both.peak_memory > max(stage.peak_memory for stage in both.stages)
    monkeypatch.setenv("XCBENCH_THREADS", "1")
    one = go(folder, tmp_path / "one")
    assert states(one) == ["ran"] * 6
    caches = [StageCache(tmp_path / name / "stages") for name in ("two", "one")]
    for stage in both.stages:
        (_, ours), (_, theirs) = (cache.read("decaf", stage.name, stage.key) for cache in caches)
        for name in ("E", "W", "bias"):
            if name in ours:
                assert np.array_equal(ours[name], theirs[name])


def test_redone_stages_are_redone_once(folder, tmp_path):
    before = go(folder, tmp_path)
    cache = StageCache(tmp_path / "stages")
    made = {stage.key: cache.note("decaf", stage.name, stage.key).created for stage in before.stages}
    after = go(folder, tmp_path, overwrite=OverwriteStrategy.REDO)
    assert states(after) == ["ran"] * 3 + ["parallel"] * 3
    assert all(cache.note("decaf", stage.name, stage.key).created > made[stage.key] for stage in after.stages)


def test_a_process_that_fails_costs_only_time(folder, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(launchers, "PROGRAM", (sys.executable, "-c", "raise SystemExit('it was not to be')"))
    record = go(folder, tmp_path)
    assert states(record) == ["ran"] * 6
    assert "failed, so it is done here: it was not to be" in caplog.text


def test_it_ends_with_a_run_that_fails(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(launchers, "PROGRAM", (sys.executable, "-c", "import time; time.sleep(60)"))
    resolved = resolve(spec_of(folder))
    context = RunContext(0, "cpu", resolved.data, StageCache(tmp_path), resolved.method)
    already_there = set(psutil.Process().children())
    with pytest.raises(KeyboardInterrupt), retraining.parallel_retraining(resolved, context, 2, wanted=True):
        # Workers that other tests have left behind are not meant.
        (child,) = set(psutil.Process().children()) - already_there
        raise KeyboardInterrupt
    for _ in range(100):
        if not child.is_running() or child.status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    pytest.fail("the process is still there")


@pytest.mark.parametrize(
    ("changes", "threads", "device"),
    [({}, 1, "cpu"), ({}, 2, "cuda"), ({"rerank": "sparse"}, 2, "cpu"), ({"rerank": None}, 2, "cpu")],
)
def test_none_is_started_without_cores_or_need(changes, threads, device, folder, tmp_path):
    resolved = resolve(spec_of(folder, **changes))
    context = RunContext(0, device, resolved.data, StageCache(tmp_path), resolved.method)
    assert not retraining.can_retrain_in_parallel(resolved, context, threads)


def test_none_is_started_for_what_another_process_could_not_load_or_keep(folder, tmp_path):
    handed_over = resolve(spec_of(folder), toy_dataset(train=2500))
    without_stages = resolve(RunSpec("knn", str(folder), rerank="calibrated"))
    plain = resolve(spec_of(folder))
    for resolved, expected in ((handed_over, False), (without_stages, False), (plain, True)):
        context = RunContext(0, "cpu", resolved.data, StageCache(tmp_path), resolved.method)
        assert retraining.can_retrain_in_parallel(resolved, context, 2) is expected


def test_memory_of_two_processes_is_said_beforehand(folder, tmp_path, monkeypatch):
    two = plan(spec_of(folder), store=tmp_path)
    monkeypatch.setenv("XCBENCH_THREADS", "1")
    one = plan(spec_of(folder), store=tmp_path)
    assert two.memory.bytes > 1.5 * one.memory.bytes
    assert "2 times at once" in two.memory.source
