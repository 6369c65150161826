"""Under torchrun all processes train, and the first alone writes and speaks."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from xcbench.cli import main
from xcbench.data.binary import store_dataset
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.store import Store
from xcbench.runner.toy import toy_dataset

METHOD = str(Path(__file__).with_name("spread_method.py"))
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TWICE = """
import contextlib, sys
from xcbench.cli import main
for _ in range(2):
    with contextlib.suppress(SystemExit):
        main(sys.argv[1:])
"""


class Two:
    """Two processes with a home of their own; `traced` is what they wrote down since it was last asked for."""

    def __init__(self, home, dataset):
        self.home, self.dataset = home, dataset
        self.store, self.cache = Store(home / "runs"), StageCache(home / "stages")
        self.trace = home / "trace"

    def run(self, *program):
        environment = {**os.environ, "XCBENCH_HOME": str(self.home), "XCBENCH_THREADS": "1", "OMP_NUM_THREADS": "1"}
        wanted = ["run", "--method", METHOD, "--dataset", str(self.dataset), "--set", f"trace={self.trace}", "--json"]
        command = [*TORCHRUN, *program, *wanted]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)

    def traced(self):
        found = Counter(self.trace.read_text().splitlines())
        self.trace.unlink()
        return found


@pytest.fixture(scope="module")
def data():
    return toy_dataset(labels=10, train=50, test=20)


@pytest.fixture
def two(tmp_path, data):
    store_dataset(data, tmp_path / "toy")
    return Two(tmp_path, tmp_path / "toy")


def test_two_processes_make_one_record(two, data, tmp_path):
    shown = two.run("-m", "xcbench")
    count = f"{data.train.Y.sum(axis=0)[0]:.0f}"
    steps = ("counts", f"counts begin with {count}, learn", "learnt")
    together = [f"{what} {rank}" for what in steps for rank in (0, 1)]
    assert two.traced() == Counter([*together, "saved 0"])
    (record,) = two.store.records()
    assert record.environment["processes"] == 2
    said = [line[len("00:00:00 ") :] for line in record.log().splitlines()]
    assert len(said) > 5
    assert {line: shown.stderr.splitlines().count(line) for line in said} == dict.fromkeys(said, 1)

    alone = run(RunSpec(METHOD), data=data, store=tmp_path / "alone", cache=tmp_path / "stages of one")
    assert np.array_equal(record.predictions().indices, alone.predictions().indices)
    np.testing.assert_allclose(record.predictions().scores, alone.predictions().scores, rtol=1e-4)
    metrics = {name: measure.value for name, measure in alone.metrics.items()}
    assert json.loads(shown.stdout) == {"run": record.id, **metrics}

    # Where only the last stage is missing they compute that one, and where nothing is missing, nothing.
    script = tmp_path / "twice.py"
    script.write_text(TWICE)
    (learn,) = (entry for entry in two.cache.entries() if entry.note.name == "learn")
    assert two.cache.remove(learn.folder)
    (record.folder / "record.json").unlink()
    assert two.run(str(script)).stdout == 2 * shown.stdout
    assert two.traced() == Counter([*together[2:], "saved 0"])
    assert len(two.cache.entries()) == 2
    assert two.cache.remains() == []


MODULES = {
    "decaf": ("surrogate.training", "shortlister.training", "extreme.training"),
    "eclare": ("surrogate.training", "shortlister.training", "extreme.training"),
    "astec": ("surrogate", "extreme"),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", MODULES)
def test_methods_predict_alike_when_two_processes_split_their_labels(method, tmp_path):
    data = toy_dataset(labels=60, train=300, test=60)
    store_dataset(data, tmp_path / "toy")
    settings = {"dim": 16, **{f"{module}.steps": 60 for module in MODULES[method]}}
    spec = RunSpec(method, overrides=settings)
    alone = run(spec, data=data, store=tmp_path / "alone", cache=tmp_path / "stages of one")

    options = ["--method", method, "--dataset", str(tmp_path / "toy"), "--device", "cpu"]
    for name, value in settings.items():
        options += ["--set", f"{name}={value}"]
    environment = {**os.environ, "XCBENCH_HOME": str(tmp_path), "XCBENCH_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [*TORCHRUN, "-m", "xcbench", "run", *options]
    subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)

    (together,) = Store(tmp_path / "runs").records()
    assert together.log().count("points and labels split over 2 processes") == len(MODULES[method])
    expected = alone.predictions().cut(5)
    predicted = together.predictions().cut(5)
    assert (predicted.indices == expected.indices).mean() > 0.98
    np.testing.assert_allclose(predicted.scores, expected.scores, atol=0.002)


def kill_rank(torchrun, rank, checkpoints):
    """Kill one rank of a run that has just written a checkpoint."""
    deadline = time.monotonic() + 200
    while not any(checkpoints.glob("*.checkpoints/*.safetensors")) and time.monotonic() < deadline:
        assert torchrun.poll() is None
        time.sleep(0.01)
    (process,) = (
        process
        for process in psutil.Process(torchrun.pid).children(recursive=True)
        if process.environ().get("RANK") == str(rank)
    )
    process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_the_same_command_loses_nothing_after_one_rank_was_killed(rank, tmp_path):
    data = toy_dataset(labels=60, train=300, test=60)
    store_dataset(data, tmp_path / "toy")
    options = ["--method", "decaf", "--dataset", str(tmp_path / "toy"), "--device", "cpu"]
    options += ["--set", "dim=16", "--set", "surrogate.training.checkpoint_seconds=0.05"]
    for module, steps in (("surrogate", 1500), ("shortlister", 30), ("extreme", 30)):
        options += ["--set", f"{module}.training.steps={steps}"]
    command = [*TORCHRUN, "-m", "xcbench", "run", *options]

    records = {}
    for home in ("unbroken", "broken"):
        variables = {"XCBENCH_HOME": str(tmp_path / home), "XCBENCH_THREADS": "1", "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **variables}
        if home == "broken":
            torchrun = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            kill_rank(torchrun, rank, tmp_path / home / "stages")
            assert torchrun.wait(timeout=100) != 0
            assert list(Store(tmp_path / home / "runs").records()) == []
        subprocess.run(command, env=environment, capture_output=True, check=True, timeout=300)
        (records[home],) = Store(tmp_path / home / "runs").records()

    assert "surrogate: goes on from step" in records["broken"].log()
    assert np.array_equal(records["broken"].predictions().indices, records["unbroken"].predictions().indices)
    assert np.array_equal(records["broken"].predictions().scores, records["unbroken"].predictions().scores)


def test_a_table_is_not_for_torchrun(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as end:
        main(["table", "eclare/table5"])
    assert end.value.code == 2
    assert "torchrun is for `xcbench run`" in capsys.readouterr().err
