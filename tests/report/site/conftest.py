"""One small report for all tests of this folder: two scripted runs, two real ones, and titles that try to be HTML."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.conftest import LABELS, METHOD, make_toy
from xcbench.data import Dataset, TextColumn
from xcbench.data.binary import store_dataset
from xcbench.report import experiments
from xcbench.report.scores import DatasetRuns
from xcbench.report.site import build_report
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec
from xcbench.runner.store import Store

HOSTILE = "</script><script>document.title = 'taken over'</script><b onclick=\"x\">&amp;"
EXPERIMENT = f"""
title: What <b>parts</b> are worth
paper: ECLARE
place: T5
metrics: [PSP@1, P@1]
reference: ECLARE
figure: {{kind: bins, x: training points, y: P@1}}
note: A note & no tag <i>.
rows:
  - {{label: ECLARE, method: {METHOD}, overrides: {{right: 0.9}}}}
  - {{label: ECLARE-GCN, method: {METHOD}, overrides: {{right: 0.5}}}}
  - {{label: to come, method: lightxml}}
claims:
  - says: GALE is better than a plain graph.
    better: ECLARE
    worse: [ECLARE-GCN]
    metrics: [PSP@1, P@1]
  - says: Something that has not run.
    better: ECLARE
    worse: [to come]
    metrics: [P@1]
"""


def hostile_toy() -> Dataset:
    toy = make_toy(60)
    labels = TextColumn.of([f"label {label} {HOSTILE}" for label in range(LABELS)])
    titles = TextColumn.of([f"title number {point} {HOSTILE}" for point in range(len(toy.test))])
    return replace(toy, label_titles=labels, test=replace(toy.test, titles=titles))


@pytest.fixture(scope="session")
def toy_runs(tmp_path_factory) -> DatasetRuns:
    folder = tmp_path_factory.mktemp("site")
    store_dataset(hostile_toy(), folder / "toy")
    runs = DatasetRuns.of(str(folder / "toy"), Store(folder / "runs"))
    for spec in (
        RunSpec(METHOD, overrides={"right": 0.9}),
        RunSpec(METHOD, overrides={"right": 0.5}),
        RunSpec("popularity"),
        RunSpec("knn"),
        RunSpec("knn", seed=1),
        RunSpec("knn", ablations=("text",)),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XCBENCH_HOME", str(folder / "home"))
            run(spec, data=runs.data, store=runs.store)
    return runs


@pytest.fixture(scope="session")
def experiment_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("experiment") / "mine.yaml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture(scope="session")
def site(toy_runs, experiment_file, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("output") / "report"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "names", lambda: [str(experiment_file)])
        build_report([toy_runs], output)
    return output
