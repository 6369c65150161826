"""Where the runs of a table happen: in processes of this machine, or on the machines of a Ray cluster.

Each run is a process of its own, so that a crash, a timeout or a lack of memory costs one cell of a table and never
the table. A launcher gives back an outcome for every job it was given; none is lost silently.
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

PROGRAM = (sys.executable, "-m", "xcbench.cli.worker")
_POLL_SECONDS = 0.05
_GRACE_SECONDS = 5.0
_THREAD_VARIABLES = ("XCBENCH_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """One command of xcbench, from the verb on, and a name for people."""

    title: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How a job ended. `failure` is one line that says why, or None where it ended well."""

    job: Job
    failure: str | None
    seconds: float
    output: str = ""


class Launcher(Protocol):
    def launch(self, jobs: Sequence[Job], timeout: float | None = None) -> Iterator[Outcome]:
        """Run every job, each for at most `timeout` seconds; outcomes come as they happen. Closing the iterator
        ends what is running."""


def by_name(name: str, jobs: int) -> Launcher:
    """`local` or `ray`, with at most `jobs` runs at a time."""
    if jobs < 1:
        raise InputError(f"--jobs is at least 1, got {jobs}")
    if name == "local":
        return LocalLauncher(jobs)
    if name == "ray":
        from xcbench.runner.ray_launcher import RayLauncher

        return RayLauncher(jobs)
    raise unknown_name("launcher", name, ["local", "ray"])


def parse_duration(text: str) -> float:
    """`90`, `90s`, `30m` or `2h` as seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise InputError(f"a time is a number of seconds, or one with s, m or h behind it, as in 30m; got {text!r}")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


@dataclass(frozen=True)
class LocalLauncher:
    """Processes of this machine, the cores divided among them."""

    jobs: int = 1

    def launch(self, jobs: Sequence[Job], timeout: float | None = None) -> Iterator[Outcome]:
        waiting, running = deque(jobs), list[Child]()
        share = max(1, threads.default_threads() // max(1, min(self.jobs, len(jobs))))
        with _terminate_as_interrupt():
            try:
                while waiting or running:
                    while waiting and len(running) < self.jobs:
                        running.append(Child(waiting.popleft(), share, timeout))
                    time.sleep(_POLL_SECONDS)
                    for child in list(running):
                        if (outcome := child.poll()) is not None:
                            running.remove(child)
                            yield outcome
            finally:
                end_all(running)


class Child:
    """One job as a process in a session of its own, so that ending it ends what it has started, too."""

    def __init__(self, job: Job, thread_count: int, timeout: float | None) -> None:
        self.job = job
        self._started = time.monotonic()
        self._timeout = timeout
        self._timed_out = False
        # It lives as long as the child, so no `with`.
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(thread_count))}
        self._process = subprocess.Popen(
            [*PROGRAM, str(os.getpid()), *job.arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )

    def poll(self) -> Outcome | None:
        """The outcome, once there is one."""
        seconds = time.monotonic() - self._started
        if self._timeout is not None and seconds > self._timeout and self._process.poll() is None:
            self._timed_out = True
            end_all([self])
        code = self._process.poll()
        if code is None:
            return None
        output = self._output()
        failure = f"timed out after {self._timeout:g} s" if self._timed_out else failure_reason(code, output)
        return Outcome(self.job, failure, seconds, output)

    def wait(self) -> Outcome:
        """The outcome, however long it takes."""
        while (outcome := self.poll()) is None:
            time.sleep(_POLL_SECONDS)
        return outcome

    def signal(self, number: int) -> None:
        if self._process.poll() is not None:  # its number may belong to somebody else by now
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def ended_within(self, deadline: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        return self._process.poll() is not None

    def _output(self) -> str:
        self._log.seek(0)
        text = self._log.read().decode("utf-8", "replace")
        self._log.close()
        return text


def end_all(children: Sequence[Child]) -> None:
    """Ask them to end, then insist."""
    for child in children:
        child.signal(signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    for child in children:
        if not child.ended_within(deadline):
            child.signal(signal.SIGKILL)
            child.ended_within(time.monotonic() + _GRACE_SECONDS)


def run_here(job: Job, thread_count: int, timeout: float | None) -> Outcome:
    """Run one job in a process of its own and wait for it; an interrupt ends it."""
    child = Child(job, thread_count, timeout)
    try:
        return child.wait()
    finally:
        end_all([child])


def failure_reason(code: int, output: str) -> str | None:
    """One line for an exit code and what the process said last; None for a good end."""
    if code == 0:
        return None
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = re.sub(r"^xcbench: ", "", lines[-1]) if lines else "it said nothing"
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "killed by the system, most likely out of memory"
    if code < 0:
        return f"crashed ({signal.Signals(-code).name})"
    if any(sign in last for sign in ("MemoryError", "bad_alloc", "can't allocate memory")):
        return f"out of memory: {last}"
    return last


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end us the way Ctrl-C does, so that children are ended and finished cells stay."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: signals are somebody else's business
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
