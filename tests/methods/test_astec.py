"""Astec's equations, its shortlist and score by hand, and the runner's own questions."""

import numpy as np
import pytest
import torch
from xcbench.methods.astec import Astec, AstecConfig, AstecEncoder, AstecPredictor, Neighbours, coarse

from tests.methods.problems import csr, gappy, separable, stages_of, train
from xcbench.data import Dataset, Split
from xcbench.errors import InputError
from xcbench.kernels.csr import SparseRows
from xcbench.nn import TokenEmbeddings
from xcbench.plugins.config import build
from xcbench.runner.check import check_method
from xcbench.runner.context import RunContext
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset
from xcbench.shortlist import HNSWShortlister

SMALL = {"dim": 24} | {
    f"{module}.{key}": value
    for module in ("surrogate", "extreme")
    for key, value in {"min_steps": 80, "batch_size": 32, "epochs": 1}.items()
}
TINY = {key: 8 if key.endswith(("dim", "steps")) else value for key, value in SMALL.items()}


def precision_at_1(predictor, split):
    best = predictor.predict(split.X, 3).indices[:, 0]
    return np.mean([split.Y[[i]].toarray()[0, label] for i, label in enumerate(best)])


def test_the_predictor_encodes_as_the_network_did():
    torch.manual_seed(0)
    network = AstecEncoder(4, 0.5, TokenEmbeddings(6, 4)).eval()
    with torch.no_grad():
        network.fine.W.raw += 0.3 * torch.randn(4, 4)
        network.fine.bias += torch.randn(4)
    arrays = {"R": network.fine.W(), "b": network.fine.bias, "E": network.E.weight}
    X = csr(np.random.default_rng(0).random((5, 6)))
    predictor = AstecPredictor({k: v.detach().numpy() for k, v in arrays.items()}, None, 0.5, 3)
    want = network(SparseRows.of(X)).detach().numpy()
    np.testing.assert_allclose(predictor.fine(coarse(X, predictor.arrays["E"])), want, rtol=1e-5, atol=1e-6)


def neighbours():
    """Two labels on the axes; two points, of which the second has both labels."""
    axes = np.eye(2, dtype=np.float32)
    points = HNSWShortlister.of(axes, csr([[1, 0], [1, 1]]), neighbours=2, vote="sum")
    return Neighbours(HNSWShortlister.of(axes), points, 0.75)


def test_shortlists_mix_centroids_and_votes():
    found = neighbours().shortlist(np.array([[0.6, 0.8]], np.float32), 5)
    # Cosines with centroids are 0.6 and 0.8; votes 0.6 + 0.8 and 0.8, the best of which counts 1.
    want = {0: 0.75 * 0.6 + 0.25 * 1, 1: 0.75 * 0.8 + 0.25 * 0.8 / 1.4}
    assert dict(zip(found.indices[0].tolist(), found.scores[0].tolist(), strict=True)) == pytest.approx(want)


def test_training_lists_are_the_same_made_in_parts(monkeypatch):
    f = np.random.default_rng(0).random((5, 2), np.float32)
    whole = neighbours().shortlist(f, 2).indices
    monkeypatch.setattr("xcbench.methods.astec.POINTS_AT_ONCE", 2)
    assert np.array_equal(neighbours().labels(f, 9), whole)


def test_the_score_mixes_classifier_and_neighbours():
    E, zero = np.eye(2, dtype=np.float32), np.zeros((2, 2), np.float32)
    W, bias = np.array([[0, 1], [1, 0]], np.float32), np.array([0.5, -0.5], np.float32)
    predictor = AstecPredictor({"E": E, "R": zero, "b": zero[0], "W": W, "bias": bias}, neighbours(), 0.3, 2)
    near = neighbours().shortlist(np.array([[0.6, 0.8]], np.float32), 2)
    near = near.scores[0][np.argsort(near.indices[0])]
    likely = 1 / (1 + np.exp(-np.array([0.8 + 0.5, 0.6 - 0.5])))
    want = 0.3 * likely / likely.max() + 0.7 * near / near.max()
    found = predictor.predict(csr([[0.6, 0.8]]), 2)
    np.testing.assert_allclose(found.scores[0][np.argsort(found.indices[0])], want, rtol=1e-5)


def test_it_learns_and_labels_without_points_do_no_harm():
    settings = SMALL | {"start": "random"}  # no two of these words keep different company
    assert precision_at_1(train("astec", separable(), **settings), separable().test) == 1.0
    found = train("astec", gappy(), **settings).predict(csr([[1, 0, 0.1], [0, 1, 0.1]]), 1)
    assert found.indices.tolist() == [[1], [2]]
    one = Split(csr([[1, 0], [0, 1]]), csr([[1], [1]]))
    assert train("astec", Dataset("one", one, one), **SMALL).predict(one.X, 2).indices.tolist() == [[0, -1]] * 2


def test_it_overfits_fifty_points():
    data = toy_dataset(labels=20, train=50, test=5)
    settings = SMALL | {"dropout": 0.0, "extreme.min_steps": 300, "extreme.lr": 0.02, "beta": 1.0}
    assert precision_at_1(train("astec", data, **settings), data.train) == 1.0


def test_members_of_an_ensemble_share_module_one_and_what_follows_from_it(tmp_path):
    data, method = separable(), Astec(build(AstecConfig, SMALL))
    run = RunContext(0, "cpu", data, StageCache(tmp_path), method)
    first, second = (stages_of(method, data, run.member(number)) for number in (0, 1))
    assert [name for name in first if first[name].key == second[name].key] == ["surrogate", "neighbours"]


def test_the_last_score_needs_no_training(tmp_path):
    data = separable()

    def staged(**settings):
        method = Astec(build(AstecConfig, SMALL, settings))
        return stages_of(method, data, RunContext(0, "cpu", data, StageCache(tmp_path), method))

    first, second = staged(), staged(beta=0.2, top=5)
    assert all(first[name].key == second[name].key for name in first)
    assert staged(**{"extreme.lr": 0.1})["neighbours"].key == first["neighbours"].key


def test_presets_are_the_authors_settings():
    config = build(AstecConfig, Astec.presets["LF-AmazonTitles-131K"])
    assert (config.dim, config.clusters, config.reduction, config.beta, config.top) == (300, 65536, "mean", 0.1, 200)
    assert (config.surrogate.lr, config.surrogate.epochs, config.surrogate.schedule.at) == (0.03, 20, (0.7,))
    assert (config.extreme.lr, config.extreme.epochs, config.extreme.min_steps) == (0.001, 15, 0)


def test_the_contract_holds(monkeypatch):
    monkeypatch.setattr("xcbench.runner.resolve.build", lambda kind, *p, **o: build(kind, TINY, *p, **o))
    broken = [finding for finding in check_method("astec") if finding.broken]
    assert not broken, broken


@pytest.mark.parametrize(("key", "value"), [("dim", 0), ("dropout", 1.0), ("beta", 2.0), ("random_negatives", -1)])
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(AstecConfig, {key: value})
