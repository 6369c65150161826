"""Accuracy against time: which runs count, what is on the front, and the picture."""

import dataclasses
import warnings

import numpy as np
import pytest

from tests.report.test_plots import ink
from xcbench.cli import main
from xcbench.errors import InputError
from xcbench.evaluation import Interval
from xcbench.report import tradeoff
from xcbench.report.tradeoff import COSTS, GAINS, Standing, _notes, _pictures, draw_tradeoff, front, standings
from xcbench.report.variants import variants_on
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec


def test_the_front_is_what_nothing_else_beats():
    cost = [1, 2, 3, 4, 2, 1]
    gain = [5, 7, 6, 9, 7, 4]
    # (3, 6) is dearer and worse than (2, 7); (1, 4) as cheap as (1, 5) but worse; two equals are both on it.
    assert front(cost, gain).tolist() == [True, True, False, True, True, False]


def test_the_front_against_its_definition():
    rng = np.random.default_rng(0)
    cost, gain = rng.integers(0, 8, 60), rng.integers(0, 8, 60)
    for i, on_it in enumerate(front(cost, gain)):
        beaten = any(
            cost[j] <= cost[i] and gain[j] >= gain[i] and (cost[j], gain[j]) != (cost[i], gain[i]) for j in range(60)
        )
        assert on_it != beaten


@pytest.fixture
def runs(dataset_runs):
    for spec in (
        RunSpec("knn"),
        RunSpec("knn", seed=1),
        RunSpec("knn", ablations=("text",)),
        RunSpec("label-text"),
        RunSpec("popularity"),
        RunSpec("knn", overrides={"neighbours": 3}),
        RunSpec("knn", rerank="game"),
    ):
        run(spec, data=dataset_runs.data, store=dataset_runs.store)
    return list(dataset_runs.store.records())


def standings_of(runs, dataset_runs):
    return {standing.name: standing for standing in standings(variants_on(runs, dataset_runs.data.fingerprint))}


def test_methods_stand_there_also_reranked_and_seeds_are_averaged(runs, dataset_runs):
    found = standings_of(runs, dataset_runs)
    assert sorted(found) == ["knn", "knn + game", "label-text", "popularity"]
    plain = [r for r in runs if r.method == "knn" and not r.ablations and not r.overrides and not r.rerank]
    assert len(plain) == 2
    assert found["knn"].costs["train_s"] == pytest.approx(np.mean([r.train_seconds for r in plain]))
    assert found["knn"].gains["P@1"].value == 100
    assert found["knn + game"].is_varied
    assert not found["knn"].is_varied
    assert variants_on(runs, "of other data") == []


def test_an_older_version_of_a_method_is_left_out(runs, dataset_runs):
    old = dataclasses.replace(
        next(r for r in runs if r.method == "popularity"), method_version="0", train_seconds=1e6, finished="1999"
    )
    assert standings_of([old, *runs], dataset_runs)["popularity"].costs["train_s"] < 1e6


def test_times_of_other_threads_are_not_on_the_front(runs, dataset_runs):
    def on_more_threads(record):
        return dataclasses.replace(record, environment={**record.environment, "threads": 64}, train_seconds=1e-6)

    mixed = [on_more_threads(r) if r.method == "label-text" else r for r in runs]
    found = standings_of(mixed, dataset_runs)
    assert not found["label-text"].is_timed_alike
    assert found["knn"].is_timed_alike
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for picture in _pictures(list(found.values()), "toy"):
            line = next(line for line in picture.axes[0].lines if line.get_drawstyle() == "steps-post")
            assert min(line.get_xdata()) > 1e-6
    assert "Triangles" in _notes(list(found.values()), [], "")


def test_what_is_not_drawn_is_counted(runs, dataset_runs, tmp_path):
    draw_tradeoff(dataset_runs, tmp_path / "t.svg")
    assert "Not drawn: ablations (1), other settings (1)." in (tmp_path / "t.svg").read_text()


def test_the_picture(runs, dataset_runs, tmp_path):
    path = draw_tradeoff(dataset_runs, tmp_path / "t.png")
    assert path is not None
    assert 0.01 < ink(path) < 0.6
    with pytest.raises(InputError, match=r"\.png, \.pdf, \.svg"):
        draw_tradeoff(dataset_runs, tmp_path / "t.gif")


@pytest.mark.parametrize(
    "times", [[(9.7, 0.008)], [(1, 1), (1, 1)], [(0.003, 0.40), (0.004, 0.45)], [(0.001, 1), (5000, 3)]]
)
def test_any_spread_of_times_is_drawn_with_its_points_inside_and_ticks_that_can_be_read(times):
    found = [
        Standing(f"m{n}", dict.fromkeys(GAINS, Interval(50 + n, 40, 60)), dict(zip(COSTS, t, strict=True)))
        for n, t in enumerate(times)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for picture in _pictures(found, "toy"):
            for axes, cost in zip(picture.axes, [*COSTS] * len(GAINS), strict=True):
                low, high = axes.get_xlim()
                assert all(1.5 * low < standing.costs[cost] < high / 1.5 for standing in found)
                assert 1 <= sum(low <= tick <= high for tick in axes.get_xticks()) <= 10
                assert not any(label.get_text() for label in axes.get_xticklabels(minor=True))


def test_seeds_may_be_chosen(runs, dataset_runs, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(tradeoff, "_pictures", lambda found, *_: iter(drawn.append(found) or ()))
    draw_tradeoff(dataset_runs, tmp_path / "t.png", seeds=(1,))
    assert [(s.name, s.costs["train_s"]) for s in drawn[0]] == [
        ("knn", next(r.train_seconds for r in runs if r.seed == 1))
    ]


def test_the_verb(runs, dataset_runs, tmp_path, capsys):
    where = ["--dataset", dataset_runs.source, "--store", str(dataset_runs.store.folder)]
    with pytest.raises(SystemExit) as end:
        main(["plot", "tradeoff", *where, "--output", str(tmp_path / "t.svg")])
    assert not end.value.code
    assert str(tmp_path / "t.svg") in capsys.readouterr().out
    picture = (tmp_path / "t.svg").read_text()
    assert "far below" in picture or "popularity" in picture


@pytest.mark.parametrize(("name", "meant"), [("tradeof", "tradeoff"), ("decaf/figur6", "decaf/figure6")])
def test_a_misspelt_figure_is_guessed(name, meant, capsys):
    with pytest.raises(SystemExit) as end:
        main(["plot", name])
    assert end.value.code == 2
    assert f"unknown figure {name!r}; did you mean {meant}" in capsys.readouterr().err


def test_nothing_to_draw_is_said(dataset_runs, capsys):
    with pytest.raises(SystemExit) as end:
        main(["plot", "tradeoff", "--dataset", dataset_runs.source, "--store", str(dataset_runs.store.folder)])
    assert not end.value.code
    assert "nothing to draw yet" in capsys.readouterr().out
