"""GAME as a reranker: known answers on a graph that can be worked out, and behind real methods."""

import numpy as np
import pytest

from tests.methods.problems import csr
from xcbench.data import Dataset, Split, TopK
from xcbench.errors import InputError
from xcbench.labels import random_walk_graph, two_sided
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_reranker
from xcbench.plugins.stages import derive_seed
from xcbench.runner.context import RunContext
from xcbench.runner.execute import run
from xcbench.runner.model import load_model
from xcbench.runner.plan import plan
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset

NOTHING = NO_WORDS = None  # GAME asks neither the method nor the points' words


def fitted(data, folder, seed=0, **settings):
    reranker = get_reranker("game")
    plugin = reranker(build(reranker.config_type, settings))
    return plugin.fit(data, RunContext(seed, "cpu", data, StageCache(folder), plugin), NOTHING)


@pytest.fixture
def pairs():
    """Labels 0 and 1 always come together, 2 and 3 too, 4 alone."""
    Y = csr([[1, 1, 0, 0, 0]] * 3 + [[0, 0, 1, 1, 0]] * 3 + [[0, 0, 0, 0, 1]])
    X = csr(np.eye(7))
    return Dataset("pairs", Split(X, Y), Split(X, Y))


def test_a_companion_that_the_method_missed_enters(pairs, tmp_path):
    found = fitted(pairs, tmp_path).rescore(TopK.of(np.array([[0, -1, -1]]), np.array([[0.8, 0, 0]])), NO_WORDS)
    assert found.indices.tolist() == [[0, 1, -1]]
    # G is close to 1/2 everywhere in the block {0, 1}: half of 0.8 stays, and half of what was spread comes back.
    assert found.scores[0, :2] == pytest.approx([0.4 + 0.2, 0.2], abs=0.03)


def test_a_label_alone_keeps_its_score(pairs, tmp_path):
    found = fitted(pairs, tmp_path).rescore(TopK.of(np.array([[4, 2]]), np.array([[0.6, 0.5]])), NO_WORDS)
    assert found.indices[0, 0] == 4
    assert found.scores[0, 0] == pytest.approx(0.6, abs=1e-6)


@pytest.mark.parametrize("mode", ["code", "paper"])
def test_is_the_formula(mode, tmp_path):
    data = toy_dataset()
    rng = np.random.default_rng(0)
    P = TopK.of(np.array([rng.permutation(50)[:20] for _ in range(30)]), rng.random((30, 20)))
    rescorer = fitted(data, tmp_path, beam=7, mode=mode)
    G = rescorer.game.graph.toarray()
    for row, found in enumerate(rescorer.rescore(P, NO_WORDS).to_csr(50).toarray()):
        p = P.cut(7).to_csr(50).toarray()[row]
        t = p @ (G if mode == "code" else G.T)
        t[np.argsort(-t, kind="stable")[7:]] = 0
        assert found == pytest.approx((p + t) / 2 if mode == "code" else t, abs=1e-6)


def test_the_graph_is_counted_before_augmentation(tmp_path):
    data = toy_dataset()
    reranker = get_reranker("game")
    plugin = reranker(build(reranker.config_type, {}))
    other = Dataset(data.name, data.test, data.test)
    found = plugin.fit(other, RunContext(0, "cpu", data, StageCache(tmp_path), plugin), NOTHING)
    expected = two_sided(random_walk_graph(data.train.Y, seed=derive_seed(0, "graph")))
    assert np.array_equal(found.game.graph.toarray(), expected.toarray())


def test_works_behind_a_method_and_is_kept_with_its_model(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset()
    record = run(RunSpec("knn", rerank="game"), data=data)
    plain = run(RunSpec("knn"), data=data)
    model = load_model(record)
    assert model.rescorer is not None
    assert not np.array_equal(record.predictions().indices, plain.predictions().indices)
    assert np.array_equal(model.predict(data.test.X, 50, data.test.titles).indices, record.predictions().indices)


def test_a_dry_run_shows_whether_the_graph_is_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data, spec = toy_dataset(), RunSpec("knn", rerank="game")
    assert [(stage.name, note) for stage, note in plan(spec, data=data).stages] == [("graph", None)]
    run(spec, data=data)
    ((graph, note),) = plan(spec, data=data).stages
    assert note.key == graph.key


@pytest.mark.parametrize(
    ("key", "value"),
    [("beam", 0), ("graph.restart", 1.5), ("graph.top", 0), ("mode", "off"), ("power", 0.0), ("power", 2.0)],
)
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key.removeprefix("graph.")):
        build(get_reranker("game").config_type, {key: value})
