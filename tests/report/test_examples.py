"""Predictions side by side: which points are shown, and what is marked."""

import dataclasses

import numpy as np
import pytest

from tests.methods.problems import csr
from xcbench.data import Dataset, Split, TextColumn
from xcbench.errors import InputError
from xcbench.report.examples import chosen_points, examples_grid
from xcbench.report.experiments import Experiment, Row
from xcbench.report.grid import as_markdown, as_text
from xcbench.report.scores import DatasetRuns
from xcbench.runner.execute import run
from xcbench.runner.store import Store


@pytest.fixture
def data():
    """Four labels with 4, 3, 2 and 1 training points; test point i has the labels i and 0."""
    own = [0, 0, 0, 0, 1, 1, 1, 2, 2, 3]
    X = csr(np.eye(4)[own])
    test = csr(np.eye(4))
    truth = np.eye(4)
    truth[:, 0] = 1
    return Dataset(
        "four",
        Split(X, csr(np.eye(4)[own]), TextColumn.of(["?"] * 10)),
        Split(test, csr(truth), TextColumn.of(["p0", "p1", "p2", "p3"]), filter=np.array([[1, 1]])),
        Z=csr(np.eye(4)),
        label_titles=TextColumn.of(["a", "b", "c", "d"]),
    )


def test_points_from_rare_to_popular_labels(data):
    """The rarest true labels have 4, 4 (label 1 is filtered), 2 and 1 training points."""
    assert chosen_points(data, 4).tolist() == [3, 2, 0, 1]
    assert chosen_points(data, 2).tolist() == [2, 1]
    assert chosen_points(data, 9).tolist() == [3, 2, 0, 1]


def test_true_labels_are_marked_and_filtered_ones_gone(data, tmp_path):
    row = Row("nearest", "label-text")
    experiment = Experiment("own", "Examples", (row, Row("not run", "knn")), examples=4)
    run(row.spec("four", 0), data=data, store=tmp_path, device="cpu")
    grid = examples_grid(experiment, DatasetRuns(data, Store(tmp_path), "four"), [0])
    assert grid.header == ("point", "true labels", "nearest")
    assert grid.notes == ("not run: not run yet",)
    first = grid.rows[0]
    assert [cell.figure for cell in first] == ["p3", "a", "d"]
    assert [cell.best for cell in first] == [False, False, True]
    of_p1 = grid.rows[15:20]
    assert of_p1[0][0].figure == "p1"
    assert "b" not in [cells[2].figure for cells in of_p1]


def test_long_titles_are_cut_and_every_column_begins_at_its_left(data, tmp_path):
    names = TextColumn.of([f"{letter * 20} {letter * 20}" for letter in "abcd"])
    long = dataclasses.replace(data, label_titles=names)
    row = Row("nearest", "label-text")
    run(row.spec("four", 0), data=long, store=tmp_path, device="cpu")
    grid = examples_grid(
        Experiment("own", "Examples", (row,), examples=1), DatasetRuns(long, Store(tmp_path), "four"), [0]
    )
    predicted = grid.rows[0][2]
    assert predicted.figure == "aaaaaaaaaaaaaaaaaaaa aaaaaaaaaaaaaa…"
    assert predicted.hover == names[0]
    assert as_text([grid]).splitlines()[4].startswith("p0     aaaaaaaaaaaaaaaaaaaa aaaaaaaaaaaaaa…  aaaa")
    assert "| --- | --- | --- |" in as_markdown([grid])


def test_without_titles_there_is_nothing_to_show(data, tmp_path):
    bare = dataclasses.replace(data, label_titles=None)
    experiment = Experiment("own", "Examples", (Row("knn", "knn"),), examples=1)
    with pytest.raises(InputError, match="examples need the titles"):
        examples_grid(experiment, DatasetRuns(bare, Store(tmp_path), "four"), [0])
