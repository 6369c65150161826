"""Under torchrun all processes train, and the first alone writes and speaks."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from xcbench.bench.cache import StageCache
from xcbench.bench.store import Store
from xcbench.bench.toy import toy_dataset
from xcbench.data.binary import store_dataset

METHOD = str(Path(__file__).with_name("spread_method.py"))
ALONE = [sys.executable]
TWO = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "toy"
    store_dataset(toy_dataset(labels=10, train=50, test=20), folder)
    return folder


def go(launcher, home, dataset, *more):
    environment = {**os.environ, "XCBENCH_HOME": str(home), "XCBENCH_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [*launcher, "-m", "xcbench", "run", "--method", METHOD, "--dataset", str(dataset), "--json", *more]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)


def lines(trace):
    found = Counter(trace.read_text().splitlines())
    trace.unlink()
    return found


def test_two_processes_make_one_record(tmp_path, dataset):
    trace = tmp_path / "trace"
    more = ("--set", f"trace={trace}")
    alone = json.loads(go(ALONE, tmp_path / "one", dataset, *more).stdout)
    first = lines(trace)
    assert [what.rpartition(" ")[0] for what in first][::3] == ["counts", "saved"]

    two = go(TWO, tmp_path / "two", dataset, *more)
    both = [what for what in first if "saved" not in what]
    assert lines(trace) == Counter([*both, *(f"{what[:-1]}1" for what in both), "saved 0"])
    assert json.loads(two.stdout) == pytest.approx(alone)
    for once in ("stage counts: started", "stage learn: ran", "steps on cpu", "peak"):
        assert sum(line.startswith(("run", "stage", "module")) and once in line for line in two.stderr.splitlines()) < 2
    assert two.stderr.count("stage learn: started") == 1

    (one_id,), (two_id,) = Store(tmp_path / "one/runs").ids(), Store(tmp_path / "two/runs").ids()
    assert one_id == two_id
    records = [Store(tmp_path / name / "runs").find(one_id) for name in ("one", "two")]
    assert np.array_equal(*(record.predictions().indices for record in records))
    assert [record.environment["processes"] for record in records] == [1, 2]
    cache = StageCache(tmp_path / "two/stages")
    assert len(cache.entries()) == 2
    assert cache.remains() == []


def test_they_agree_on_what_is_there(tmp_path, dataset):
    trace = tmp_path / "trace"
    more = ("--set", f"trace={trace}")
    first = go(TWO, tmp_path, dataset, *more)
    lines(trace)
    assert go(TWO, tmp_path, dataset, *more).stdout == first.stdout
    assert not trace.exists()

    (entry,) = (entry for entry in StageCache(tmp_path / "stages").entries() if entry.note.name == "learn")
    assert StageCache(tmp_path / "stages").remove(entry.folder)
    (record,) = Store(tmp_path / "runs").records()
    (record.folder / "record.json").unlink()
    assert go(TWO, tmp_path, dataset, *more).stdout == first.stdout
    assert {what.split()[-2] for what in lines(trace)} == {"learn", "learnt", "saved"}

    go(TWO, tmp_path, dataset, "--force", *more)
    assert sum(lines(trace).values()) == 7
