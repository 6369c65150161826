"""A dataset whose points carry their label as their only feature, and runs on it whose figures are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xcbench.data import Dataset, Split, TextColumn
from xcbench.report.scores import DatasetRuns
from xcbench.runner.launchers import Outcome
from xcbench.runner.store import Store

METHOD = str(Path(__file__).with_name("scripted_method.py"))
LABELS = 10


def one_hot(labels: np.ndarray) -> sp.csr_array:
    n = len(labels)
    return sp.csr_array((np.ones(n, np.float32), labels, np.arange(n + 1)), shape=(n, LABELS))


def make_toy(points: int, name: str = "toy") -> Dataset:
    train, test = np.arange(4 * LABELS) % LABELS, np.arange(points) % LABELS
    titles = TextColumn.of([f"label {i}" for i in range(LABELS)])
    return Dataset(
        name,
        Split(one_hot(train), one_hot(train), TextColumn.of([f"point {i}" for i in range(len(train))])),
        Split(one_hot(test), one_hot(test), TextColumn.of([f"point {i}" for i in range(points)])),
        Z=one_hot(np.arange(LABELS)),
        label_titles=titles,
    )


@pytest.fixture(scope="package", autouse=True)
def quiet_machine():
    """Other tests run beside: no time would be comparable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xcbench.runner.meter._seconds_of_others", lambda: 0.0)
        yield


@pytest.fixture(scope="session")
def toy() -> Dataset:
    return make_toy(200)


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    return Store(tmp_path / "runs")


@pytest.fixture
def dataset_runs(toy, store, tmp_path) -> DatasetRuns:
    from xcbench.data.binary import store_dataset

    store_dataset(toy, tmp_path / "toy")
    return DatasetRuns(toy, store, str(tmp_path / "toy"))


class InProcess:
    """A launcher that runs jobs here; those whose title is in `failing` fail for the reason given there."""

    def __init__(self, failing=None):
        self.failing = failing or {}
        self.started = []

    def launch(self, jobs, timeout=None):
        from xcbench.cli import main

        for job in jobs:
            self.started.append(job.title)
            failure = next((why for part, why in self.failing.items() if part in job.title), None)
            if failure is None:
                with pytest.raises(SystemExit) as end:
                    main(job.arguments)
                assert not end.value.code, job.arguments
            yield Outcome(job, failure, 0.0)
