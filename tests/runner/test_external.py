"""Predictions of other programs stand in the store beside runs."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from tests.cli.test_run import call, one_line, toy
from xcbench.data import TopK
from xcbench.data.binary import load_stored
from xcbench.evaluation import evaluate
from xcbench.report.experiments import Experiment, Row
from xcbench.report.scores import DatasetRuns
from xcbench.report.tables import fill, run_missing
from xcbench.runner.external import add_predictions
from xcbench.runner.store import Store

__all__ = ["call", "toy"]


@pytest.fixture
def predictions(tmp_path, toy):
    rng = np.random.default_rng(0)
    data = load_stored(toy)
    scores = sp.random_array(data.test.Y.shape, density=0.3, rng=rng, format="csr") + 0.4 * data.test.Y
    sp.save_npz(tmp_path / "P.npz", sp.csr_array(scores))
    return tmp_path / "P.npz"


def test_added_predictions_are_evaluated_and_kept(call, toy, predictions):
    code, out, _ = call("add", "--predictions", predictions, "--name", "my model", "--dataset", toy)
    assert code == 0
    assert out.startswith("my model on toy-50 (60 test points): run my-model-")
    data = load_stored(toy)
    expected = evaluate(TopK.load(predictions), data).values()
    (row,) = json.loads(call("list", "runs", "--json")[1])
    record = Store().find("my model")
    assert row["run"] == record.id == Store().find("my model@toy-50").id
    assert {name: interval.value for name, interval in record.metrics.items()} == pytest.approx(expected)
    assert record.evaluate(data, ["P@7"]).values() == evaluate(TopK.load(predictions), data, ["P@7"]).values()


def test_they_are_compared_with_runs(call, toy, predictions):
    call("add", "--predictions", predictions, "--name", "my model", "--dataset", toy)
    call("run", "popularity", "--dataset", toy)
    code, out, _ = call("compare", "popularity@toy-50", "my model", "--metric", "P@1")
    assert code == 0
    assert out.splitlines()[2].split()[1].startswith("my-model-")
    assert out.splitlines()[2].endswith("better")


def test_they_fill_the_row_of_a_table_without_being_run(call, toy, predictions):
    rows = (Row("Mine", "my model", added=True), Row("Head", "popularity"))
    experiment = Experiment("mine", "Mine against the head", rows, ("P@1", "train_s"))
    runs = DatasetRuns.of(str(toy), Store())
    (mine, _) = fill(experiment, runs, [0]).rows
    assert (mine.state, mine.problem) == ("not run", "not added yet: xcbench add --name 'my model'")

    record = add_predictions(predictions, "my model", str(toy))
    lines = []
    assert run_missing(experiment, [runs], [0], progress=lines.append) == {}
    assert lines[0] == "1 runs to do"
    mine, head = fill(experiment, runs, [0]).rows
    assert mine.cells["P@1"].value == pytest.approx(record.metrics["P@1"].value)
    assert mine.cells["P@1"].best
    assert "train_s" not in mine.cells
    assert "train_s" in head.cells
    assert not mine.is_by_other_code


def test_predictions_are_replaced_only_when_asked(call, toy, predictions, tmp_path):
    words = ("add", "--name", "my model", "--dataset", toy, "--predictions")
    call(*words, predictions)
    before = Store().find("my model").metrics
    other = tmp_path / "other.npz"
    TopK.load(predictions).cut(1).save(other)
    code, _, err = call(*words, other)
    assert code == 2
    assert "--force puts these in their place" in one_line(err)
    assert Store().find("my model").metrics == before
    assert call(*words, other, "--force")[0] == 0
    assert Store().find("my model").metrics["R@10"] != before["R@10"]
    assert call(*words, other, "--seed", 1)[0] == 0
    assert len(Store().ids()) == 2


def test_what_needs_a_model_says_that_there_is_none(call, toy, predictions):
    call("add", "--predictions", predictions, "--name", "mine", "--dataset", toy)
    code, _, err = call("predict", "--run", "mine", "--text", "topic1")
    assert code == 2
    assert "was added from a file, so there is no model of it" in one_line(err)
    code, _, err = call("threshold", "--run", "mine")
    assert code == 2
    assert "cannot be trained on a slice" in one_line(err)
