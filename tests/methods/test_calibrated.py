"""Calibration: what it knows of a pair, whom it learns from, and what it does behind real methods."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.sparse as sp
from xcbench.methods.rerankers import _held_out
from xcbench.methods.rerankers._evidence import Evidence, PairFeatures, _beginnings
from xcbench.methods.rerankers._held_out import _counted, _truth
from xcbench.methods.rerankers.calibrated import CalibratedRescorer, Network
from xcbench.methods.rerankers.sparse import SparseRanker, SparseRankerConfig, SparseRescorer

from tests.methods.problems import csr
from xcbench.data import Dataset, Split, TextColumn, TopK
from xcbench.data.text import TextEncoder
from xcbench.errors import DataError, InputError
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_reranker
from xcbench.runner.context import RunContext
from xcbench.runner.execute import run
from xcbench.runner.model import load_model
from xcbench.runner.plan import plan
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset


@pytest.fixture(autouse=True)
def few_points_are_enough(monkeypatch):
    monkeypatch.setattr(_held_out, "MIN_HELD_OUT", 1)


class Guesses:
    """A method that lists all labels in an order of chance, and remembers on what it was trained again."""

    def __init__(self, labels):
        self.labels, self.seen = labels, []

    def predict(self, X, k, titles=None):
        order = np.random.default_rng(0).permuted(np.tile(np.arange(self.labels), (X.shape[0], 1)), axis=1)[:, :k]
        return TopK.of(order, np.tile(0.9 ** np.arange(order.shape[1]), (len(order), 1)))

    def retrain(self, data):
        self.seen.append(data)
        return data, self


def fitted(data, folder, first, seed=0, **settings):
    reranker = get_reranker("calibrated")
    plugin = reranker(build(reranker.config_type, settings))
    return plugin.fit(data, RunContext(seed, "cpu", data, StageCache(folder), plugin), first)


def column(name):
    return PairFeatures._fields.index(name)


def test_stored_networks_read_the_features_in_this_order():
    assert PairFeatures._fields == (
        "log_score",
        "log_score_behind_best",
        "place",
        "ranker_margin",
        "log_ranker_score",
        "log_ranker_score_behind_best",
        "ranker_place",
        "text_cosine",
        "centroid_cosine",
        "label_frequency",
        "point_words",
        "label_words",
        "spelling_margin",
        "spelling_cosine",
        "beginning_cosine",
        "beginning_cosine_behind_best",
    )


def test_evidence_of_a_pair_by_hand():
    ranker = SparseRescorer(csr([[1, 0, 0.5], [0, 0, 0], [0, 1, 0]]), power=0.5)
    Z, C = csr([[1, 0], [0, 0], [0.6, 0.8]]), csr([[0.8, 0.6], [0, 1], [0, 0]])
    evidence = Evidence(ranker, Z, C, np.log(np.array([0.5, 0.25, 0.1], np.float32)), None)
    listed = TopK.of(np.array([[1, 0]]), np.array([[0.9, 0.4]]))
    known = evidence(listed, csr([[0.6, 0.8]]), None)
    assert known.shape == (1, 2, Evidence.COUNT)
    # Label 1 has margin 0, label 0 has 0.6 + 0.5; the ranker puts label 0 first, sqrt(0.4) against sqrt(0.9) / e.
    first, second = np.log(0.9) / 2 - 1, np.log(0.4) / 2
    label1 = [np.log(0.9), 0, 0, 0, first, first - second, 1, 0, 0.8, np.log(0.25), 2, 0, *[0] * 4]
    label0 = [np.log(0.4), np.log(0.4 / 0.9), 1, 1.1, second, 0, 0, 0.6, 0.96, np.log(0.5), 2, 1, *[0] * 4]
    np.testing.assert_allclose(known[0], [label1, label0], rtol=1e-5, atol=1e-6)


def test_evidence_of_labels_is_counted_on_the_training_points(tmp_path):
    X, Y = csr([[0.6, 0.8], [1, 0], [0, 1]]), csr([[1, 0, 0], [1, 1, 0], [0, 1, 0]])
    data = Dataset("d", Split(X, Y), Split(X, Y), Z=csr([[1, 0], [0, 0], [0.6, 0.8]]))
    sparse = SparseRanker(SparseRankerConfig())
    run = RunContext(0, "cpu", data, StageCache(tmp_path), sparse)
    evidence = Evidence.of(data, sparse, run, Guesses(3))
    expected = np.array([[1.6, 0.8], [1, 1], [0, 0]]) / np.sqrt([[3.2], [2], [1]])
    np.testing.assert_allclose(evidence.C.toarray(), expected, rtol=1e-6)
    np.testing.assert_allclose(evidence.frequency, np.log([1, 1, 1 / 3]), rtol=1e-6)
    again = sparse.fit(data, run, Guesses(3))
    assert np.array_equal(evidence.ranker.W.toarray(), again.W.toarray())
    assert evidence.spelling is None


def test_spelling_knows_words_that_no_training_point_has(tmp_path):
    titles = [f"{stem}{end}" for stem in ("plot", "tune", "cook") for end in ("ter", "ting", "table", "tool")]
    encoder = TextEncoder.fit([*titles, "plot", "tune", "cook"])
    X, Y = encoder.encode(titles), csr(np.repeat(np.eye(3), 4, axis=0))
    labels = TextColumn.of(["plot", "tune", "cook"])
    split = Split(X, Y, TextColumn.of(titles))
    data = Dataset("d", split, split, encoder.encode(labels), labels, encoder=encoder)
    sparse = SparseRanker(SparseRankerConfig())
    evidence = Evidence.of(data, sparse, RunContext(0, "cpu", data, StageCache(tmp_path), sparse), Guesses(3))
    new = ["plotless", "tuneless", "cookless"]
    listed = TopK.of(np.tile(np.arange(3), (3, 1)), np.ones((3, 3)))
    known = evidence(listed, encoder.encode(new), new)
    assert not known[:, :, column("text_cosine")].any()  # not one word of theirs is known
    for name in ("spelling_margin", "spelling_cosine", "beginning_cosine", "beginning_cosine_behind_best"):
        assert known[:, :, column(name)].argmax(axis=1).tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="learnt from titles"):
        evidence(listed, encoder.encode(new), None)


def test_beginnings_of_titles_count_apart(tmp_path):
    assert _beginnings(["plot: a tool", "tune, tuning", " cook book", "", ":", "naïve"]) == [
        "plot", "tune", "cook", "", "", "naïve",
    ]  # fmt: skip
    titles = ["plot: draws a tune", "tune: plays a plot", "plots: a tune", "tuned: a plot"]
    labels = TextColumn.of(["plot: draws", "tune: plays", "7"])
    encoder = TextEncoder.fit([*titles, *labels])
    split = Split(encoder.encode(titles), csr(np.eye(4, 3)), TextColumn.of(titles))
    data = Dataset("d", split, split, encoder.encode(labels), labels, encoder=encoder)
    sparse = SparseRanker(SparseRankerConfig())
    evidence = Evidence.of(data, sparse, RunContext(0, "cpu", data, StageCache(tmp_path), sparse), Guesses(3))
    listed = TopK.of(np.tile(np.arange(3), (2, 1)), np.ones((2, 3)))
    known = evidence(listed, encoder.encode(["plot of a tune", "tune of a plot"]), ["plot of a tune", "tune of a plot"])
    np.testing.assert_allclose(known[:, :, column("beginning_cosine")], [[1, 0, 0], [0, 1, 0]], atol=1e-6)
    np.testing.assert_allclose(
        known[:, :, column("beginning_cosine_behind_best")], [[0, -1, -1], [-1, 0, -1]], atol=1e-6
    )


def test_evidence_is_finite_whatever_is_missing():
    X = sp.csr_array((2, 3), dtype=np.float32)
    listed = TopK.of(np.array([[1, -1], [-1, -1]]), np.array([[0.0, -np.inf], [-np.inf, -np.inf]]))
    nothing = sp.csr_array((2, 3), dtype=np.float32)
    ranker = SparseRescorer(sp.csr_array((2, 4), dtype=np.float32))
    evidence = Evidence(ranker, None, nothing, np.zeros(2, np.float32), None)
    assert np.isfinite(evidence(listed, X, None)).all()
    found = CalibratedRescorer(evidence, Network(Evidence.COUNT, 4, 2)).rescore(listed, X)
    assert found.indices.tolist() == [[1, -1], [-1, -1]]
    assert found.scores[0, 0] == 1


def test_learns_from_points_that_the_second_training_has_not_seen(tmp_path):
    data, first = toy_dataset(train=100), Guesses(50)
    fitted(data, tmp_path, first, share=0.3)
    (part,) = first.seen
    assert (len(part.train), len(part.test)) == (70, 30)
    assert sorted([*part.train.titles, *part.test.titles]) == sorted(data.train.titles)
    assert not set(part.encoder.vocabulary) - {
        word for title in [*part.train.titles, *data.label_titles] for word in title.split()
    }
    first.seen.clear()
    fitted(data, tmp_path, first, share=0.3, most=12)
    assert len(first.seen[0].test) == 12


def test_finds_out_by_itself_that_words_are_to_be_trusted_and_the_method_is_not(tmp_path):
    data, first = toy_dataset(train=400), Guesses(50)
    listed = first.predict(data.test.X, 50)
    found = fitted(data, tmp_path, first).rescore(listed, data.test.X, data.test.titles)
    hits = [data.test.Y[[i], [label]][0] for i, label in enumerate(found.indices[:, 0])]
    assert np.mean(hits) > 0.9
    assert np.allclose(found.scores.sum(axis=1), 1, atol=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all()


def test_a_seed_decides_everything(tmp_path):
    data, first = toy_dataset(), Guesses(50)
    a, b, other = (
        fitted(data, tmp_path, first, seed).rescore(first.predict(data.test.X, 50), data.test.X, data.test.titles)
        for seed in (0, 0, 1)
    )
    assert np.array_equal(a.scores, b.scores)
    assert not np.array_equal(a.scores, other.scores)


def test_pairs_that_count_neither_way_are_left_out_of_lists_and_truth():
    listed = TopK.of(np.array([[2, 0, -1], [1, 2, 0]]), np.array([[0.9, 0.5, -np.inf], [0.9, 0.5, 0.1]]))
    assert _truth(listed, csr([[0, 1, 1], [1, 0, 0]])).tolist() == [[True, False, False], [False, False, True]]
    assert _counted(listed, np.array([[0, 0], [1, 2]])).tolist() == [[True, False, False], [True, False, True]]
    assert _counted(listed, np.zeros((0, 2), np.int64)).tolist() == [[True, True, False], [True] * 3]


@pytest.mark.parametrize("method", ["knn", "decaf"])
def test_works_behind_a_method_and_is_kept_with_its_model(method, tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset()
    plain, record = (run(RunSpec(method, rerank=rerank), data=data) for rerank in (None, "calibrated"))
    assert record.metrics["P@1"].value >= plain.metrics["P@1"].value - 2
    assert record.metrics["R@100"].value == plain.metrics["R@100"].value  # the same labels in another order
    assert record.reported == plain.reported  # what the second training says is not said of this run
    own, whole = ({stage.key for stage in r.stages} for r in (plain, record))
    assert own < whole or not own
    model = load_model(record)
    again = model.predict(data.test.X, 50, data.test.titles)
    assert np.array_equal(again.indices, record.predictions().indices)
    assert model.predict_text(["topic7 group1"], 3).indices[0, 0] == 7


@pytest.mark.parametrize("text", [True, False])
def test_works_with_and_without_text(text, tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset()
    if not text:
        plain = {name: dataclasses.replace(getattr(data, name), titles=None) for name in ("train", "test")}
        data = dataclasses.replace(data, Z=None, label_titles=None, encoder=None, **plain)
    before, after = (run(RunSpec("knn", rerank=rerank), data=data) for rerank in (None, "calibrated"))
    assert after.metrics["P@1"].value >= before.metrics["P@1"].value - 10


def test_a_dry_run_shows_both_trainings(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    spec, data = RunSpec("decaf", rerank="calibrated"), toy_dataset()
    planned = [stage.key for stage, _ in plan(spec, data=data).stages]
    assert len(planned) == 6
    assert planned == [stage.key for stage in run(spec, data=data).stages]


def test_a_damaged_calibration_is_one_line(tmp_path):
    known = SparseRescorer(csr([[1, 0]])), None, csr([[1]]), np.zeros(1, np.float32), None
    CalibratedRescorer(Evidence(*known), Network(Evidence.COUNT, 4, 2)).save(tmp_path)
    CalibratedRescorer.load(tmp_path)
    tree = json.loads((tmp_path / "values.json").read_text())
    tree["network"]["dict"]["sizes"] = {"list": [{"json": 4}, {"json": 1}]}
    (tmp_path / "values.json").write_text(json.dumps(tree))
    with pytest.raises(DataError, match="not a stored calibration"):
        CalibratedRescorer.load(tmp_path)


def test_an_augmentation_is_applied_to_the_second_training_too(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset()
    pairs = np.array([[i, (int(data.train.Y[[i]].indices[0]) + 7) % 50] for i in range(len(data.train))])
    data = dataclasses.replace(data, train=dataclasses.replace(data.train, filter=pairs))
    record = run(RunSpec("decaf", augment=("ignore-filtered",), rerank="calibrated"), data=data)
    log = (record.folder / "log.txt").read_text()
    assert "200 pairs of the training filter are ignored in training" in log
    assert "160 pairs of the training filter are ignored in training" in log


def test_its_memory_is_known_beforehand(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset(labels=100, train=2000, test=10)
    sparse, calibrated = (
        plan(RunSpec("popularity", rerank=name), data=data).memory.bytes for name in ("sparse", "calibrated")
    )
    assert calibrated - sparse > 4 * Evidence.COUNT * 100 * 400 / 2


@pytest.mark.parametrize("points", [2, 20, 200])
def test_with_few_points_the_sparse_ranker_ranks_alone(points, tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    monkeypatch.setattr(_held_out, "MIN_HELD_OUT", 41)
    data = toy_dataset(train=points)
    sparse, record = (run(RunSpec("knn", rerank=rerank), data=data) for rerank in ("sparse", "calibrated"))
    assert np.array_equal(record.predictions().indices, sparse.predictions().indices)
    assert "the sparse ranker ranks alone" in (record.folder / "log.txt").read_text()
    assert np.array_equal(load_model(record).predict(data.test.X, 50).indices, record.predictions().indices)


@pytest.mark.parametrize(
    ("key", "value"),
    [("share", 1.0), ("share", 0.0), ("most", 0), ("rare", -1.0), ("networks", 0), ("hidden", 0), ("lr", 0.0)],
)
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_reranker("calibrated").config_type, {key: value})
