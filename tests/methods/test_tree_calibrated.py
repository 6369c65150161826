"""The authors' calibration: the tree against scikit-learn's own, held-out log loss, and behind real methods."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the tree is fitted by scikit-learn: pip install 'xcbench[baselines]'")

from sklearn.tree import DecisionTreeClassifier
from xcbench.methods.rerankers import _held_out
from xcbench.methods.rerankers._held_out import HeldOutLists, scores_by_frequency
from xcbench.methods.rerankers.tree_calibrated import Tree

from tests.methods.problems import csr
from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_reranker
from xcbench.runner.context import RunContext
from xcbench.runner.execute import run
from xcbench.runner.model import load_model
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset


@pytest.fixture(autouse=True)
def few_points_are_enough(monkeypatch):
    monkeypatch.setattr(_held_out, "MIN_HELD_OUT", 1)


class Overconfident:
    """A method that lists ten random labels and is sure of all of them."""

    def predict(self, X, k, titles=None):
        rng = np.random.default_rng(X.shape[0])
        listed = np.argsort(rng.random((X.shape[0], 50)), axis=1)[:, : min(k, 10)]
        return TopK.of(listed, np.tile(0.99 - 0.01 * np.arange(listed.shape[1]), (len(listed), 1)))

    def retrain(self, data):
        return data, self


def fitted(data, folder, **settings):
    reranker = get_reranker("tree-calibrated")
    plugin = reranker(build(reranker.config_type, settings))
    context = RunContext(0, "cpu", data, StageCache(folder), plugin)
    return plugin.fit(data, context, Overconfident()), context


def log_loss(p, is_true):
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return -np.log(np.where(is_true, p, 1 - p)).mean()


@pytest.mark.parametrize("depth", [1, 5])
def test_the_stored_tree_is_that_of_scikit_learn(depth):
    rng = np.random.default_rng(0)
    inputs = rng.random((500, 3)).astype(np.float32)
    is_true = rng.random(500) < inputs[:, 1] * inputs[:, 2]
    tree = Tree.fit(inputs, is_true, depth, seed=0)
    theirs = DecisionTreeClassifier(max_depth=depth, random_state=0).fit(inputs, is_true)
    new = rng.random((40, 25, 3)).astype(np.float32)
    np.testing.assert_allclose(tree(new).ravel(), theirs.predict_proba(new.reshape(-1, 3))[:, 1], rtol=1e-6)


@pytest.mark.parametrize("is_true", [[True] * 3, [False] * 3])
def test_pairs_of_one_kind_give_a_tree_of_one_leaf(is_true):
    tree = Tree.fit(np.eye(3, dtype=np.float32), np.array(is_true), 5, seed=0)
    assert tree(np.ones((2, 3), np.float32)).tolist() == [float(is_true[0])] * 2


def test_calibration_lowers_held_out_log_loss(tmp_path):
    data = toy_dataset(train=400)
    rescorer, context = fitted(data, tmp_path)
    listed = Overconfident().predict(data.test.X, 10)
    inputs = rescorer.inputs(listed, data.test.X)
    is_true = _held_out._truth(listed, data.test.Y)
    assert log_loss(rescorer.tree(inputs), is_true) < log_loss(inputs[:, :, 0], is_true)
    assert log_loss(inputs[:, :, 0], is_true) < log_loss(inputs[:, :, 1], is_true)
    curves = context.journal.reported["true_label_scores"]["y"]
    assert set(curves) == {"alone", "with the sparse ranker", "calibrated"}


def test_the_score_is_the_authors_blend(tmp_path):
    data = toy_dataset()
    rescorer, _ = fitted(data, tmp_path, weight=0.25)
    listed = Overconfident().predict(data.test.X, 10)
    inputs = rescorer.inputs(listed, data.test.X)
    blend = 0.25 * rescorer.tree(inputs) + 0.75 * inputs[:, :, 0]
    found = rescorer.rescore(listed, data.test.X)
    np.testing.assert_allclose(found.scores, -np.sort(-blend, axis=1), rtol=1e-5)


@pytest.mark.parametrize("features", ["words", "words+embedding"])
def test_works_behind_a_method_and_is_kept_with_its_model(features, tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset()
    settings = {f"training.{key}": value for key, value in (("epochs", 1), ("min_steps", 20), ("batch_size", 32))}
    settings |= {"encoder.dim": 16, "encoder.start": "random", "rerank.tree-calibrated.sparse.features": features}
    record = run(RunSpec("ova", rerank="tree-calibrated", overrides=settings), data=data)
    stored = record.predictions()
    again = load_model(record).predict(data.test.X, stored.k, data.test.titles)
    np.testing.assert_array_equal(again.indices, stored.indices)
    assert not list(record.folder.rglob("*.pkl"))


def test_with_few_points_the_sparse_ranker_ranks_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(_held_out, "MIN_HELD_OUT", 10_000)
    data = toy_dataset()
    rescorer, _ = fitted(data, tmp_path)
    listed = Overconfident().predict(data.test.X, 10)
    assert rescorer.tree is None
    alone = rescorer.ranker.rescore(listed, data.test.X)
    np.testing.assert_array_equal(rescorer.rescore(listed, data.test.X).indices, alone.indices)


def test_mean_scores_of_true_labels_by_decile():
    predictions = TopK.of(np.array([[0, 1], [1, 0]]), np.array([[0.9, 0.5], [0.8, 0.2]]))
    is_true = np.array([[True, True], [True, False]])
    lists = HeldOutLists(predictions, csr(np.eye(2)), None, is_true, np.ones((2, 2), bool))
    found = scores_by_frequency(lists, {"p": predictions.scores}, np.array([1, 99]))
    assert found["x"] == [1, 6]  # the frequent label's middle lies in the sixth tenth of all pairs
    np.testing.assert_allclose(found["y"]["p"], [0.9, (0.5 + 0.8) / 2], rtol=1e-6)


@pytest.mark.parametrize(("key", "value"), [("depth", 0), ("weight", 1.1), ("share", 1.0), ("most", 0)])
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_reranker("tree-calibrated").config_type, {key: value})
