"""Summaries: small copies of runs that give the same figures, and say what they cannot answer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.report.conftest import METHOD, InProcess, make_toy
from xcbench.data import Dataset, Split, TopK
from xcbench.errors import DataError, InputError
from xcbench.evaluation import Truth, evaluate, frequency_bins
from xcbench.evaluation.hit_file import FirstHits
from xcbench.evaluation.hits import find_hits
from xcbench.report import tables
from xcbench.report.columns import column
from xcbench.report.comparison import compare_runs
from xcbench.report.experiments import Experiment, Row
from xcbench.report.frequency import bin_figures
from xcbench.report.notebooks import runs_on, side_by_side
from xcbench.report.scores import DatasetRuns, ScoreTable
from xcbench.report.summaries import keep_summary
from xcbench.runner.model import load_model
from xcbench.runner.store import Store

ROWS = (
    Row("all", METHOD, overrides={"noise": 7}),
    Row("half", METHOD, overrides={"right": 0.5, "noise": 3}),
    Row("floor", "popularity"),
)
METRICS = ("P@1", "P@5", "PSP@3", "nDCG@5", "PSnDCG@3", "R@5", "PSR@5", "MRR@5", "C@1", "C@5", "Cpred@2")
SEEDS = (0, 1)


@pytest.fixture
def runs(dataset_runs):
    tables.run_missing(Experiment("mine", "t", ROWS, ("P@1",)), [dataset_runs], SEEDS, InProcess())
    return runs_on(dataset_runs.store, "toy")


@pytest.fixture
def small(tmp_path):
    return Store(tmp_path / "small")


def summarised(runs, store, data, depth=5):
    for records in runs.values():
        for record in records:
            keep_summary(record, store, data, depth)
    return runs_on(store, "toy")


def test_a_summary_is_a_record_without_its_model(runs, toy, small):
    record = runs["popularity"][0]
    keep_summary(record, small, toy, depth=3, predictions=2)
    (kept,) = small.records()
    assert kept == record
    assert kept.is_summary
    assert kept.depth == 3
    assert kept.log() == record.log()
    full, cut = record.predictions(), kept.predictions()
    assert cut.k == 2
    assert (cut.indices == full.indices[:, :2]).all()
    assert np.allclose(cut.scores, full.scores[:, :2], rtol=1e-3)
    assert (np.diff(cut.scores, axis=1) <= 0).all()
    with pytest.raises(InputError, match="kept without its model"):
        load_model(kept, METHOD)


def test_a_summary_of_a_summary_is_the_same(runs, toy, small, tmp_path):
    keep_summary(runs["popularity"][0], small, toy)
    (first,) = small.records()
    second = Store(tmp_path / "second")
    keep_summary(first, second, toy)
    for name in ("record.json", "hits.npz"):
        assert (second.path(first.id) / name).read_bytes() == (first.folder / name).read_bytes()


def test_a_summary_gives_the_same_figures(runs, toy, small):
    kept = summarised(runs, small, toy)
    columns = [column(name) for name in METRICS]
    whole = ScoreTable(toy, runs, columns, resamples=500)
    cut = ScoreTable(toy, kept, columns, resamples=500)
    names = list(runs)
    for metric in METRICS:
        for name in names:
            assert whole.spread(name, column(metric)) == cut.spread(name, column(metric))
            assert whole.interval(name, metric) == cut.interval(name, metric)
        weights = {names[0]: 1.0, names[1]: -1.0}
        assert whole.contrast(metric, weights, 0.5) == cut.contrast(metric, weights, 0.5)


def test_a_summary_gives_the_same_bins_and_comparisons(runs, toy, small):
    kept = summarised(runs, small, toy)
    truth = Truth.of(toy)
    bins = frequency_bins(toy.label_frequency, 4)
    whole = bin_figures(runs, truth, "P@5", bins, 4)
    cut = bin_figures(kept, truth, "P@5", bins, 4)
    for name in runs:
        assert whole[name].values.sum() > 0
        assert (whole[name].values == cut[name].values).all()
        assert (whole[name].low == cut[name].low).all()
    first_seeds = [records[0] for records in runs.values()]
    kept_first_seeds = [records[0] for records in kept.values()]
    assert compare_runs(first_seeds, ["P@1", "P@5"], toy) == compare_runs(kept_first_seeds, ["P@1", "P@5"], toy)


def test_a_table_is_filled_from_summaries(runs, toy, small, dataset_runs):
    summarised(runs, small, toy)
    experiment = Experiment("mine", "t", ROWS, ("P@1", "P@5", "train_s"), reference="all")
    from_summaries = DatasetRuns(toy, small, dataset_runs.source)
    whole = tables.fill(experiment, dataset_runs, SEEDS)
    cut = tables.fill(experiment, from_summaries, SEEDS)
    assert [row.cells for row in cut.rows] == [row.cells for row in whole.rows]
    assert {row.state for row in cut.rows} == {"done"}


def random_predictions(data: Dataset, k: int) -> TopK:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(len(data.test), data.label_count))
    indices = np.argsort(-scores, axis=1)[:, :k].astype(np.int32)
    return TopK(indices, -np.sort(-scores, axis=1)[:, :k].astype(np.float32))


def filtered_data() -> Dataset:
    """Points with several labels, of which some pairs are filtered."""
    rng = np.random.default_rng(1)
    toy = make_toy(60)
    dense = toy.test.Y.toarray() + (rng.random(toy.test.Y.shape) < 0.3)
    Y = type(toy.test.Y)((dense > 0).astype(np.float32))
    pairs = np.argwhere(rng.random(Y.shape) < 0.2)
    return dataclasses.replace(toy, test=Split(toy.test.X, Y, toy.test.titles, pairs))


def test_hits_survive_the_file_with_a_filter(tmp_path):
    data = filtered_data()
    truth = Truth.of(data)
    predictions = random_predictions(data, 9)
    hits = find_hits(predictions, truth)
    FirstHits.of(hits, truth, 4).save(tmp_path / "hits.npz")
    loaded = FirstHits.load(tmp_path / "hits.npz").hits(truth)
    expected = evaluate(predictions, truth, METRICS)
    for metric in ("P@3", "PSP@4", "nDCG@4", "R@2", "MRR@4", "C@4", "Cpred@4"):
        from_file = dataclasses.replace(expected, hits=loaded).per_point(metric)
        assert (from_file.numerator == expected.per_point(metric).numerator).all()
    assert loaded.place.max() == 3
    assert loaded.place.dtype == hits.place.dtype
    assert loaded.label.dtype == hits.label.dtype


def test_hits_are_refused_with_another_truth(runs, toy, small):
    keep_summary(runs["popularity"][0], small, toy)
    (kept,) = small.records()
    with pytest.raises(
        InputError, match=f"run {kept.id} was evaluated on other data: these hits were found with other"
    ):
        kept.hits(Truth.of(make_toy(50)))
    with pytest.raises(InputError, match="was made on other data than this 'toy'"):
        keep_summary(kept, small, make_toy(50))


@pytest.mark.parametrize("content", [b"zip?", None])
def test_a_damaged_summary_counts_as_missing(runs, toy, small, caplog, content):
    keep_summary(runs["popularity"][0], small, toy)
    (kept,) = small.records()
    path = kept.folder / "hits.npz"
    if content is None:
        np.savez(path.open("wb"), depth=3)
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"hits\.npz"):
        kept.evaluate(toy, ["P@1"])
    assert DatasetRuns(toy, small, "toy").get(kept.id) is None
    assert f"{kept.id}/hits.npz" in caplog.text


def test_predictions_that_are_not_kept_are_one_clear_line(runs, toy, small):
    keep_summary(runs["scripted + noise=7"][0], small, toy, depth=3)
    (kept,) = small.records()
    with pytest.raises(InputError, match="is kept without predictions: it has the hits in the first 3 places") as error:
        kept.predictions()
    assert "\n" not in str(error.value)


def test_fewer_predictions_than_are_to_be_shown(runs, toy, small):
    keep_summary(runs["popularity"][0], small, toy, predictions=2)
    (kept,) = small.records()
    assert "point 3" in side_by_side({"floor": kept}, toy, 3, k=2)
    with pytest.raises(InputError, match="keeps 2 predictions per point, not 3"):
        side_by_side({"floor": kept}, toy, 3, k=3)


def test_summaries_are_not_compared_beyond_their_depth(runs, toy, small):
    keep_summary(runs["scripted + noise=7"][0], small, toy, depth=3)
    pair = [runs["popularity"][0], *small.records()]
    assert [row.value for row in compare_runs(pair, ["P@3"], toy)] == pytest.approx([10.0, 100 / 3])
    with pytest.raises(InputError, match="keeps 3 labels per point, too few for P@5"):
        compare_runs(pair, ["P@3", "P@5"], toy)


def test_summaries_do_not_pretend_to_answer(runs, toy, small):
    """With three places kept, P@3 is known; P@5 and MRR, which looks at all places, are not."""
    keep_summary(runs["scripted + noise=7"][0], small, toy, depth=3)
    scores = ScoreTable(toy, {"a": list(small.records())}, [column("P@3"), column("P@5"), column("MRR")])
    assert scores.has("a", "P@3")
    assert not scores.has("a", "P@5")
    assert not scores.has("a", "MRR")
    assert scores.spread("a", column("P@5")) is None
