"""The same training by one process and by two ranks of `torchrun`, of which one is killed on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.scale.agreement import Agreement
from benchmarks.scale.place import Place
from benchmarks.scale.rank import METHOD, Notes
from benchmarks.scale.row import Row
from xcbench.runner.store import Record, Store

STEPS = 40
CHECKPOINT_SECONDS = 0.5
MODULES = ("surrogate", "shortlister", "extreme")
KILLED_IN = "extreme"
KILLED_AFTER = STEPS // 2
"""How many steps the killed rank has begun, at least. A checkpoint has been written by then."""

_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Case:
    """One way of making the same run, with a home of its own."""

    place: Place
    name: str
    ranks: int

    @property
    def home(self) -> Path:
        return self.place.folder / "distributed" / self.name

    @property
    def notes(self) -> Notes:
        return Notes(self.home / "notes")

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint of the module in which a rank is killed, once it is written."""
        found = self.home.glob(f"stages/{METHOD}.{KILLED_IN}-*.checkpoints/{KILLED_IN}.safetensors")
        return next(found, None)

    @property
    def record(self) -> Record:
        (record,) = Store(self.home / "runs").records()
        return record

    def begin(self) -> None:
        """Forget an earlier attempt: what is measured is the whole run."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.notes.folder.mkdir(parents=True)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the run; the second time it goes on where it stopped."""
        program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks)]
        observed = ["-m", "benchmarks.scale.rank", str(self.notes.folder)]
        wanted = ["run", "--method", METHOD, "--dataset", str(self.place.data_folder), "--preset", self.place.like]
        wanted += ["--device", "cpu"]
        for module in MODULES:
            wanted += ["--set", f"{module}.training.steps={STEPS}"]
            wanted += ["--set", f"{module}.training.checkpoint_seconds={CHECKPOINT_SECONDS}"]
        # One thread per rank, however many ranks: the time of a step is that of the work, not of the threads.
        variables = {"XCBENCH_HOME": str(self.home), "XCBENCH_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with (self.home / "said.txt").open("ab") as said:
            return subprocess.Popen(
                [*program, *observed, *wanted],
                env={**os.environ, **variables},
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    def finish(self) -> None:
        """Run to the end."""
        code = self.start().wait()
        if code:
            raise RuntimeError(f"{self.name} ended with code {code}: see {self.home / 'said.txt'}")

    def rows(self) -> Iterator[Row]:
        for trained in self.notes.trained():
            yield Row(
                self.name,
                f"{trained.module}, rank {trained.rank}",
                trained.seconds,
                trained.memory,
                step_seconds=trained.step_seconds,
                note=f"{trained.step_cpu_seconds:.3f} s per step of the process's own computing",
            )
        yield Row(self.name, "the run as a whole", self.record.seconds, self.record.peak_memory)


def by_one(place: Place) -> Iterator[Row]:
    """The run by one process."""
    case = _one(place)
    case.begin()
    case.finish()
    yield from case.rows()


def by_two(place: Place) -> Iterator[Row]:
    """The run by two ranks, compared with one process."""
    case = _two(place)
    case.begin()
    case.finish()
    yield from case.rows()
    yield _compared(case, _one(place))


def with_one_killed(place: Place) -> Iterator[Row]:
    """The run by two ranks of which one is killed in the middle of a module; then the same command again."""
    case = Case(place, "two ranks, one killed", 2)
    case.begin()
    start = time.perf_counter()
    torchrun = case.start()
    begun = _kill_rank(case, torchrun, 1)
    code = torchrun.wait()
    assert code != 0, "torchrun has to say that it failed"
    assert case.checkpoint is not None, "the checkpoint has to outlive the ranks"
    note = f"rank 1 killed in step {begun} of {STEPS} of {KILLED_IN}; torchrun ended with code {code}"
    yield Row(case.name, "until it was killed", time.perf_counter() - start, 0, note=note)

    case.finish()
    went_on = re.search(rf"{KILLED_IN}: goes on from step (\d+)", case.record.log())
    assert went_on is not None, "the second attempt has to go on from the checkpoint"
    reused = ", ".join(stage.name for stage in case.record.stages if stage.state == "reused")
    yield Row(
        case.name,
        "the same command again",
        case.record.seconds,
        case.record.peak_memory,
        note=f"reused: {reused}; went on from step {went_on[1]}",
    )
    yield _compared(case, _two(place))


def _one(place: Place) -> Case:
    return Case(place, "one process", 1)


def _two(place: Place) -> Case:
    return Case(place, "two ranks", 2)


def _compared(case: Case, expected: Case) -> Row:
    agreement = Agreement.between(case.record, expected.record)
    return Row(case.name, f"against {expected.name}", 0.0, 0, note=str(agreement))


def _kill_rank(case: Case, torchrun: subprocess.Popen[bytes], killed: int) -> int:
    """Kill a rank in the middle of a module, after a checkpoint was written. Returns the step that it had begun."""
    while torchrun.poll() is None:
        time.sleep(_POLL_SECONDS)
        file = case.notes.step(killed)
        if case.checkpoint is None or not file.exists():
            continue
        now = json.loads(file.read_text("utf-8"))
        if now["module"] == KILLED_IN and now["begun"] >= KILLED_AFTER:
            psutil.Process(now["process"]).send_signal(signal.SIGKILL)
            return int(now["begun"])
    raise RuntimeError(f"{case.name} ended before a rank could be killed: see {case.home / 'said.txt'}")
