"""`make results`: what its plan says exists, and what has a summary already is not run again."""

import importlib
from pathlib import Path

import pytest

from tests.report.conftest import METHOD
from xcbench.data.embedded import embedded_names
from xcbench.report import experiments, tables
from xcbench.report.experiments import Experiment, Row
from xcbench.report.scores import DatasetRuns
from xcbench.report.summaries import keep_summary
from xcbench.report.typed_yaml import read_yaml
from xcbench.runner.launchers import LocalLauncher
from xcbench.runner.store import Store

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def refresh():
    pytest.importorskip("jupytext")
    pytest.importorskip("nbclient")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(RESULTS)
        yield importlib.import_module("refresh")


def test_the_plan_names_what_exists(refresh):
    plan = read_yaml(RESULTS / "plan.yaml", refresh.Plan)
    assert {part.dataset for part in plan.parts} == set(embedded_names())
    for part in plan.parts:
        assert set(part.tables) <= set(experiments.names())
        for name in part.tables:
            assert part.of(experiments.load(name)).rows


def test_a_table_is_shown_with_all_seeds_that_one_of_its_rows_has(refresh):
    rows = (Row("a", "knn"), Row("b", "popularity"))
    mine = Experiment("mine", "t", rows, ("P@1",), seeds=(7,))
    other = Experiment("other", "t", rows, ("P@1",), seeds=(7,))
    plan = refresh.Plan(
        (
            refresh.Part("toy", seeds=(0,), tables=("mine",)),
            refresh.Part("toy", seeds=(2, 1), tables=("mine",), rows=("b",)),
            refresh.Part("elsewhere", seeds=(5,)),
        )
    )
    assert plan.seeds("toy", mine) == (0, 1, 2)
    assert plan.seeds("toy", other) == (7,)
    assert plan.seeds("elsewhere", other) == (5,)
    assert [part.of(mine).rows for part in plan.on("toy")] == [rows, rows[1:]]


def test_what_has_a_summary_is_not_run_again(refresh, dataset_runs, toy, tmp_path, monkeypatch):
    monkeypatch.setattr(refresh, "HERE", tmp_path / "results")
    experiment = Experiment("mine", "t", (Row("all", METHOD), Row("floor", "popularity")), ("P@1",))
    tables.run_missing(experiment, [dataset_runs], (0,), LocalLauncher())
    (floor,) = dataset_runs.records(experiment.row("floor"), (0,)).values()
    keep_summary(floor, Store(tmp_path / "results" / "runs"), toy)

    another = refresh.FullRecordsAndSummaries(Store(tmp_path / "another machine"))
    runs = DatasetRuns(toy, another, dataset_runs.source)
    lines = []
    tables.run_missing(experiment, [runs], (0,), LocalLauncher(), progress=lines.append)
    assert lines[0].startswith("1 run")
    assert another.ids() == [record.id for record in dataset_runs.records(experiment.row("all"), (0,)).values()]
    assert len(list(another.records())) == 2
