"""Times are compared only where they were measured alike."""

import json
from dataclasses import replace

import pytest

from tests.report.conftest import METHOD, InProcess
from xcbench.report.costs import conditions, incomparable
from xcbench.report.experiments import Experiment, Row
from xcbench.report.render import render
from xcbench.report.tables import fill, run_missing
from xcbench.runner.store import StageReport

TABLE = Experiment(
    "mine",
    "A table",
    (Row("good", METHOD, overrides={"right": 1.0}), Row("floor", "popularity")),
    ("P@1", "train_s"),
)


@pytest.fixture
def run_in_store(dataset_runs):
    assert run_missing(TABLE, [dataset_runs], [0], InProcess()) == {}
    return dataset_runs


@pytest.fixture
def quiet(run_in_store):
    (record,) = run_in_store.records(TABLE.rows[0], [0]).values()
    return measured(record, threads=2, other_load=0.01)


def measured(record, threads, other_load, stages=()):
    environment = {"processor": "a processor", "device": "cpu", "threads": threads, "other_load": other_load}
    return replace(record, environment=environment, stages=tuple(stages))


def stage(state, threads, other_load):
    return StageReport("graph", "key", 0, state, 1.0, 1, threads=threads, other_load=other_load)


def test_only_reused_stages_were_measured_elsewhere(quiet):
    same = replace(quiet, stages=(stage("ran", 1, 2.0), stage("reused", 2, 0.1)))
    assert str(conditions(same)) == "a processor, cpu, 2 threads"
    other = replace(quiet, stages=(stage("reused", 1, 1.25),))
    assert str(conditions(other)) == "a processor, cpu, 1 thread and 2 threads, beside 1.2 busy cores"


def test_older_records_do_not_say(quiet):
    older = measured(quiet, 2, None)
    assert str(conditions(older)) == "a processor, cpu, 2 threads, other load not known"
    assert incomparable({"new": [quiet, quiet], "old": [older]}).keys() == {"old"}
    assert incomparable({"old": [older]}) == {}


def test_times_are_shown_for_the_usual_number_of_threads(quiet):
    rows = {
        "a": [quiet],
        "b": [quiet, quiet],
        "one thread": [measured(quiet, 1, 0.0)],
        "busy": [quiet, measured(quiet, 2, 1.5)],
    }
    assert incomparable(rows) == {
        "one thread": "not comparable: a processor, cpu, 1 thread",
        "busy": "not comparable: a processor, cpu, 2 threads, beside 1.5 busy cores",
    }


def test_a_table_says_which_times_cannot_be_compared(run_in_store):
    set_load(run_in_store, {"good": 0.02, "floor": 1.5})
    table = fill(TABLE, run_in_store, [0])
    times = {row.row.label: row.cells["train_s"] for row in table.rows}
    assert [label for label, cell in times.items() if cell.best] == ["good"]
    assert "beside 1.5 busy cores" in times["floor"].remark
    assert "beside 1.5 busy cores" in render([table])

    set_load(run_in_store, {"good": 0.02, "floor": 0.02})
    assert "not comparable" not in render([fill(TABLE, run_in_store, [0])])


def set_load(dataset_runs, loads):
    for row in TABLE.rows:
        (record,) = dataset_runs.records(row, [0]).values()
        path = record.folder / "record.json"
        content = json.loads(path.read_text())
        assert content["environment"]["other_load"] >= 0
        content["environment"]["other_load"] = loads[row.label]
        path.write_text(json.dumps(content))
