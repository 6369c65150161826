"""Ray on this machine: a lost worker is replaced, and a run that loses too many is reported."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from xcbench.data.binary import store_dataset
from xcbench.runner import launchers, ray_launcher
from xcbench.runner.launchers import Job
from xcbench.runner.ray_launcher import LOSSES, RayLauncher
from xcbench.runner.store import Store
from xcbench.runner.toy import toy_dataset

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow

SCRIPT = """
    import os, pathlib, signal, sys
    _, verb, place = sys.argv[1:]
    tries = len(list(pathlib.Path(place).iterdir()))
    pathlib.Path(place, str(tries)).touch()
    if verb == "unlucky" and tries == 0 or verb == "cursed":
        os.kill(os.getppid(), signal.SIGKILL)  # the Ray worker that watches us
    if verb == "wrong":
        sys.exit("xcbench: the loss is not a number")
    print(verb, os.environ["XCBENCH_THREADS"])
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return path


def run_scripted(job: Job, thread_count: int, timeout: float | None):
    """What a worker does, with the script in place of the command line."""
    launchers.PROGRAM = (sys.executable, os.environ["SCRIPT"])
    return launchers.run_here(job, thread_count, timeout)


def test_lost_workers_are_replaced_or_reported(tmp_path, script, monkeypatch):
    monkeypatch.setenv("SCRIPT", str(script))
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.setenv("XCBENCH_THREADS", "2")
    monkeypatch.setattr(ray_launcher, "_FORWARDED", ("SCRIPT", "PYTHONPATH"))
    monkeypatch.setattr(ray_launcher, "run_here", run_scripted)
    jobs = []
    for verb in ("fine", "unlucky", "cursed", "wrong"):
        (tmp_path / verb).mkdir()
        jobs.append(Job(verb, (verb, str(tmp_path / verb))))
    outcomes = {outcome.job.title: outcome for outcome in RayLauncher(2).launch(jobs)}
    assert set(outcomes) == {"fine", "unlucky", "cursed", "wrong"}
    assert outcomes["fine"].failure is None
    assert outcomes["fine"].output == "fine 1\n"
    assert outcomes["unlucky"].failure is None
    assert len(list((tmp_path / "unlucky").iterdir())) == 2
    assert outcomes["cursed"].failure.startswith(f"its worker was lost {LOSSES} times")
    assert len(list((tmp_path / "cursed").iterdir())) == LOSSES
    assert outcomes["wrong"].failure == "the loss is not a number"
    assert not ray.is_initialized()


TABLE = """
    title: Three methods
    metrics: [P@1, P@5]
    rows:
      - label: DECAF
        method: decaf
        overrides:
          dim: 16
          surrogate.training.steps: 1500
          surrogate.training.checkpoint_seconds: 0.05
          shortlister.training.steps: 30
          extreme.training.steps: 30
      - {label: nearest training points, method: knn}
      - {label: nearest label text, method: label-text}
"""


class Table:
    """A table by one of the launchers, with a home of its own."""

    def __init__(self, data, home, launcher):
        self.home = home
        (self.home / "table.yaml").write_text(textwrap.dedent(TABLE))
        self.command = [sys.executable, "-m", "xcbench", "table", str(self.home / "table.yaml")]
        self.command += ["--dataset", str(data), "--launcher", launcher, "--jobs", "2", "--device", "cpu"]
        self.command += ["--format", "md", "--output", str(self.home / "table.md")]

    def start(self):
        environment = {**os.environ, "XCBENCH_HOME": str(self.home), "XCBENCH_THREADS": "2"}
        return subprocess.Popen(self.command, env=environment, stderr=subprocess.DEVNULL)

    def kill(self, table, victim):
        """Kill the run that has just written a checkpoint, or the worker that waits for it."""
        deadline = time.monotonic() + 200
        while not any(self.home.glob("stages/*.checkpoints/*.safetensors")) and time.monotonic() < deadline:
            assert table.poll() is None
            time.sleep(0.01)
        (run,) = (
            process
            for process in psutil.Process(table.pid).children(recursive=True)
            if {"xcbench.cli.worker", "decaf"} <= set(process.cmdline())
        )
        if victim == "worker":
            run = run.parent()
        run.kill()

    @property
    def text(self):
        return (self.home / "table.md").read_text()

    @property
    def records(self):
        return {record.method: record for record in Store(self.home / "runs").records()}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    home = tmp_path_factory.mktemp("local")
    store_dataset(toy_dataset(labels=60, train=300, test=60), home / "toy")
    table = Table(home / "toy", home, "local")
    assert table.start().wait(timeout=600) == 0
    return table


@pytest.mark.parametrize("victim", ["worker", "run"])
def test_a_table_loses_nothing_when_something_is_killed(victim, local, tmp_path):
    table = Table(local.home / "toy", tmp_path, "ray")
    command = table.start()
    table.kill(command, victim)
    if victim == "worker":
        assert command.wait(timeout=600) == 0
    else:
        # Its own death is the run's failure, most likely for want of memory: it is not tried again by itself.
        assert command.wait(timeout=600) == 1
        assert table.records.keys() == {"knn", "label-text"}
        assert "killed by the system" in table.text
        assert table.start().wait(timeout=600) == 0

    assert "surrogate: goes on from step" in table.records["decaf"].log()
    assert table.text == local.text
    for method, record in local.records.items():
        predictions = table.records[method].predictions()
        assert np.array_equal(predictions.indices, record.predictions().indices)
        assert np.array_equal(predictions.scores, record.predictions().scores)
