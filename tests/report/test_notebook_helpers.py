"""What notebooks start from: names, differences of every pair, predictions side by side."""

from __future__ import annotations

import numpy as np
import pytest

from tests.report.conftest import METHOD, InProcess
from xcbench.report import tables
from xcbench.report.experiments import Experiment, Row
from xcbench.report.notebooks import differences, most_varied, runs_on, side_by_side
from xcbench.report.variants import name_of

ROWS = (
    Row("all", METHOD),
    Row("half", METHOD, overrides={"right": 0.5}),
    Row("nearly", METHOD, overrides={"right": 0.995}),
    Row("floor", "popularity"),
)


@pytest.fixture
def runs(dataset_runs):
    tables.run_missing(Experiment("mine", "t", ROWS, ("P@1",)), [dataset_runs], (0, 1), InProcess())
    return runs_on(dataset_runs.store, "toy")


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
