"""Statistics of a dataset that can be counted by hand, as text, as JSON, as a picture, and through the command."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from xcbench.cli import main
from xcbench.data import Dataset, Split
from xcbench.data.stats import draw_frequency_curve, gini, statistics
from xcbench.errors import InputError


def csr(rows):
    return sp.csr_array(np.array(rows, np.float32))


TINY = Dataset(
    name="tiny",
    train=Split(csr([[1, 1, 0], [0, 1, 0], [0, 0, 0]]), csr([[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0]])),
    test=Split(csr([[1, 0, 0], [0, 0, 0]]), csr([[0, 0, 0, 1], [0, 0, 0, 0]]), filter=np.array([[0, 3]])),
    Z=csr([[1, 1, 1], [0, 0, 0], [1, 0, 0], [0, 0, 1]]),
)


def test_everything_is_counted():
    found = statistics(TINY)
    assert found.to_dict() == {
        "name": "tiny",
        "train_points": 3,
        "test_points": 2,
        "labels": 4,
        "features": 3,
        "labels_per_point": pytest.approx(5 / 3),
        "labels_per_test_point": 0.5,
        "points_per_label": 5 / 4,
        "tokens_per_point": 1.0,
        "tokens_per_label": 5 / 4,
        "train_points_without_features": 1,
        "test_points_without_features": 1,
        "train_points_without_labels": 0,
        "test_points_without_labels": 1,
        "labels_without_text": 1,
        "labels_without_training_points": 1,
        "train_filter_pairs": 0,
        "test_filter_pairs": 1,
        "true_test_pairs_filtered": 1,
        "test_points_without_truth": 2,
        "median_points_per_label": 1.0,  # of 3, 1, 1, 0
        "most_points_of_a_label": 3,
        "share_of_labels_with_few_points": 1.0,
        "share_of_positives_in_top_percent": 3 / 5,
        "gini": pytest.approx(0.45),  # 18 of absolute differences over all 16 pairs, over 2 * 16 * 5/4
    }
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_text_names_every_figure():
    shown = str(statistics(TINY))
    for line in (
        "train points N",
        "labels per train point",
        "1.67",
        "Gini coefficient",
        "0.450",
        "labels without text",
    ):
        assert line in shown
    without_text = Dataset("bare", TINY.train, TINY.test)
    assert "no text" in str(statistics(without_text))
    assert statistics(without_text).tokens_per_label is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_gini_is_half_the_relative_mean_difference(counts):
    counts = np.array(counts)
    differences = np.abs(counts[:, None] - counts[None, :]).mean()
    expected = differences / (2 * counts.mean()) if counts.sum() else 0.0
    assert gini(counts) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_curve_is_drawn(tmp_path, kind):
    draw_frequency_curve(TINY, tmp_path / f"curve.{kind}")
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]
    assert (tmp_path / f"curve.{kind}").read_bytes().startswith(start)


def test_a_dataset_without_positives_still_has_a_picture(tmp_path):
    empty = sp.csr_array((2, 3), dtype=np.float32)
    split = Split(empty, empty)
    bare = Dataset("bare", split, split)
    draw_frequency_curve(bare, tmp_path / "bare.png")
    assert statistics(bare).gini == 0
    with pytest.raises(InputError, match=r"ends in \.png"):
        draw_frequency_curve(bare, tmp_path / "bare.jpeg")
    assert [path.name for path in tmp_path.iterdir()] == ["bare.png"]


def exit_code(*arguments):
    try:
        main(["data", *arguments])
    except SystemExit as stopped:
        return stopped.code
    return 0


def test_the_command_prints_text_or_json(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    assert exit_code("synth", "--like", "lf-amazontitles-131k", "--scale", "0.0005", "--name", "made-up") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("made-up\n")
    assert exit_code("stats", "made-up") == 0
    assert capsys.readouterr().out == printed
    assert exit_code("stats", "made-up", "--json", "--picture", str(tmp_path / "curve.png")) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == 66
    assert (tmp_path / "curve.png").exists()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    made = ["synth", "--like", "lf-amazontitles-131k", "--scale", "0.0005"]
    assert exit_code(*made, "--name", "made-up") == 0
    (tmp_path / "file").write_text("not a folder")
    capsys.readouterr()
    assert exit_code("stats", "made-up", "--picture", str(tmp_path / "file" / "curve.png")) == 1
    assert exit_code("export", "made-up", str(tmp_path / "file" / "out")) == 1
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "file"))
    assert exit_code(*made) == 1
    streams = capsys.readouterr()
    assert all(line.startswith(f"xcbench: {tmp_path / 'file'}") for line in streams.err.splitlines())
    assert streams.err.count("\n") == 3
    assert streams.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["synth", "--like", "LF-AmazonTitles-131M"],
        ["synth", "--like", "LF-AmazonTitles-131K", "--scale", "-1"],
        ["synth", "--like", "LF-AmazonTitles-131K", "--scale", "0.001", "--seed", "-1"],
        ["synth", "--like", "LF-AmazonTitles-131K", "--scale", "0.001", "--name", "../up"],
        ["stats", "no-such-dataset"],
        ["stats", "lf-debian-4k", "--picture", "curve.doc"],
    ],
)
def test_wrong_input_is_one_line_and_code_2(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    assert exit_code(*arguments) == 2
    streams = capsys.readouterr()
    assert streams.err.count("\n") == 1
    assert streams.out == ""
