"""A small table by processes of this machine, and over two Ray workers of which one is killed on the way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import yaml

from benchmarks.scale.place import Place
from benchmarks.scale.rank_steps import CHECKPOINT_SECONDS, MODULES
from benchmarks.scale.row import Row
from xcbench.runner.store import Record, Store

WORKERS = 2
METRICS = ("P@1", "P@5", "PSP@1", "R@10")
KILLED_IN = "extreme"
STEPS = {"surrogate": 20, "shortlister": 20, "extreme": 200}
"""Few where nothing is killed."""
DIM = 64

_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Table:
    """One way of filling the same table, with a home of its own."""

    place: Place
    name: str
    launcher: str

    @property
    def home(self) -> Path:
        return self.place.folder / "distributed" / self.name

    @property
    def records(self) -> dict[str, Record]:
        """The records that the table is made of, by method."""
        return {record.method: record for record in Store(self.home / "runs").records()}

    @property
    def text(self) -> str:
        """The table as it was printed last."""
        return (self.home / "table.md").read_text("utf-8")

    def begin(self) -> None:
        """Forget an earlier attempt."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        (self.home / "table.yaml").write_text(yaml.safe_dump(_experiment()), "utf-8")

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command; the second time it makes what is missing."""
        command = [sys.executable, "-m", "xcbench", "table", str(self.home / "table.yaml")]
        command += ["--dataset", str(self.place.data_folder), "--device", "cpu"]
        command += ["--launcher", self.launcher, "--jobs", str(WORKERS)]
        command += ["--format", "md", "--output", str(self.home / "table.md")]
        variables = {"XCBENCH_HOME": str(self.home), "XCBENCH_THREADS": str(WORKERS)}  # one for each run
        with (self.home / "said.txt").open("ab") as said:
            return subprocess.Popen(command, env={**os.environ, **variables}, stdout=said, stderr=subprocess.STDOUT)

    def checkpoint(self) -> bool:
        """Whether the last module of DECAF has a checkpoint."""
        return any(self.home.glob(f"stages/decaf.{KILLED_IN}-*.checkpoints/{KILLED_IN}.safetensors"))

    def row(self, part: str, seconds: float, note: str) -> Row:
        memory = max((record.peak_memory for record in self.records.values()), default=0)
        return Row(self.name, part, seconds, memory, note=note)


def by_local_processes(place: Place) -> Iterator[Row]:
    """The table by the local launcher."""
    table = _local(place)
    table.begin()
    start = time.perf_counter()
    code = table.start().wait()
    _check(table, code, 0)
    yield table.row("two runs at a time", time.perf_counter() - start, f"{len(table.records)} runs")


def with_a_worker_killed(place: Place) -> Iterator[Row]:
    """The table over Ray, whose worker is killed while DECAF trains: the launcher gives the run to another worker."""
    table = Table(place, "table, ray, worker killed", "ray")
    table.begin()
    start = time.perf_counter()
    command = table.start()
    run = _kill(table, command, _worker_of)
    code = command.wait()
    _check(table, code, 0)
    seconds = time.perf_counter() - start
    yield table.row("one command", seconds, f"{run}; {_went_on(table)}")
    yield _compared(table, _local(place))


def with_a_run_killed(place: Place) -> Iterator[Row]:
    """The table over Ray, where DECAF's own process is killed: its cell is empty until the same command is given."""
    table = Table(place, "table, ray, run killed", "ray")
    table.begin()
    start = time.perf_counter()
    command = table.start()
    run = _kill(table, command, lambda process: process)
    code = command.wait()
    _check(table, code, 1)
    assert "decaf" not in table.records, "a run that was killed must not have a record"
    note = f"{run}; {len(table.records)} runs in the store, exit code {code}"
    yield table.row("the first command", time.perf_counter() - start, note)

    start = time.perf_counter()
    code = table.start().wait()
    _check(table, code, 0)
    yield table.row("the same command again", time.perf_counter() - start, _went_on(table))
    yield _compared(table, _local(place))


def _local(place: Place) -> Table:
    return Table(place, "table, local", "local")


def _experiment() -> dict[str, object]:
    """Return the table: two quick rows, and one that trains for a while."""
    settings: dict[str, object] = {"dim": DIM}
    for module in MODULES:
        settings[f"{module}.training.steps"] = STEPS[module]
        settings[f"{module}.training.checkpoint_seconds"] = CHECKPOINT_SECONDS
    return {
        "title": "A table over two workers",
        "metrics": list(METRICS),
        "rows": [
            {"label": "DECAF, few steps", "method": "decaf", "overrides": settings},
            {"label": "nearest training points", "method": "knn"},
            {"label": "nearest label text", "method": "label-text"},
        ],
    }


def _check(table: Table, code: int, expected: int) -> None:
    if code != expected:
        raise RuntimeError(f"{table.name} ended with code {code}: see {table.home / 'said.txt'}")


def _went_on(table: Table) -> str:
    """Return which stages the finished run of DECAF did not compute, and from where it went on."""
    record = table.records["decaf"]
    reused = ", ".join(stage.name for stage in record.stages if stage.state == "reused")
    lines = [line for line in record.log().splitlines() if "goes on from step" in line]
    assert lines, "the second attempt has to go on from the checkpoint"
    step = lines[0].rpartition(" ")[2]
    return f"reused: {reused}; {KILLED_IN} went on from step {step}"


def _compared(table: Table, expected: Table) -> Row:
    """Compare the printed tables, and the predictions behind them."""
    records = table.records
    wanted = expected.records
    assert records.keys() == wanted.keys(), "a row is lost"
    text = "the same text"
    if table.text != expected.text:
        text = "ANOTHER TEXT"
    same = sum(_same_bits(record, wanted[method]) for method, record in records.items())
    note = f"{text}; predictions equal to the last bit in {same} of {len(wanted)} rows"
    return Row(table.name, f"against {expected.name}", 0.0, 0, note=note)


def _same_bits(record: Record, wanted: Record) -> bool:
    predictions = record.predictions()
    others = wanted.predictions()
    return np.array_equal(predictions.indices, others.indices) and np.array_equal(predictions.scores, others.scores)


def _worker_of(run: psutil.Process) -> psutil.Process:
    """Return the Ray worker that waits for a run."""
    worker = run.parent()
    assert worker is not None
    return worker


def _kill(
    table: Table,
    command: subprocess.Popen[bytes],
    choose: Callable[[psutil.Process], psutil.Process],
) -> str:
    """Kill DECAF's process, or one that is chosen by it, when its last module has a checkpoint. Says which it was."""
    while command.poll() is None:
        time.sleep(_POLL_SECONDS)
        if not table.checkpoint():
            continue
        run = _run_of(command.pid, "decaf")
        if run is None:
            continue
        victim = choose(run)
        title = " ".join(victim.cmdline())[:40].strip()
        victim.send_signal(signal.SIGKILL)
        return f"killed: {title}"
    raise RuntimeError(f"{table.name} ended before anything could be killed: see {table.home / 'said.txt'}")


def _run_of(launcher: int, method: str) -> psutil.Process | None:
    """Return the process of a run, among all that a launcher started."""
    for process in psutil.Process(launcher).children(recursive=True):
        words = process.cmdline()
        if "xcbench.cli.worker" in words and method in words:
            return process
    return None
