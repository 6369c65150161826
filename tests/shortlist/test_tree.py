"""Label trees: the solver against its own objective, the search against all paths, and a toy that can be learnt."""

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from tests.shortlist.reference import best
from xcbench.errors import InputError
from xcbench.kernels.svm import Examples, fit_classifiers
from xcbench.shortlist import TreeShortlister, load_shortlister, recall_curve


def toy(labels=40, points_each=12, D=24, seed=0):
    """Every label has a direction; a point is the sum of its two labels' directions and a little noise."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((labels, D))
    pairs = np.stack([np.repeat(np.arange(labels), points_each), rng.integers(0, labels, labels * points_each)], axis=1)
    X = directions[pairs].sum(axis=1) + 0.05 * rng.standard_normal((len(pairs), D))
    Y = np.zeros((len(pairs), labels), np.float32)
    Y[np.arange(len(pairs))[:, None], pairs] = 1
    return X.astype(np.float32), sp.csr_array(Y)


def test_classifiers_minimise_their_objective():
    rng = np.random.default_rng(0)
    X = np.hstack([rng.standard_normal((60, 5)), np.ones((60, 1))]).astype(np.float32)
    groups = sp.csr_array(np.stack([np.arange(60) < 40, np.arange(60) >= 30]).astype(np.float32))
    positive = sp.csr_array(groups.toarray()[[0, 1, 1]] * (rng.random((3, 60)) < 0.4))
    group = np.array([0, 1, 1], np.int32)
    W = fit_classifiers(X, Examples(group, groups, positive), C=1.0, seed=0, tolerance=1e-4, epochs=1000)
    for c in range(3):
        mine = groups.toarray()[group[c]] > 0
        y = np.where(positive.toarray()[c, mine] > 0, 1, -1)
        gap = np.maximum(0, 1 - y * (X[mine] @ W[c]))
        gradient = W[c] - 2 * (gap * y) @ X[mine]  # of |w|^2 / 2 + sum max(0, 1 - y <w, x>)^2
        np.testing.assert_allclose(gradient, 0, atol=2e-3)


def test_a_separable_toy_is_learnt():
    X, Y = toy()
    shortlister = TreeShortlister.fit(X, Y, leaf=5)
    assert [tree.depth for tree in shortlister.trees] == [3, 3, 3]
    assert max(tree.leaves.sizes.max() for tree in shortlister.trees) == 5
    found = shortlister.shortlist(X, 10)
    assert recall_curve(found, Y, [2, 10])[0] > 0.9
    assert recall_curve(found, Y, [2, 10])[1] > 0.99
    assert 0 <= found.scores.min() <= found.scores.max() <= 1


def test_a_full_beam_is_the_product_over_every_path():
    X, Y = toy(labels=11, points_each=5)
    shortlister = TreeShortlister.fit(X, Y, trees=2, leaf=3, beam=100)
    unit = np.hstack([X / np.linalg.norm(X, axis=1, keepdims=True), np.ones((len(X), 1))])

    def chance(W):
        return np.exp(-(np.maximum(0, 1 - unit @ W.T.astype(np.float64)) ** 2))

    total = np.zeros((len(X), 11))
    for tree in shortlister.trees:
        path = np.ones((len(X), 1))
        for level in range(1, tree.depth + 1):
            path = np.repeat(path, 2, axis=1) * chance(tree.nodes[2**level - 2 : 2 ** (level + 1) - 2])
        total[:, tree.leaves.indices] += path[:, tree.leaves.cluster_of[tree.leaves.indices]] * chance(tree.labels)
    expected = best((total / 2).astype(np.float32), 11)
    found = shortlister.shortlist(X, 11)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("labels", "points"), [(1, 2), (2, 1), (3, 4), (7, 3)])
def test_tiny_data(labels, points):
    X = np.random.default_rng(0).standard_normal((points, 3)).astype(np.float32)
    Y = sp.csr_array(np.eye(points, labels, dtype=np.float32))
    found = TreeShortlister.fit(X, Y, leaf=2).shortlist(X, labels + 1)
    assert np.array_equal(np.sort(found.indices, axis=1), np.tile(np.arange(-1, labels), (points, 1)))


def test_the_seed_decides_and_nothing_else():
    X, Y = toy(labels=20, points_each=4)
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        first = TreeShortlister.fit(X, Y, trees=1, leaf=3, seed=4)
    finally:
        numba.set_num_threads(before)
    second, other = (TreeShortlister.fit(X, Y, trees=1, leaf=3, seed=seed) for seed in (4, 5))
    np.testing.assert_array_equal(first.trees[0].nodes, second.trees[0].nodes)
    np.testing.assert_array_equal(first.trees[0].labels, second.trees[0].labels)
    assert not np.array_equal(first.trees[0].nodes, other.trees[0].nodes)


def test_saved_and_loaded(tmp_path):
    X, Y = toy(labels=9, points_each=3)
    shortlister = TreeShortlister.fit(X, Y, leaf=2, beam=2)
    shortlister.save(tmp_path / "trees")
    loaded = load_shortlister(tmp_path / "trees")
    assert loaded.label_count == 9
    np.testing.assert_array_equal(loaded.shortlist(X, 4).indices, shortlister.shortlist(X, 4).indices)


def test_wrong_input():
    X, Y = toy(labels=5, points_each=2)
    with pytest.raises(InputError, match="got 10 for 9 points"):
        TreeShortlister.fit(X[:9], Y)
    with pytest.raises(InputError, match="leaves of 2 labels"):
        TreeShortlister.fit(X, Y, leaf=1)
