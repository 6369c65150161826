"""Rows in, rows out: ids and order kept, each row answered, whatever the kind of file, and nothing half-written."""

import csv
import io
import json

import numpy as np
import pytest

from tests.data.test_readers import write
from xcbench.data import TopK
from xcbench.data.answers import AnswerColumns, Answers, answer_file
from xcbench.errors import DataError, InputError
from xcbench.evaluation import Thresholds
from xcbench.runner.answering import BELOW_THRESHOLD, ROWS_AT_ONCE, QuestionTable, answer_table, answers
from xcbench.runner.execute import run
from xcbench.runner.model import load_model
from xcbench.runner.spec import RunSpec
from xcbench.runner.toy import toy_dataset

ROWS = [
    ("id-3", "topic3 group0"),
    ("id-1", 'topic7, "group1"\ntopic6'),
    ("id-1", ""),
    ("", "nothing known"),
    ("9", "topic12 group2 word1"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    record = run(RunSpec("knn", "toy"), data=toy_dataset(), store=folder, cache=folder / "cache", device="cpu")
    return load_model(record)


def csv_file(folder, rows=ROWS):
    text = io.StringIO()
    csv.writer(text).writerows([("sku", "name"), *rows])
    return write(folder, {"ask.csv": text.getvalue()}) / "ask.csv"


def read_csv(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def expected(model, k=3):
    """The labels of each row as the model itself predicts them."""
    predictions = model.predict_text([title for _, title in ROWS], k)
    rows = [[model.label_titles[label] for label in row if label >= 0] for row in predictions.indices.tolist()]
    rows[2] = []
    return rows


def test_csv_answers_every_row_in_its_order(model, tmp_path):
    asked = QuestionTable.open(csv_file(tmp_path), "NAME", "sku")
    assert answer_table(model, asked, tmp_path / "y.csv", 3) == 5
    rows = read_csv(tmp_path / "y.csv")
    assert [(row["sku"], row["name"]) for row in rows] == ROWS
    assert [[row[f"label_{k}"] for k in (1, 2, 3) if row[f"label_{k}"]] for row in rows] == expected(model)
    assert [row["note"] for row in rows] == ["", "", "empty title", "no known word", ""]
    scores = model.predict_text([ROWS[0][1]], 3).scores[0]
    assert [float(rows[0][f"score_{k}"]) for k in (1, 2, 3)] == pytest.approx(scores.tolist(), rel=5e-4)


@pytest.mark.parametrize("rows_at_once", [1, 2, 3, 100])
def test_parts_make_no_difference(model, rows_at_once):
    parts = list(answers(model, ROWS, 3, rows_at_once=rows_at_once))
    (whole,) = answers(model, ROWS, 3)
    assert [key for part in parts for key in part.keys] == list(whole.keys)
    assert [note for part in parts for note in part.notes] == list(whole.notes)
    assert np.concatenate([part.predictions.indices for part in parts]).tolist() == whole.predictions.indices.tolist()


def test_json_lines_and_parquet_say_the_same(model, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    asked = QuestionTable.open(csv_file(tmp_path), "name", "sku")
    answer_table(model, asked, tmp_path / "y.jsonl", 3)
    rows = [json.loads(line) for line in (tmp_path / "y.jsonl").read_text("utf-8").splitlines()]
    assert [(row["sku"], row["name"]) for row in rows] == ROWS
    assert [row["labels"] for row in rows] == expected(model)
    assert [[model.label_titles[label] for label in row["label_ids"]] for row in rows] == expected(model)
    answer_table(model, asked, tmp_path / "y.parquet", 3)
    there = parquet.read_table(tmp_path / "y.parquet").to_pylist()
    assert [row.pop("scores") for row in there] == [pytest.approx(row.pop("scores"), rel=5e-4) for row in rows]
    assert there == rows


def test_parquet_to_parquet_keeps_the_type_of_ids(model, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import read_table, write_table

    write_table(pyarrow.table({"n": [7, 3, 5], "title": ["topic1", None, "topic2"]}), tmp_path / "x.parquet")
    answer_table(model, QuestionTable.open(tmp_path / "x.parquet", None, "n"), tmp_path / "y.parquet", 1)
    table = read_table(tmp_path / "y.parquet")
    assert table.column("n").to_pylist() == [7, 3, 5]
    assert table.column("labels").to_pylist()[1] == []


def test_a_threshold_cuts_scores(model):
    asked = [(1, "topic3 group0"), (2, "topic7 group1 word3 word4")]
    (uncut,) = answers(model, asked, 5)
    threshold = float(uncut.predictions.scores[0, 0])
    (cut,) = answers(model, asked, 5, Thresholds.everywhere(threshold))
    assert ((cut.predictions.indices >= 0) == (uncut.predictions.scores >= threshold)).all()
    (nothing,) = answers(model, asked, 5, Thresholds.everywhere(1e9))
    assert list(nothing.notes) == [BELOW_THRESHOLD] * 2


def test_lines_are_rows_and_blank_ones_are_answered(model, tmp_path):
    path = write(tmp_path, {"x.txt": "topic1 group0\n\n  \ntopic2 group0"}) / "x.txt"
    answer_table(model, QuestionTable.open(path), tmp_path / "y.csv", 1)
    rows = read_csv(tmp_path / "y.csv")
    assert [(row["row"], row["label_1"]) for row in rows] == [
        ("1", "topic1 group0"),
        ("2", ""),
        ("3", ""),
        ("4", "topic2 group0"),
    ]


def test_an_error_late_in_the_file_leaves_nothing(model, tmp_path):
    rows = ROWS_AT_ONCE + 10
    path = write(tmp_path, {"x.csv": b"title,x\n" + rows * b"topic1,1\n" + b"\xe9,3\n"}) / "x.csv"
    for name in ("y.csv", "y.jsonl"):
        with pytest.raises(DataError, match=f"line {rows + 2}: expected UTF-8"):
            answer_table(model, QuestionTable.open(path), tmp_path / name, 1)
    (tmp_path / "y.csv").write_text("what was there before")
    with pytest.raises(DataError):
        answer_table(model, QuestionTable.open(path), tmp_path / "y.csv", 1)
    assert {file.name for file in tmp_path.iterdir()} == {"x.csv", "y.csv"}
    assert (tmp_path / "y.csv").read_text() == "what was there before"


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_awkward_names_come_back(tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    names = np.array(['a,"b"', "line\nbreak", "tab\there", "plain"], object)
    columns = AnswerColumns("id", "title", 2, names)
    predictions = TopK(
        np.array([[1, 0], [2, -1], [-1, -1]], np.int32),
        np.array([[0.123456, 1e-9], [2345678, -np.inf], [-np.inf, -np.inf]], np.float32),
    )
    with answer_file(tmp_path / f"y.{kind}", columns) as file:
        file.write(Answers([1, 2, 3], ["x,y", "\r", "ü"], predictions, ["", "", "note"]))
        file.write(Answers([4, 5, 6], ["x,y", "\r", "ü"], predictions, ["", "", "note"]))
    assert read_back(tmp_path / f"y.{kind}") == 2 * [
        ("x,y", ["line\nbreak", 'a,"b"'], [pytest.approx(0.1235, rel=1e-3), pytest.approx(1e-9, rel=1e-3)], ""),
        ("\r", ["tab\there"], [pytest.approx(2346000, rel=1e-3)], ""),
        ("ü", [], [], "note"),
    ]


def read_back(path):
    if path.suffix == ".parquet":
        from pyarrow.parquet import read_table

        rows = read_table(path).to_pylist()
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_bytes().decode().split("\n")[:-1]]
    else:
        rows = []
        separator = "\t" if path.suffix == ".tsv" else ","
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter=separator):
                labels = [row[f"label_{k}"] for k in (1, 2) if row[f"label_{k}"]]
                scores = [float(row[f"score_{k}"]) for k in (1, 2) if row[f"score_{k}"]]
                rows.append({"title": row["title"], "labels": labels, "scores": scores, "note": row["note"]})
    return [(row["title"], row["labels"], row["scores"], row["note"]) for row in rows]


def test_a_blank_line_of_a_table_is_a_row_without_an_id(model, tmp_path):
    path = write(tmp_path, {"x.csv": "id,title\n7,topic1 group0\n\n8,topic2 group0\n"}) / "x.csv"
    answer_table(model, QuestionTable.open(path, None, "id"), tmp_path / "y.csv", 1)
    rows = read_csv(tmp_path / "y.csv")
    assert [(row["id"], row["label_1"], row["note"]) for row in rows] == [
        ("7", "topic1 group0", ""),
        ("", "", "empty title"),
        ("8", "topic2 group0", ""),
    ]


def test_columns_that_would_be_there_twice(model, tmp_path):
    path = write(tmp_path, {"x.csv": "note,title\n1,a\n"}) / "x.csv"
    with pytest.raises(InputError, match="two columns 'note'"):
        answer_table(model, QuestionTable.open(path, None, "note"), tmp_path / "y.csv", 1)
    assert not (tmp_path / "y.csv").exists()
