"""Labels split over processes: what one process would learn, from halves of the tables and few messages."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
import torch
from safetensors.torch import load_file
from xcbench.methods.decaf import Decaf, DecafConfig

from tests.train import spread_tasks
from tests.train.toys import parameters, toy
from xcbench.nn import LabelBank, LabelText, TokenEmbeddings
from xcbench.nn.label_parts import LabelRange
from xcbench.runner.toy import toy_dataset
from xcbench.train import Training, Work, estimate_memory, fit_bias, train
from xcbench.train.label_shards import LabelShards
from xcbench.train.processes import Processes

ROOT = Path(__file__).parent.parent.parent


def start(count, *arguments):
    """Start so many processes of `spread_tasks.py`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    script = Path(spread_tasks.__file__)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "XCBENCH_THREADS": "1"}
    return subprocess.Popen(
        [*command, str(script), *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill(launcher):
    """Kill a launcher and its processes, which are in sessions of their own."""
    processes = psutil.Process(launcher.pid).children(recursive=True)
    launcher.kill()
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, timeout=60)
    launcher.communicate(timeout=60)


class Spread:
    """What several processes learnt, and what each of them noted, by problem."""

    def __init__(self, count, folder):
        process = start(count, folder)
        process.communicate(timeout=300)
        assert process.returncode == 0
        self.count = count
        self.learnt = {name: load_file(folder / name) for name in spread_tasks.PROBLEMS[count]}
        self.noted = [json.loads((folder / f"noted {rank}").read_text()) for rank in range(count)]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return Spread(2, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return Spread(3, tmp_path_factory.mktemp("three"))


def assert_like_one_process(spread, name):
    task, points = spread_tasks.PROBLEMS[spread.count][name]()
    initialise = None if name.startswith("own") else fit_bias
    report = train(task, points, spread_tasks.SHORT, Work(1, "cpu", log=lambda line: None), name, initialise)
    for parameter, expected in parameters(task).items():
        torch.testing.assert_close(spread.learnt[name][parameter], expected, rtol=1e-3, atol=1e-5, msg=parameter)
    for noted in spread.noted:
        assert noted[name]["losses"] == pytest.approx(report.losses, rel=1e-5)


@pytest.mark.parametrize("name", spread_tasks.TWO)
def test_two_processes_learn_what_one_learns(two, name):
    assert_like_one_process(two, name)


@pytest.mark.parametrize("name", spread_tasks.THREE)
def test_processes_without_points_or_labels_do_no_harm(three, name):
    assert_like_one_process(three, name)


def test_each_process_has_half_of_the_label_tables_and_of_their_moments(two):
    task, _ = spread_tasks.TWO["astec, shortlists"]()
    whole = {name: len(p) for name, p in task.named_parameters()}
    for rank, rows in ((0, 15), (1, 16)):
        sizes = two.noted[rank]["astec, shortlists"]["sizes"]
        assert {name: sizes[name] for name in whole} == {
            name: 3 * [rows if name.startswith("labels.") else length] for name, length in whole.items()
        }
        assert two.noted[rank]["decaf, shortlists, frozen"]["sizes"]["labels.z2.weight"] == [15, 15, 15]
        # What is no bank of labels stays whole.
        assert two.noted[rank]["own label side, shortlists"]["sizes"]["labels.W"] == [30, 30, 30]
        assert two.noted[rank]["own label side, shortlists"]["sizes"]["labels.offsets.weight"] == [3, 3, 3]
        assert two.noted[rank]["own loss"]["sizes"]["labels.z2.weight"] == [30, 30, 30]


def test_a_step_sends_four_messages(two):
    """Documents, their gradient, all dense gradients, and the loss; and which rows of a lazy table were touched."""
    for noted in two.noted:
        for name, note in noted.items():
            if name.startswith("own"):
                continue
            # From one step of Adam to the next.
            is_lazy = name == "astec, all labels" or "lazy" in name or "without labels" in name
            expected = 4 + is_lazy
            assert set(note["messages"]) == {expected}, name


def test_the_log_says_what_is_split(two):
    noted = two.noted[0]
    assert ", points and labels split over 2 processes, about " in noted["astec, shortlists"]["lines"][0]
    assert ", points split over 2 processes, about " in noted["own loss"]["lines"][0]


def test_killed_processes_are_continued_by_another_number_of_them(tmp_path):
    task, points = toy(points=120, labels=31)
    settings = Training(epochs=4, batch_size=16, lr=0.02)
    train(task, points, settings, Work(3, "cpu", log=lambda line: None), initialise=fit_bias)

    checkpoint = tmp_path / "module.safetensors"
    killed = start(2, tmp_path, 0.1)
    deadline = time.monotonic() + 200
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    kill(killed)
    assert not (tmp_path / "end").exists()
    # The same file as a single process writes.
    assert load_file(checkpoint)["adam.labels.z2.weight.v"].shape == (31, 8)

    said = start(3, tmp_path, 0).communicate(timeout=300)[0]
    assert "goes on from step" in said
    end = load_file(tmp_path / "end")
    for name, expected in parameters(task).items():
        torch.testing.assert_close(end[name], expected, rtol=1e-3, atol=1e-5, msg=name)


def test_tables_with_some_rows_answer_for_their_labels():
    torch.manual_seed(0)
    bank = LabelBank(10, 3, torch.randn(10, 3))
    E = TokenEmbeddings(20, 3)
    Z = spread_tasks.random_matrix(10, 20, 0.3, 0)
    parts = [bank, LabelText(E, Z), LabelText(E, Z, frozen=True)]
    some = np.array([4, 6])
    kept = LabelRange(4, 7)
    for part in parts:
        expected = part(some).detach().clone()
        expected_all = part(kept.labels).detach().clone()
        for table in part.label_tables():
            table.data = table.data[4:7].clone()
        part.keep(kept)
        assert torch.equal(part(some), expected)
        assert torch.equal(part(kept.labels), expected_all)
        assert part.row_count == 3
        for wrong in (None, np.array([3, 4]), np.array([6, 7])):
            with pytest.raises(ValueError, match="labels"):
                part(wrong)


@pytest.mark.parametrize("shortlists", [False, True])
def test_the_shares_of_a_batch_are_the_batch(shortlists):
    """Every point and every (point, label) pair is in one share, at the place that it says."""
    task, points = toy(points=20, labels=13, shortlists=shortlists)
    rows = np.array([3, 19, 7, 0, 11])
    batch = points.cut(rows, key=5)
    whole = batch.targets
    labels_of_batch = np.arange(13)
    pairs = 5 * 13
    if shortlists:
        whole = batch.shortlists.entries
        labels_of_batch = batch.shortlists.labels
        pairs = len(whole.indices)

    rows_found = []
    labels_found = []
    tables = []
    for rank in range(3):
        part = LabelShards(task, 13, Processes(rank, 3)).prepare(points, rows, 5).finish(torch.device("cpu"))
        assert part.share.first_point == len(rows_found)
        assert part.share.first_label == len(labels_found)
        assert part.pairs == pairs
        rows_found += part.rows.tolist()
        labels_found += (part.shortlists or part).labels.tolist()
        tables.append(dense(part.shortlists.entries if shortlists else part.targets))
    assert rows_found == rows.tolist()
    assert labels_found == labels_of_batch.tolist()
    np.testing.assert_array_equal(np.concatenate(tables, axis=1), dense(whole))


def dense(rows):
    """Values plus 2 at the entries, which may be 0, and 0 elsewhere."""
    matrix = sp.csr_array((rows.data + 2, rows.indices, rows.indptr), shape=(len(rows), rows.width))
    return matrix.toarray()


def test_the_estimate_counts_one_share_of_the_labels():
    task, points = toy(points=60, labels=30, shortlists=False)
    whole = estimate_memory(task, points, 16)
    shards = LabelShards(task, 30, Processes(0, 2))
    shards.split()
    half = estimate_memory(task, points, 16, shards=shards)
    rows_saved = 15 * (8 + 1)  # of vectors and biases
    assert whole["parameters"] - half["parameters"] == 4 * rows_saved
    assert whole["Adam"] - half["Adam"] == 8 * rows_saved
    assert half["a step"] / whole["a step"] == pytest.approx((15 + 8) / (30 + 16))


def test_the_estimate_of_a_method_counts_one_share_of_the_labels(monkeypatch):
    """With one cluster per label, Module II needs most: four tables that learn, and ten that a step works on."""
    data = toy_dataset(labels=10_000, train=50, test=20)
    method = Decaf(DecafConfig(dim=300, clusters=10_000))
    need = []
    for count in ("1", "2"):
        monkeypatch.setenv("WORLD_SIZE", count)
        need.append(method.estimate_memory(data))
    assert need[0] - need[1] == (4 + 10) * 4 * 300 * 5000
