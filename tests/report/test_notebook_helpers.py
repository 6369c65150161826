"""What notebooks start from: names, differences of every pair, predictions side by side, records without models."""

from __future__ import annotations

import numpy as np
import pytest

from tests.report.conftest import METHOD, InProcess
from xcbench.errors import InputError
from xcbench.report import tables
from xcbench.report.columns import column
from xcbench.report.comparison import compare_runs
from xcbench.report.experiments import Experiment, Row
from xcbench.report.notebooks import differences, keep_summary, most_varied, name_of, runs_on, side_by_side
from xcbench.report.scores import ScoreTable
from xcbench.runner.model import load_model
from xcbench.runner.store import Store

ROWS = (
    Row("all", METHOD),
    Row("half", METHOD, overrides={"right": 0.5}),
    Row("nearly", METHOD, overrides={"right": 0.995}),
    Row("floor", "popularity"),
)


@pytest.fixture
def runs(shelf):
    tables.run_missing(Experiment("mine", "t", ROWS, ("P@1",)), [shelf], (0, 1), InProcess())
    return runs_on(shelf.store, "toy")


def test_runs_have_readable_names(runs):
    assert list(runs) == ["popularity", "scripted", "scripted + right=0.5", "scripted + right=0.995"]
    assert [record.seed for record in runs["scripted"]] == [0, 1]
    assert name_of(runs["scripted"][0]) == "scripted"


def test_the_method_with_most_variations_is_found(runs):
    assert most_varied(runs) == "scripted"
    # Variations without the plain run have nothing to be held against.
    assert most_varied({name: records for name, records in runs.items() if name != "scripted"}) == "popularity"


def test_every_pair_is_compared(runs, toy):
    gap, p_value = differences(runs, toy, "P@1")
    assert gap.loc["scripted", "scripted + right=0.5"] == 50.0
    assert gap.loc["scripted + right=0.5", "scripted"] == -50.0
    assert (gap.to_numpy() == -gap.to_numpy().T).all()
    assert p_value.loc["scripted", "scripted + right=0.5"] < 0.01
    assert p_value.loc["scripted", "scripted + right=0.995"] > 0.05
    assert (np.diag(p_value) == 1).all()


def test_many_runs_can_still_be_told_apart(runs, toy):
    """Of 26 runs there are 325 pairs: with the resamples of a table no difference, however large, would count."""
    many = {f"{name} {copy}": runs[name] for name in ("scripted", "scripted + right=0.5") for copy in range(13)}
    p_value = differences(many, toy, "P@1")[1]
    assert p_value.loc["scripted 0", "scripted + right=0.5 12"] < 0.05
    assert p_value.loc["scripted 0", "scripted 12"] > 0.05


def test_predictions_side_by_side(runs, toy):
    pair = {name: runs[name][0] for name in ("scripted", "scripted + right=0.5")}
    assert side_by_side(pair, toy, 3, k=2, width=12).splitlines() == [
        "point 3: point 3",
        "scripted      scripted + right=0.5",
        "------------  ------------",
        "+ label 3     + label 3",
        "  label 4       label 4",
    ]
    assert side_by_side(pair, toy, 199, k=1, width=12).splitlines()[3:] == ["+ label 9       label 0"]
    wrong = {"half": runs["scripted + right=0.5"][0]}
    assert side_by_side(wrong, toy, 199, k=1).splitlines()[-1] == "not found: label 9"


def test_a_summary_is_a_record_without_its_model(runs, toy, tmp_path):
    small = Store(tmp_path / "small")
    record = runs["scripted"][0]
    keep_summary(record, small, depth=3)
    (kept,) = small.records()
    assert kept == record
    assert kept.predictions().k == 3
    full, cut = record.predictions(), kept.predictions()
    assert (cut.indices == full.indices[:, :3]).all()
    assert np.allclose(cut.scores, full.scores[:, :3], rtol=1e-3)
    assert (np.diff(cut.scores, axis=1) <= 0).all()
    with pytest.raises(InputError, match="kept without its model"):
        load_model(kept, METHOD)


def test_cut_predictions_are_not_compared_beyond_the_cut(runs, toy, tmp_path):
    small = Store(tmp_path / "small")
    keep_summary(runs["scripted"][0], small, depth=3)
    pair = [runs["popularity"][0], *small.records()]
    assert [row.value for row in compare_runs(pair, ["P@3"], toy)] == pytest.approx([10.0, 100 / 3])
    with pytest.raises(InputError, match="keeps 3 labels a point, too few for P@5"):
        compare_runs(pair, ["P@3", "P@5"], toy)


def test_cut_predictions_do_not_pretend_to_answer(runs, toy, tmp_path):
    """With three places kept, P@3 is known and P@5 is not."""
    small = Store(tmp_path / "small")
    keep_summary(runs["scripted"][0], small, depth=3)
    judge = ScoreTable(toy, {"a": list(small.records())}, [column("P@3"), column("P@5")])
    assert judge.has("a", "P@3")
    assert not judge.has("a", "P@5")
    assert judge.spread("a", column("P@5")) is None
