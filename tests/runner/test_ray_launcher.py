"""Ray on this machine: a lost worker is replaced, and a run that loses too many is reported."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from xcbench.runner import launchers, ray_launcher
from xcbench.runner.launchers import Job
from xcbench.runner.ray_launcher import LOSSES, RayLauncher

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
