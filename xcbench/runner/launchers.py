"""Where the runs of a table happen: in processes of this machine, or on the machines of a Ray cluster.

Each run is a process of its own, so that a crash, a timeout or a lack of memory costs one cell of a table and never
the table. A launcher returns an outcome for every job that it was given.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from xcbench import threads
from xcbench.errors import InputError, unknown_name
from xcbench.runner.gpus import VISIBLE, visible_gpus
from xcbench.signals import terminate_as_interrupt

PROGRAM = (sys.executable, "-m", "xcbench.cli.worker")

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 5.0
_THREAD_VARIABLES = ("XCBENCH_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_SECONDS_PER_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600}
_OUT_OF_MEMORY_MESSAGES = ("MemoryError", "bad_alloc", "can't allocate memory")


@dataclass(frozen=True)
class Job:
    """One command of xcbench, and a title for people."""

    title: str
    arguments: tuple[str, ...]
    """The command line from the verb on: `("run", "--method", ...)`."""
    device: str = "auto"
    """The device that the command is to use: `auto`, `cpu`, `cuda` or `cuda:N`."""

    @property
    def command(self) -> tuple[str, ...]:
        """The command line with its device. `auto` is every command's default."""
        if self.device == "auto":
            return self.arguments
        return (*self.arguments, "--device", self.device)

    @property
    def wants_any_gpu(self) -> bool:
        """Whether the job runs on whichever GPU it gets, if there is one."""
        return self.device in ("auto", "cuda")


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: Job
    failure: str | None
    """One line that says why the job failed; None if it succeeded."""
    seconds: float
    output: str = ""


class Launcher(Protocol):
    """Runs jobs, several at a time."""

    def launch(self, jobs: Sequence[Job], timeout: float | None = None) -> Iterator[Outcome]:
        """Run every job and yield each outcome as soon as the job has ended.

        A job that takes more than `timeout` seconds is ended. Closing the iterator ends the jobs that are running.
        """


def by_name(name: str, jobs: int) -> Launcher:
    """Return the launcher `local` or `ray`, which runs at most `jobs` jobs at a time."""
    if jobs < 1:
        raise InputError(f"--jobs is at least 1, got {jobs}")

    if name == "local":
        return LocalLauncher(jobs)
    if name == "ray":
        from xcbench.runner.ray_launcher import RayLauncher

        return RayLauncher(jobs)
    raise unknown_name("launcher", name, ["local", "ray"])


def parse_duration(text: str) -> float:
    """Return `90`, `90s`, `30m` or `2h` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise InputError(f"a time is a number of seconds, or one with s, m or h behind it, as in 30m; got {text!r}")
    return float(match[1]) * _SECONDS_PER_UNIT[match[2]]


def threads_per_job(cores: int, jobs_at_a_time: int, job_count: int) -> int:
    """Return how many threads each job gets when the jobs that run at the same time divide the cores."""
    running = max(1, min(jobs_at_a_time, job_count))
    return max(1, cores // running)


@dataclass(frozen=True)
class LocalLauncher:
    """Runs jobs as processes of this machine, which divide the cores among them.

    Where there are GPUs, each job sees one of them and no other job has it meanwhile. So at most as many jobs run at a
    time as there are GPUs. Jobs that ask for the CPU, or for a GPU by its number, are started as they are.
    """

    jobs: int = 1

    def launch(self, jobs: Sequence[Job], timeout: float | None = None) -> Iterator[Outcome]:
        free_gpus = _gpus_for(jobs)
        jobs_at_a_time = jobs_with_gpus(self.jobs, len(free_gpus))
        thread_count = threads_per_job(threads.default_threads(), jobs_at_a_time, len(jobs))
        waiting = deque(jobs)
        running: list[Child] = []

        with terminate_as_interrupt():
            try:
                while waiting or running:
                    while waiting and len(running) < jobs_at_a_time:
                        job = waiting.popleft()
                        gpu = _take_gpu(job, free_gpus)
                        running.append(Child(job, thread_count, timeout, gpu))

                    time.sleep(_POLL_SECONDS)

                    for child in list(running):
                        outcome = child.poll()
                        if outcome is None:
                            continue
                        running.remove(child)
                        if child.gpu is not None:
                            free_gpus.append(child.gpu)
                        yield outcome
            finally:
                end_all(running)


def jobs_with_gpus(jobs_at_a_time: int, gpu_count: int) -> int:
    """Return how many jobs run at a time if each has a GPU of its own; without GPUs, as many as were asked for."""
    if gpu_count == 0:
        return jobs_at_a_time
    return min(jobs_at_a_time, gpu_count)


def _gpus_for(jobs: Sequence[Job]) -> deque[str]:
    """Return the GPUs that jobs are to be given; none if no job wants one that the launcher chooses."""
    if any(job.wants_any_gpu for job in jobs):
        return deque(visible_gpus())
    return deque()


def _take_gpu(job: Job, free_gpus: deque[str]) -> str | None:
    if job.wants_any_gpu and free_gpus:
        return free_gpus.popleft()
    return None


class Child:
    """One job as a process in a session of its own, so that ending it also ends what it has started.

    Parameters
    ----------
    job
        What to run.
    thread_count
        How many threads the process uses.
    timeout
        After how many seconds the job is ended; None: never.
    gpu
        The only GPU that the process sees, as `CUDA_VISIBLE_DEVICES` names it; None: those that this process sees.
    """

    def __init__(self, job: Job, thread_count: int, timeout: float | None, gpu: str | None = None) -> None:
        self.job = job
        self.gpu = gpu
        self._started = time.monotonic()
        self._timeout = timeout
        self._timed_out = False
        # The file lives as long as the child, so no `with`.
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115

        variables = dict.fromkeys(_THREAD_VARIABLES, str(thread_count))
        if gpu is not None:
            variables[VISIBLE] = gpu
        self._process = subprocess.Popen(
            [*PROGRAM, str(os.getpid()), *job.command],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
            start_new_session=True,
        )

    def poll(self) -> Outcome | None:
        """Return the outcome, or None while the job is running. A job that takes too long is ended."""
        seconds = time.monotonic() - self._started
        if self._is_running() and self._timeout is not None and seconds > self._timeout:
            self._timed_out = True
            end_all([self])

        code = self._process.poll()
        if code is None:
            return None

        output = self._output()
        failure = failure_reason(code, output)
        if self._timed_out:
            failure = f"timed out after {self._timeout:g} s"
        return Outcome(self.job, failure, seconds, output)

    def wait(self) -> Outcome:
        """Wait for the job to end and return its outcome."""
        while (outcome := self.poll()) is None:
            time.sleep(_POLL_SECONDS)
        return outcome

    def signal(self, number: int) -> None:
        """Send a signal to the process and to what it has started."""
        # The process number of a process that has ended may belong to another one by now.
        if not self._is_running():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def ends_before(self, deadline: float) -> bool:
        """Wait for the process until a moment of `time.monotonic`; returns whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        return not self._is_running()

    def _is_running(self) -> bool:
        return self._process.poll() is None

    def _output(self) -> str:
        self._log.seek(0)
        text = self._log.read().decode("utf-8", "replace")
        self._log.close()
        return text


def end_all(children: Sequence[Child]) -> None:
    """End processes: SIGTERM to all of them, then SIGKILL to those that do not end within a few seconds."""
    for child in children:
        child.signal(signal.SIGTERM)

    deadline = time.monotonic() + _GRACE_SECONDS
    for child in children:
        if not child.ends_before(deadline):
            child.signal(signal.SIGKILL)
            child.ends_before(time.monotonic() + _GRACE_SECONDS)


def run_here(job: Job, thread_count: int, timeout: float | None) -> Outcome:
    """Run one job in a process of its own and wait for it; an interrupt ends it."""
    child = Child(job, thread_count, timeout)
    try:
        return child.wait()
    finally:
        end_all([child])


def failure_reason(code: int, output: str) -> str | None:
    """Return one line that says why a process failed, from its exit code and output; None if it succeeded."""
    if code == 0:
        return None
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "killed by the system, most likely out of memory"
    if code < 0:
        return f"crashed ({signal.Signals(-code).name})"

    message = _last_line(output).removeprefix("xcbench: ")
    if any(sign in message for sign in _OUT_OF_MEMORY_MESSAGES):
        return f"out of memory: {message}"
    return message


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return "it said nothing"
    return lines[-1]
