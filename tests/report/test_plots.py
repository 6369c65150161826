"""Plots: the numbers that are drawn, a picture for each kind, and a plain word where there is nothing to draw."""

from __future__ import annotations

import itertools
import re

import matplotlib.image
import numpy as np
import pytest

from tests.report.conftest import METHOD, InProcess
from xcbench.cli import main
from xcbench.errors import InputError
from xcbench.evaluation import Truth
from xcbench.report import plot_style, plots, tables
from xcbench.report.experiments import Experiment, Figure, Row
from xcbench.report.frequency import bin_figures


def experiment(figure: Figure, *rows: Row, metrics=("P@1",)) -> Experiment:
    return Experiment("mine", "A figure", rows, metrics, figure=figure, paper="ECLARE", place="Fig 7")


def drawn(dataset_runs, path, experiment: Experiment) -> plots.Drawn:
    tables.run_missing(experiment, [dataset_runs], (0,), InProcess())
    return plots.draw(experiment, dataset_runs, (0,), path)


def ink(path) -> float:
    """The share of pixels that are not white."""
    return float((matplotlib.image.imread(path)[..., :3].min(axis=-1) < 0.9).mean())


ROWS = (
    Row("good", METHOD, overrides={"right": 0.9}, series="s", x=1),
    Row("fair", METHOD, overrides={"right": 0.5}, series="s", x=2),
    Row("to come", "lightxml", series="s", x=3),
)


@pytest.mark.parametrize(
    "figure",
    [
        Figure("bins", "x", "y", bins=4),
        Figure("bins", "x", "y", bins=4, by_k=True),
        Figure("lines", "x"),
        Figure("measured", "x", "y", quantity="curve"),
        Figure("frequency", "x", "y"),
    ],
    ids=lambda figure: figure.kind,
)
def test_every_kind_is_drawn(dataset_runs, tmp_path, figure):
    rows = () if figure.kind == "frequency" else ROWS
    metrics = ("R@10", "R@1", "R@5") if figure.by_k else ("P@1", "PSP@1")
    result = drawn(dataset_runs, tmp_path / "f.png", experiment(figure, *rows, metrics=metrics))
    assert result.path == tmp_path / "f.png"
    assert 0.01 < ink(result.path) < 0.6
    expected = {"to come": "no package exists; needs pre-trained BERT weights"}
    if figure.kind == "frequency":
        expected = {}
    assert dict(result.missing) == expected


@pytest.mark.parametrize("suffix", [".svg", ".pdf"])
def test_the_same_runs_give_the_same_file(dataset_runs, tmp_path, suffix):
    for name in ("a", "b"):
        drawn(dataset_runs, tmp_path / f"{name}{suffix}", experiment(Figure("bins"), *ROWS))
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_bin_contributions_add_up(dataset_runs, toy):
    row = ROWS[1]
    tables.run_missing(experiment(Figure("bins"), row), [dataset_runs], (0,), InProcess())
    records = list(dataset_runs.records(row, (0,)).values())
    bins = np.arange(10) // 2
    found = bin_figures({"fair": records}, Truth.of(toy), "P@1", bins, 5)["fair"]
    assert found.values == pytest.approx(np.full(5, 10.0))  # of 50; ten labels, two a bin, all alike
    assert (found.low <= found.values).all()
    assert (found.values <= found.high).all()


def test_nothing_to_draw_is_said(dataset_runs, tmp_path, capsys):
    result = drawn(dataset_runs, tmp_path / "f.png", experiment(Figure("bins"), ROWS[2]))
    assert result.path is None
    assert not (tmp_path / "f.png").exists()
    silent = experiment(Figure("measured", quantity="other"), ROWS[0])
    assert dict(drawn(dataset_runs, tmp_path / "f.png", silent).missing) == {"good": "its runs do not report other"}
    with pytest.raises(SystemExit) as end:
        main(["plot", "elias/figure4", "--dataset", dataset_runs.source, "--store", str(dataset_runs.store.folder)])
    said = capsys.readouterr()
    assert end.value.code == 0
    assert "there is nothing to draw yet" in said.out
    assert "ELIAS: not available: not run yet" in said.err


def test_wrong_requests(dataset_runs, tmp_path):
    with pytest.raises(InputError, match="is a table and has no figure"):
        plots.draw(Experiment("mine", "t", ROWS, ("P@1",)), dataset_runs, (0,), tmp_path / "f.png")
    with pytest.raises(InputError, match="a figure is written as"):
        plots.draw(experiment(Figure("bins"), *ROWS), dataset_runs, (0,), tmp_path / "f.bmp")
    with pytest.raises(InputError, match="needs an x"):
        drawn(dataset_runs, tmp_path / "f.png", experiment(Figure("lines"), Row("a", METHOD, series="s")))


@pytest.mark.parametrize(
    ("reported", "message"),
    [
        (3.0, "a reported curve is a mapping of x and y"),
        ({"x": [1]}, "a reported curve is a mapping of x and y"),
        ({"x": [1, 2], "y": [1]}, "2 values of x and 1 of y"),
    ],
)
def test_wrong_curves(reported, message):
    with pytest.raises(InputError, match=re.escape(message)):
        list(plots.curves(reported, "ECLARE"))


def test_curves():
    assert list(plots.curves({"x": [1, 2], "y": [3, 4]}, "A")) == [("A", [1, 2], [3, 4])]
    several = {"x": [1], "y": {"LTE": [2], "GALE": [3]}}
    assert [name for name, _, _ in plots.curves(several, "A")] == ["A LTE", "A GALE"]


def test_series_differ_without_colour():
    """In grey, neighbours differ in lightness, and no two share marker, line and hatch."""
    looks = [plot_style.series_style(number) for number in range(8)]
    assert len({look.marker for look in looks}) == len({str(look.line) for look in looks}) == 8
    assert len({look.hatch for look in looks}) == 8
    weights = np.array([0.299, 0.587, 0.114])
    grey = [weights @ [int(look.colour[i : i + 2], 16) for i in (1, 3, 5)] for look in looks]
    assert min(abs(a - b) for a, b in itertools.pairwise(grey)) > 25


def test_a_figure_of_the_data_needs_no_runs(dataset_runs, tmp_path, capsys):
    for arguments in (["table", "eclare/figure1"], ["plot", "eclare/figure1", "--output", str(tmp_path / "f.png")]):
        with pytest.raises(SystemExit) as end:
            main([*arguments, "--dataset", dataset_runs.source, "--store", str(dataset_runs.store.folder)])
        assert end.value.code == 0
    assert "`xcbench plot eclare/figure1` draws it" in capsys.readouterr().err
    assert ink(tmp_path / "f.png") > 0.01
