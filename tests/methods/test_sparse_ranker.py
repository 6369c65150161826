"""The sparse ranker: which examples a label gets, the formula, and what it adds behind real methods."""

import dataclasses

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from xcbench.methods.rerankers import sparse as sparse_ranker
from xcbench.methods.rerankers.sparse import SparseRescorer

from tests.methods.problems import csr
from xcbench.data import Dataset, Split, TopK
from xcbench.errors import InputError
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_reranker
from xcbench.runner.context import RunContext
from xcbench.runner.execute import run
from xcbench.runner.model import load_model
from xcbench.runner.plan import plan
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset


class Lists:
    """A method whose predictions are given: row i of X names the list by the place of its largest entry."""

    def __init__(self, indices):
        self.indices = np.array(indices)

    def predict(self, X, k, titles=None):
        indices = self.indices[X.toarray().argmax(axis=1), :k]
        return TopK.of(indices, np.where(indices >= 0, 0.5, -np.inf) / (1 + np.arange(indices.shape[1])))


def fitted(data, folder, first, **settings):
    reranker = get_reranker("sparse")
    plugin = reranker(build(reranker.config_type, settings))
    return plugin.fit(data, RunContext(0, "cpu", data, StageCache(folder), plugin), first)


@pytest.fixture
def asked(monkeypatch):
    """What the solver is asked, instead of a solution: points, and costs by point and label."""
    seen = {}

    def keep(X, examples, seed, **settings):
        seen.update(X=X.toarray(), costs=examples.T.toarray(), **settings)
        return sp.csr_array((examples.shape[0], X.shape[1]), dtype=np.float32)

    monkeypatch.setattr(sparse_ranker, "fit_sparse_classifiers", keep)
    return seen


@pytest.fixture
def four():
    """Four points of a word each; label 2 is soft for two of them, label 3 has no point."""
    X = csr(np.eye(4))
    Y = csr([[1, 0, 0, 0], [0, 1, 0.6, 0], [0, 1, 0.4, 0], [0, 0, 0, 0]])
    return Dataset("four", Split(X, Y), Split(X, Y), Z=csr([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]))


def test_true_labels_are_examples_and_listed_ones_counterexamples(four, asked, tmp_path):
    fitted(dataclasses.replace(four, Z=None), tmp_path, Lists([[0, 1], [0, 3], [2, -1], [3, 2]]), C=2.0)
    assert asked["costs"].tolist() == [[2, -2, 0, 0], [-2, 2, 2, -2], [0, 2, 0, 0], [0, 0, -2, -2]]
    assert asked["X"].tolist() == np.hstack([np.eye(4), np.ones((4, 1))]).tolist()


def test_titles_are_examples_of_less_weight_but_not_empty_ones(four, asked, tmp_path):
    fitted(four, tmp_path, Lists([[0, 1], [0, 3], [2, -1], [3, 2]]), title=0.25)
    assert asked["costs"][4:].tolist() == [[0.25, -0.25, 0, 0], [-0.25, 0.25, 0, -0.25], [0] * 4, [0, 0, -0.25, 0.25]]
    assert asked["X"][4:, :4].tolist() == four.Z.toarray().tolist()


def test_pairs_that_count_neither_way_are_no_examples_but_true_ones_stay(four, asked, tmp_path):
    pairs = np.array([[0, 0], [0, 1], [3, 0]])  # one true, one listed, one neither
    train = dataclasses.replace(four.train, filter=pairs, ignored=pairs[1:2])
    lists = Lists([[0, 1], [0, 3], [2, -1], [3, 2]])
    fitted(dataclasses.replace(four, train=train, Z=None), tmp_path, lists)
    assert asked["costs"].tolist() == [[1, 0, 0, 0], [-1, 1, 1, -1], [0, 1, 0, 0], [0, 0, -1, -1]]


def test_points_without_words_teach_nothing_and_blocks_change_nothing(asked, tmp_path, monkeypatch):
    data = toy_dataset()
    X = sp.csr_array(sp.vstack([data.train.X[:-1], sp.csr_array((1, data.feature_count), dtype=np.float32)]))
    data = dataclasses.replace(data, train=dataclasses.replace(data.train, X=X))
    lists = Lists(np.random.default_rng(0).permuted(np.tile(np.arange(50), (data.feature_count, 1)), axis=1)[:, :9])
    fitted(data, tmp_path, lists)
    whole = asked["costs"]
    assert not whole[199].any()
    assert whole[:199].any(axis=1).all()
    monkeypatch.setattr(sparse_ranker, "POINTS_AT_A_TIME", 7)
    fitted(data, tmp_path, lists)
    assert np.array_equal(asked["costs"], whole)


def test_is_the_formula():
    W = csr([[1, 0, 0.5], [0, 3, -1], [0, 0, 0]])
    predictions = TopK.of(np.array([[0, 1, 2], [1, 0, -1]]), np.array([[0.9, 0.5, 0.4], [0.8, 0.2, -np.inf]]))
    found = SparseRescorer(W).rescore(predictions, csr([[0.5, 0.5], [0, 1]]))
    # Margins of the first point: 1 for label 0, 0.5 for 1, 0 for 2; of the second: 2 for label 1, 0.5 for 0.
    assert found.indices.tolist() == [[0, 1, 2], [1, 0, -1]]
    expected = [0.9, 0.5 * np.exp(-0.125), 0.4 * np.exp(-1), 0.8, 0.2 * np.exp(-0.125)]
    assert found.scores[found.indices >= 0] == pytest.approx(expected)
    flatter = SparseRescorer(W, power=0.5).rescore(predictions, csr([[0.5, 0.5], [0, 1]]))
    assert flatter.scores[0, 0] == pytest.approx(0.9**0.5)
    assert flatter.scores[1, 1] == pytest.approx(0.2**0.5 * np.exp(-0.125))


@pytest.mark.parametrize(("ratio", "power"), [(np.exp(-2.0), 8 / 18), (np.exp(-0.5), 1.0), (0.0, 8 / 87.3)])
def test_only_scores_that_fall_steeply_are_flattened(ratio, power, tmp_path):
    """Each label has `ratio` times the score of the one before it: the tenth is nine times that far down."""
    data = toy_dataset()

    class Falling:
        def predict(self, X, k, titles=None):
            return TopK.of(np.tile(np.arange(k), (X.shape[0], 1)), np.tile(ratio ** np.arange(k), (X.shape[0], 1)))

    assert fitted(data, tmp_path, Falling()).power == pytest.approx(power, rel=1e-3)


def test_lists_too_short_to_tell_leave_the_scores_alone(four, tmp_path):
    assert fitted(four, tmp_path, Lists([[0, -1], [1, -1], [2, -1], [3, -1]])).power == 1.0


def test_tells_apart_what_the_method_cannot(four, tmp_path):
    data = dataclasses.replace(four, train=Split(four.train.X, csr(np.eye(4))))
    blind = Lists([[3, 2, 1, 0]] * 4)
    found = fitted(data, tmp_path, blind).rescore(blind.predict(four.test.X, 4), four.test.X)
    assert found.indices[:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("method", ["knn", "popularity", "decaf"])
def test_works_behind_a_method_and_is_kept_with_its_model(method, tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset()
    plain, record = (run(RunSpec(method, rerank=rerank, ensemble=2), data=data) for rerank in (None, "sparse"))
    assert record.metrics["P@1"].value >= plain.metrics["P@1"].value
    assert record.metrics["R@100"].value == plain.metrics["R@100"].value  # the same labels in another order
    assert [stage.key for stage in record.stages] == [stage.key for stage in plain.stages]
    model = load_model(record)
    assert np.array_equal(model.predict(data.test.X, 50, data.test.titles).indices, record.predictions().indices)
    assert model.predict_text(["topic7 group1"], 3).indices[0, 0] == 7


def test_its_memory_is_known_beforehand(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset(labels=100, train=40_000, test=10)  # 100 labels per point are listed: 40,100 x 100 examples
    run(RunSpec("popularity"), data=data)  # what it took says nothing of a run with a ranker
    plain, ranked = (plan(RunSpec("popularity", rerank=name), data=data).memory.bytes for name in ("game", "sparse"))
    assert ranked - plain > 24 * 4_000_000 - 8 * 10 * 100
    before = psutil.Process().memory_info().rss
    record = run(RunSpec("popularity", rerank="sparse"), data=data)
    assert record.peak_memory - before < 1.25 * (ranked - before)


def test_scores_below_zero_and_other_features_are_refused():
    rescorer = SparseRescorer(csr([[1, 0, 0.5], [0, 1, 0]]))
    below = TopK.of(np.array([[0, 1]]), np.array([[0.5, -0.5]]))
    with pytest.raises(InputError, match="below 0"):
        rescorer.rescore(below, csr([[1, 0]]))
    with pytest.raises(InputError, match="knows 2 features, the points have 3"):
        rescorer.rescore(below, csr([[1, 0, 0]]))


@pytest.mark.parametrize(
    ("key", "value"),
    [("C", 0.0), ("title", -1.0), ("tolerance", 0.0), ("max_log_drop", 0.0), ("epochs", 0), ("prune", -0.1)],
)
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_reranker("sparse").config_type, {key: value})


class Vectors(Lists):
    """The same with vectors of points."""

    def __init__(self, indices, vectors):
        super().__init__(indices)
        self.vectors = sp.csr_array(np.array(vectors, np.float32))

    def with_vectors(self, X, titles=None):
        return sp.csr_array(sp.hstack([X, self.vectors[X.toarray().argmax(axis=1)]], format="csr"))


def test_on_words_and_vectors_it_is_liblinear_on_the_same_columns(tmp_path):
    LinearSVC = pytest.importorskip("sklearn.svm").LinearSVC
    rng = np.random.default_rng(0)
    N = 40
    X = np.eye(N, dtype=np.float32) + sp.random_array((N, N), density=0.1, rng=rng).toarray().astype(np.float32)
    X[np.arange(N), np.arange(N)] = 2  # Lists finds a point by its largest entry
    vectors = rng.standard_normal((N, 6)).astype(np.float32)
    Y = (rng.random((N, 3)) < 0.4).astype(np.float32)
    points = Split(csr(X), csr(Y))
    lists = [[0, 1, 2]] * N
    settings = {"features": "words+embedding", "prune": 0.0, "tolerance": 1e-4, "epochs": 2000}
    rescorer = fitted(Dataset("dense", points, points), tmp_path, Vectors(lists, vectors), **settings)

    columns = np.hstack([X, vectors, np.ones((N, 1), np.float32)])
    for label in range(3):
        svc = LinearSVC(C=1.0, loss="squared_hinge", fit_intercept=False, tol=1e-6, max_iter=100_000)
        svc.fit(columns, Y[:, label] > 0)
        np.testing.assert_allclose(rescorer.W.toarray()[label], svc.coef_[0], atol=2e-3)
    assert rescorer.reads_vectors


def test_vectors_of_a_method_reach_the_ranker_and_its_stored_model(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset()
    short = {f"{name}.training.{key}": 3 for name in ("surrogate", "shortlister", "extreme") for key in ("min_steps",)}
    short |= {f"{name}.training.epochs": 1 for name in ("surrogate", "shortlister", "extreme")}
    spec = RunSpec("decaf", rerank="sparse", overrides={"rerank.sparse.features": "words+embedding", "dim": 16} | short)
    record = run(spec, data=data)
    model = load_model(record)
    wide = model.with_vectors(data.test.X)
    V = data.feature_count
    assert model.rescorer.W.shape == (data.label_count, V + 16 + 1)
    assert (wide[:, :V] != data.test.X).nnz == 0
    lengths = np.linalg.norm(wide[:, V:].toarray(), axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1, rtol=1e-5)
    assert lengths.any()
    stored = record.predictions()
    np.testing.assert_array_equal(model.predict(data.test.X, stored.k, data.test.titles).indices, stored.indices)


def test_a_method_without_vectors_is_refused_in_one_line_that_names_those_with(monkeypatch, tmp_path):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    spec = RunSpec("knn", rerank="sparse", overrides={"rerank.sparse.features": "words+embedding"})
    with pytest.raises(InputError, match=r"method 'knn' has no vectors.*decaf.*eclare.*elias.*ova") as error:
        run(spec, data=toy_dataset())
    assert "\n" not in str(error.value)
