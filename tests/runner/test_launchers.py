"""Launchers: every job gets an outcome, whatever happens to its process, and nothing is left running."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
import torch

from xcbench import threads
from xcbench.errors import InputError
from xcbench.runner import launchers
from xcbench.runner.launchers import Job, LocalLauncher, by_name, failure_reason, parse_duration

SCRIPT = """
    import os, sys, time
    from xcbench.cli.worker import die_with

    parent, verb, *rest = sys.argv[1:]
    die_with(int(parent))
    if verb == "say":
        print(*rest)
    elif verb == "threads":
        print(os.environ["XCBENCH_THREADS"], os.environ["OMP_NUM_THREADS"])
    elif verb == "gpu":
        print(os.environ.get("CUDA_VISIBLE_DEVICES", "all"), *rest)
        time.sleep(0.2)
    elif verb == "fail":
        print("some line", file=sys.stderr)
        print("xcbench: " + " ".join(rest), file=sys.stderr)
        sys.exit(2)
    elif verb == "memory":
        raise MemoryError("Unable to allocate 2.38 TiB")
    elif verb == "signal":
        os.kill(os.getpid(), int(rest[0]))
    elif verb == "sleep":
        open(rest[0], "w").write(str(os.getpid()))
        time.sleep(60)
"""


@pytest.fixture(autouse=True)
def script(tmp_path, monkeypatch):
    """Children run a script of ours in place of the command line."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    monkeypatch.setattr(launchers, "PROGRAM", (sys.executable, str(path)))
    return path


def run(*jobs: Job, at_once: int = 1, timeout: float | None = None):
    return {outcome.job.title: outcome for outcome in LocalLauncher(at_once).launch(jobs, timeout)}


def job(*arguments: str) -> Job:
    return Job(" ".join(arguments), arguments)


def wait_for(path, seconds=20.0) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError("the child never started")


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_each_job_ends_in_its_own_way(tmp_path):
    outcomes = run(
        job("say", "hello"),
        job("fail", "unknown", "method"),
        job("memory"),
        job("signal", "9"),
        job("signal", "11"),
        at_once=2,
    )
    assert outcomes["say hello"].failure is None
    assert outcomes["say hello"].output == "hello\n"
    assert outcomes["fail unknown method"].failure == "unknown method"
    assert outcomes["memory"].failure == "out of memory: MemoryError: Unable to allocate 2.38 TiB"
    assert outcomes["signal 9"].failure == "killed by the system, most likely out of memory"
    assert outcomes["signal 11"].failure == "crashed (SIGSEGV)"


def test_a_timeout_ends_the_child(tmp_path):
    started = tmp_path / "pid"
    outcomes = run(job("sleep", str(started)), timeout=6.0)
    (outcome,) = outcomes.values()
    assert outcome.failure == "timed out after 6 s"
    assert not alive(wait_for(started))


def test_closing_ends_what_runs_and_keeps_what_ended(tmp_path):
    started = tmp_path / "pid"
    outcomes = LocalLauncher(2).launch([job("say", "a"), job("sleep", str(started))])
    assert next(outcomes).job.title == "say a"
    pid = wait_for(started)
    outcomes.close()
    assert not alive(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_children_end_with_the_launcher(tmp_path, script, number):
    started = tmp_path / "pid"
    code = f"""
        import sys
        from xcbench.runner import launchers
        launchers.PROGRAM = (sys.executable, {str(script)!r})
        list(launchers.LocalLauncher(1).launch([launchers.Job("x", ("sleep", {str(started)!r}))]))
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.DEVNULL)
    pid = wait_for(started)
    parent.send_signal(number)
    parent.wait(20)
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def test_threads_are_divided(monkeypatch):
    monkeypatch.setenv("XCBENCH_THREADS", "8")
    assert threads.default_threads() == 8
    alone = run(job("threads"), at_once=4)["threads"].output
    assert alone == "8 8\n"
    together = LocalLauncher(4).launch([job("threads")] * 4)
    assert {outcome.output for outcome in together} == {"2 2\n"}
    monkeypatch.setenv("XCBENCH_THREADS", "1")
    assert {outcome.output for outcome in LocalLauncher(2).launch([job("threads")] * 2)} == {"1 1\n"}


@pytest.fixture
def gpus(monkeypatch):
    """Let torch find so many GPUs, of which CUDA_VISIBLE_DEVICES may list some."""

    def find(count, visible=None):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return find


def gpu_jobs(count: int, device: str = "auto") -> list[Job]:
    return [Job(str(number), ("gpu",), device) for number in range(count)]


def seen_gpus(jobs: list[Job], at_once: int) -> list[str]:
    """What each job was shown, in the order of the jobs."""
    outcomes = {outcome.job.title: outcome.output.strip() for outcome in LocalLauncher(at_once).launch(jobs)}
    return [outcomes[job.title] for job in jobs]


def test_each_job_has_a_gpu_to_itself_and_hands_it_back(gpus):
    gpus(2)
    shown = seen_gpus(gpu_jobs(5), at_once=2)
    assert set(shown[:2]) == {"0", "1"}
    assert set(shown) == {"0", "1"}


def test_jobs_wait_for_a_gpu(gpus, monkeypatch):
    gpus(2)
    held: set[str] = set()

    class Watched(launchers.Child):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            assert self.gpu not in held
            held.add(self.gpu)

        def poll(self):
            outcome = super().poll()
            if outcome:
                held.remove(self.gpu)
            return outcome

    monkeypatch.setattr(launchers, "Child", Watched)
    assert len(seen_gpus(gpu_jobs(6), at_once=6)) == 6


def test_only_gpus_that_the_launcher_may_use_are_given(gpus):
    gpus(2, visible="3,GPU-5f")
    assert set(seen_gpus(gpu_jobs(2), at_once=2)) == {"3", "GPU-5f"}
    gpus(1, visible="3,-1,4")  # CUDA stops reading at what does not exist
    assert set(seen_gpus(gpu_jobs(2), at_once=2)) == {"3"}


def test_without_gpus_or_on_the_cpu_nothing_is_assigned(gpus):
    gpus(0)
    assert seen_gpus(gpu_jobs(2), at_once=2) == ["all", "all"]
    gpus(2)
    assert seen_gpus(gpu_jobs(2, "cpu"), at_once=2) == ["all --device cpu"] * 2
    assert seen_gpus(gpu_jobs(2, "cuda:1"), at_once=2) == ["all --device cuda:1"] * 2


def test_cores_are_divided_by_the_jobs_that_gpus_allow(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setenv("XCBENCH_THREADS", "8")
    assert {outcome.output for outcome in LocalLauncher(8).launch([job("threads")] * 8)} == {"4 4\n"}


def test_a_failure_is_one_line():
    assert failure_reason(0, "anything") is None
    assert failure_reason(1, "") == "it said nothing"
    assert failure_reason(2, "a\nxcbench: no such dataset\n\n") == "no such dataset"
    assert failure_reason(137, "x") == "killed by the system, most likely out of memory"


def test_durations():
    assert [parse_duration(text) for text in ("90", "90s", "1.5m", "2h")] == [90, 90, 90, 7200]
    for wrong in ("", "m", "-3", "0", "3 days"):
        with pytest.raises(InputError, match="a time is a number of seconds"):
            parse_duration(wrong)


def test_names():
    assert by_name("local", 3) == LocalLauncher(3)
    with pytest.raises(InputError, match="did you mean local"):
        by_name("locl", 1)
    with pytest.raises(InputError, match="at least 1"):
        by_name("local", 0)


def test_ray_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install .*\[ray\]'"):
        next(by_name("ray", 1).launch([job("say")]))
