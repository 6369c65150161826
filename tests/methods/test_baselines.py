"""The baselines against answers worked out by hand or by brute force, and on real data against known figures."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from xcbench.data import Dataset, Split
from xcbench.errors import InputError
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec
from xcbench.runner.toy import toy_dataset


def csr(rows):
    return sp.csr_array(np.array(rows, np.float32))


def fit(name, data, **settings):
    method = get_method(name)
    plugin = method(build(method.config_type, settings))
    plugin.check_data(data)
    # These baselines have no stages; all that they ask of a run is the data before augmentation.
    return plugin.fit(data, SimpleNamespace(unaugmented=data))


@pytest.fixture
def tiny():
    """Four points with orthogonal words but for the last, which shares a word with the first two."""
    X = csr([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.8, 0]])
    Y = csr([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 0]])
    return Dataset("tiny", Split(X, Y), Split(X, Y), Z=csr([[0, 0, 1], [0, 0, 0], [1, 0, 0]]))


def test_popularity_ranks_by_frequency_then_by_id(tiny):
    found = fit("popularity", tiny).predict(tiny.test.X[:2], 5)
    assert found.indices.tolist() == [[0, 1, 2, -1, -1]] * 2
    assert found.scores[0, :3].tolist() == [0.5, 0.5, 0]


def test_label_text_ranks_by_cosine_and_finds_labels_without_points(tiny):
    found = fit("label-text", tiny).predict(tiny.test.X, 2)
    assert found.indices.tolist() == [[2, -1], [-1, -1], [0, -1], [2, -1]]
    assert found.scores[3, 0] == pytest.approx(0.6)


def test_knn_votes_are_weighted_by_similarity(tiny):
    found = fit("knn", tiny, neighbours=2, power=2.0).predict(csr([[1, 0, 0]]), 3)
    # Neighbours: point 0 with cosine 1 and point 3 with cosine 0.6; weights 1 and 0.36.
    assert found.indices.tolist() == [[0, 1, -1]]
    assert found.scores[0, :2] == pytest.approx([1, 0.36 / 1.36])


def test_knn_adds_label_text(tiny):
    found = fit("knn", tiny, neighbours=1, text_weight=0.5).predict(csr([[1, 0, 0], [0, 0, 1]]), 3)
    assert found.indices.tolist() == [[0, 2, -1], [0, -1, -1]]
    assert found.scores[0, :2] == pytest.approx([1, 0.5])
    assert found.scores[1, 0] == pytest.approx(0.5)


def test_knn_is_brute_force_made_quick():
    data = toy_dataset()
    neighbours, power = 7, 1.5
    S = (data.test.X @ data.train.X.T).toarray()
    W = np.zeros_like(S)
    for i, row in enumerate(S):
        for j in sorted(range(len(row)), key=lambda j: (-row[j], j))[:neighbours]:
            W[i, j] = row[j] ** power
    votes = W @ data.train.Y.toarray() / W.sum(axis=1, keepdims=True)
    found = fit("knn", data, neighbours=neighbours, power=power).predict(data.test.X, 5)
    used = found.indices >= 0
    expected = np.take_along_axis(votes, np.maximum(found.indices, 0), axis=1)
    assert found.scores[used] == pytest.approx(expected[used], abs=1e-6)
    assert expected[:, 0] == pytest.approx(votes.max(axis=1), abs=1e-6)


@pytest.mark.parametrize(("name", "settings"), [("label-text", {}), ("knn", {"text_weight": 1.0})])
def test_label_text_must_be_there(tiny, name, settings):
    with pytest.raises(InputError, match="needs label text"):
        fit(name, dataclasses.replace(tiny, Z=None), **settings)


@pytest.mark.parametrize(("key", "value"), [("neighbours", 0), ("power", -1), ("text_weight", -0.1)])
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("knn").config_type, {key: value})


def test_figures_on_the_embedded_data_are_those_that_others_found(tmp_path, monkeypatch):
    """Reference points of the data's makers: kNN P@1 25.0, P@5 10.8; with label text 31.4 and 12.5."""
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    figures = {
        name: run(RunSpec(name, ablations=ablations)).metrics
        for name, ablations in [("popularity", ()), ("label-text", ()), ("knn", ())]
    }
    text = run(RunSpec("knn", ablations=("text",))).metrics
    assert figures["knn"]["P@1"].value == pytest.approx(25.0, abs=1)
    assert figures["knn"]["P@5"].value == pytest.approx(10.8, abs=0.5)
    assert text["P@1"].value == pytest.approx(31.4, abs=1)
    assert text["P@5"].value == pytest.approx(12.5, abs=0.5)
    assert figures["popularity"]["P@1"].value < figures["label-text"]["P@1"].value < figures["knn"]["P@1"].value
