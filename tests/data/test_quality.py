"""What is allowed in a dataset but likely to mislead: each is counted, against datasets written by hand."""

import dataclasses
import json

import numpy as np
import pytest

from tests.data.test_readers import JSON, SPLIT, write
from xcbench.data import load_dataset
from xcbench.data.assemble import assemble
from xcbench.data.catalog import name_from_path
from xcbench.data.importing import import_dataset
from xcbench.data.quality import dataset_notes, filtered_true_pairs, points_without_truth
from xcbench.data.readers import read_raw
from xcbench.data.stats import statistics
from xcbench.errors import InputError
from xcbench.evaluation import Truth


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))


def notes(tmp_path, files):
    return dataset_notes(assemble(read_raw(write(tmp_path / "raw", files)), "x"))


def points(*rows):
    return "\n".join(json.dumps({"title": title, "target_ind": labels}) for title, labels in rows)


def labels(*titles):
    return "\n".join(json.dumps({"title": title}) for title in titles)


TRAIN = points(("red apple", [0]), ("green tree", [1]))


@pytest.mark.parametrize(
    ("test", "label_titles", "note"),
    [
        (TRAIN, ("fruit", "wood"), "test is train: the same points with the same labels"),
        (
            points((" red apple", [0]), ("red tree", [1])),
            ("fruit", "wood"),
            "occur in train: 1 (50.0%), such as ' red a",
        ),
        (
            points(("tree", [0])),
            ("fruit", "fruit", "", ""),
            "labels with the text of another label: 2, such as 'fruit'",
        ),
        (points(("tree", [0])), ("Wood", "wood", "x"), "only in case: 2, such as 'Wood' and 'wood'"),
        (points(("a\0b", [0]), ("tree", [1])), ("a", "b"), "test titles with NUL bytes: 1, first in title 1;"),
        (points(("tree zebra yak", [0])), ("fruit", "wood"), "not in the vocabulary: 2 of 3 distinct ones"),
    ],
)
def test_each_is_said(tmp_path, test, label_titles, note):
    found = notes(tmp_path, {"trn.json": TRAIN, "tst.json": test, "lbl.json": labels(*label_titles)})
    assert any(note in line for line in found), found


def test_nothing_is_said_of_clean_data(tmp_path):
    test = points(("apple", [0]), ("tree", [1]))
    assert notes(tmp_path, {"trn.json": TRAIN, "tst.json": test, "lbl.json": labels("fruit", "wood")}) == []


def test_features_alone_can_be_the_same(tmp_path):
    same = {"tst_X_Xf.txt": SPLIT["trn_X_Xf.txt"], "tst_X_Y.txt": SPLIT["trn_X_Y.txt"]}
    assert "test is train" in notes(tmp_path, SPLIT | same)[0]


def test_repeated_ids_are_counted(tmp_path):
    rows = [{"uid": uid, "title": "a", "target_ind": [0]} for uid in ("x", "y", "x", "x")]
    report = import_dataset(
        write(tmp_path / "raw", JSON | {"tst.json": "\n".join(map(json.dumps, rows))}),
        "mine",
    )
    assert "tst.json: points with the 'uid' of an earlier one: 2, such as 'x' in line 3" in str(report)


def test_what_the_filter_does_to_the_truth(tmp_path):
    # Point 0 has label 2 alone, which is filtered; of point 1 a pair is filtered that is not true.
    folder = write(tmp_path / "raw", SPLIT | {"filter_labels_test.txt": "0 2\n1 1\n"})
    report = import_dataset(folder, "mine")
    assert (
        "the filter removes 1 of 2 true test pairs; test points without truth: 1, which count as zeros in every mean"
    ) in str(report)
    figures = statistics(report.dataset)
    assert (figures.true_test_pairs_filtered, figures.test_points_without_truth) == (1, 1)
    assert "test points without truth (count as 0)" in str(figures)


def test_truth_is_counted_as_evaluation_counts_it():
    dataset = load_dataset("lf-debian-4k")
    truth = Truth.of(dataset)
    assert filtered_true_pairs(dataset.test) == dataset.test.Y.nnz - truth.positives.nnz
    assert points_without_truth(dataset.test) == np.count_nonzero(truth.true_count == 0)
    hidden = dataclasses.replace(dataset.test, filter=np.argwhere(dataset.test.Y[:50].toarray() > 0))
    assert points_without_truth(hidden) == 50


def test_a_name_is_no_folder_by_chance(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "shop", JSON)
    with pytest.raises(InputError, match=r"unknown dataset 'shop'; there is a folder .* \./shop .*--name shop"):
        load_dataset("shop")
    assert load_dataset("./shop").name == load_dataset(tmp_path / "shop").name == "shop"
    import_dataset("shop", "shop")
    assert load_dataset("shop").manifest.sizes.train == 3


def test_a_published_name_says_where_its_files_are():
    with pytest.raises(InputError, match=r"Extreme Classification Repository.*--name LF-AmazonTitles-131K.*0\.6.*2\.6"):
        load_dataset("lf-amazontitles-131k")


def test_names_made_of_paths(tmp_path):
    (tmp_path / "my products.csv").touch()
    assert name_from_path(tmp_path / "my products.csv") == "my-products"
