"""PfastreXML: splits against exhaustive search and another solver, scores against brute force."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from xcbench.methods.baselines._gain_trees import choose_sides, fit_separator, grow_forest, number_columns

from tests.methods.problems import csr, separable, train
from xcbench.errors import InputError
from xcbench.evaluation import inverse_propensity
from xcbench.kernels.csr import arrays_of
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.toy import toy_dataset


def gain_of(Y, sides):
    """The mean over points of sum_l y_l / log2(1 + rank), with the ranking of the point's own side."""
    total = 0
    for side in (0, 1):
        ranked = -np.sort(-Y[sides == side].sum(axis=0))
        total += (ranked / np.log2(np.arange(len(ranked)) + 2)).sum()
    return total / len(Y)


def settled(Y, sides):
    """What the kernel makes of these sides."""
    rows = arrays_of(csr(Y))
    points = np.arange(len(Y))
    local = np.full(Y.shape[1], -1, np.int32)
    labels = number_columns(rows, points, local)
    result = np.array(sides, np.int8)
    gain = choose_sides(rows, points, labels, local, result)
    return gain, result


def test_sides_gain_what_the_best_of_all_splits_gains():
    random = np.random.default_rng(0)
    Y = (random.random((9, 6)) < 0.35) * random.uniform(1, 3, 6)
    Y[:, 0] += 0.5  # no point without labels
    splits = [np.array(bits) for bits in itertools.product([0, 1], repeat=9)]
    best = max(gain_of(Y, sides) for sides in splits)
    found = [settled(Y, sides) for sides in splits[::7]]
    for gain, sides in found:
        assert gain_of(Y, sides) >= gain - 1e-6
    assert max(gain for gain, _ in found) == pytest.approx(best, rel=1e-5)


def test_settling_never_lowers_the_gain():
    random = np.random.default_rng(1)
    Y = (random.random((40, 15)) < 0.2) * random.uniform(1, 3, 15)
    for _ in range(20):
        sides = random.integers(0, 2, 40)
        gain, _ = settled(Y, sides)
        assert gain >= gain_of(Y, sides) - 1e-6


def test_separators_minimise_their_objective():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 12)) * (random.random((60, 12)) < 0.4)
    sides = (X @ random.normal(size=12) + random.normal(size=60) > 0.8).astype(np.int8)
    C = 0.4
    share = np.where(sides == 1, sides.mean(), 1 - sides.mean())
    sign = 2.0 * sides - 1

    def objective(w):
        return np.abs(w).sum() + (C / share * np.logaddexp(0, -sign * (X @ w))).sum()

    halves = minimize(  # w = u - v with u, v >= 0, where the L1 norm is smooth
        lambda uv: uv.sum() + (C / share * np.logaddexp(0, -sign * (X @ (uv[:12] - uv[12:])))).sum(),
        np.zeros(24),
        bounds=[(0, None)] * 24,
        options={"maxiter": 2000, "maxfun": 10**6},
    ).x
    w = fit_separator(arrays_of(csr(X.T)), sides, C)
    assert objective(w) == pytest.approx(objective(halves[:12] - halves[12:]), rel=1e-3)
    assert (w == 0).any()


def test_a_leaf_holds_the_mean_of_the_points_that_fall_into_it():
    data = toy_dataset()
    X, Y = data.train.X, data.train.Y
    forest = grow_forest(X, Y, trees=2, leaf_points=10, leaf_labels=100, C=1.0, seed=3)
    for root in forest.roots:
        node = np.full(len(data.train), root)
        while (forest.children[node, 0] >= 0).any():
            margin = forest.separators[node].multiply(X).sum(axis=1)
            child = forest.children[node, (margin >= 0).astype(int)]
            node = np.where(child >= 0, child, node)
        for leaf in np.unique(node):
            expected = Y[node == leaf].toarray().mean(axis=0)
            assert forest.leaves[[leaf]].toarray()[0] == pytest.approx(expected, abs=1e-6)
    assert len(np.unique(node)) > 10


def test_a_leaf_keeps_its_heaviest_labels():
    Y = csr([[1, 2, 3, 4]] * 5)
    forest = grow_forest(csr([[1.0]] * 5), Y, trees=1, leaf_points=10, leaf_labels=2, C=1.0, seed=0)
    assert forest.leaves.toarray().tolist() == [[0, 0, 3, 4]]


def test_scores_are_the_product_of_trees_and_tail():
    data = toy_dataset()
    model = train("pfastrexml", data, trees=3, gamma=5.0, alpha=0.6)
    trees = train("pfastrexml", data, trees=3, alpha=1.0).predict(data.test.X, 50).to_csr(50).toarray()
    X = data.test.X.toarray()
    Y = data.train.Y.toarray()
    mu = (Y.T @ data.train.X.toarray()) / Y.sum(axis=0)[:, None]
    distance = ((X[:, None] - mu) ** 2).sum(axis=2)
    expected = trees**0.6 * expit(-5.0 * distance) ** 0.4
    found = model.predict(data.test.X, 50)
    used = found.indices >= 0
    assert found.scores[used] == pytest.approx(np.take_along_axis(expected, found.indices, axis=1)[used], rel=1e-3)
    assert used.sum() == (trees > 0).sum()


def test_labels_weigh_their_inverse_propensity():
    data = separable()
    model = train("pfastrexml", data, trees=1, leaf_points=1000, alpha=1.0)
    weight = inverse_propensity(data.label_frequency, len(data.train), data.propensity)
    assert model.leaves.toarray()[0] == pytest.approx(weight / 12, rel=1e-5)


def test_more_candidates_than_labels_and_fewer_than_asked_for():
    data = separable()
    model = train("pfastrexml", data, trees=2, candidates=2)
    assert (model.predict(data.test.X, 1).indices[:, 0] == np.arange(12)).all()
    assert model.predict(data.test.X, 20).indices.shape == (12, 20)


@pytest.mark.parametrize(
    ("key", "value"), [("trees", 0), ("leaf_points", 0), ("C", 0), ("gamma", -1), ("alpha", 1.5), ("candidates", 0)]
)
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("pfastrexml").config_type, {key: value})
