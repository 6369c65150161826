"""Overlap-XMC: the assignment against exhaustive search, scores against brute force, and what overlap is for."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from xcbench.methods.baselines.overlap_xmc import assign, fit_matcher, members_of, targets

from tests.methods.problems import csr, train
from xcbench.data import Dataset, Split, TopK
from xcbench.data.matrices import with_constant
from xcbench.errors import InputError
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.toy import toy_dataset


def test_the_assignment_is_the_best_of_all():
    """Of all ways to put every label into two clusters, it has the most probability on the labels of each point."""
    random = np.random.default_rng(0)
    Y = (random.random((12, 3)) < 0.5).astype(np.float32)
    M = random.random((12, 4)).astype(np.float32)
    found = TopK.of(np.tile(np.arange(4), (12, 1)), M)
    assignment = assign(csr(Y), found, 4, 2, np.zeros((3, 1), np.int32))

    def gain(clusters_of_labels):
        return sum(M[i, c] for i in range(12) for label in np.flatnonzero(Y[i]) for c in clusters_of_labels[label])

    pairs = list(itertools.combinations(range(4), 2))
    best = max(gain(choice) for choice in itertools.product(pairs, repeat=3))
    assert gain(assignment) == pytest.approx(best, rel=1e-5)


def test_a_label_whose_points_no_cluster_has_stays_where_it_was():
    found = TopK.of(np.array([[1], [1]]), np.array([[0.5], [0.4]]))
    assignment = assign(csr([[1, 0], [1, 0]]), found, 3, 2, np.array([[0], [2]], np.int32))
    assert assignment.tolist() == [[1, -1], [2, -1]]


def test_targets_are_the_likeliest_cluster_of_each_label():
    X = with_constant(csr([[1, 0], [0, 1]]))
    Y = csr([[1, 1], [1, 0]])
    W = csr([[2, 0, 0], [0, 2, 0], [0, 0, 1]])  # cluster 0 likes the first word, cluster 1 the second, cluster 2 all
    assignment = np.array([[0, 1], [2, -1]], np.int32)
    assert targets(X, Y, W, assignment, 3).toarray().tolist() == [[1, 0, 1], [0, 1, 0]]
    assert targets(X, Y, None, assignment, 3).toarray().tolist() == [[1, 0, 1], [1, 0, 0]]


def test_members_are_the_labels_of_each_cluster():
    members = members_of(np.array([[1, 0], [1, -1], [0, -1]], np.int32), 3)
    assert members.toarray().tolist() == [[1, 0, 1], [1, 1, 0], [0, 0, 0]]


def test_matchers_tell_their_points_from_all_others():
    data = toy_dataset()
    T = sp.csr_array(data.train.Y)
    W = fit_matcher(with_constant(data.train.X), T, 1.0, 0.0, 0)
    margins = (with_constant(data.train.X) @ W.T).toarray()
    assert ((margins > 0) == (T.toarray() > 0)).mean() > 0.995


def test_scores_are_those_of_any_cluster_of_a_label():
    data = toy_dataset()
    model = train("overlap-xmc", data, cluster_labels=10, clusters_per_label=2, beam=3)
    X = with_constant(data.test.X).toarray()

    def probability(margin):
        return np.exp(-(np.maximum(1 - margin, 0) ** 2))

    P = probability(X @ model.matcher.toarray().T)
    Q = probability(X @ model.ranker.toarray().T)
    missing = np.ones((len(X), 50))
    for i in range(len(X)):
        for cluster in np.argsort(-P[i], kind="stable")[:3]:
            for member in range(model.members.indptr[cluster], model.members.indptr[cluster + 1]):
                missing[i, model.members.indices[member]] *= 1 - P[i, cluster] * Q[i, member]
    found = model.predict(data.test.X, 10)
    used = found.indices >= 0
    assert used[:, :5].all()
    assert found.scores[used] == pytest.approx(
        np.take_along_axis(1 - missing, found.indices, axis=1)[used], rel=1e-3, abs=1e-6
    )


def two_senses(points=20):
    """Label 0 comes with the words of labels 1 to 4 and, at other points, with those of labels 5 to 8."""
    random = np.random.default_rng(0)
    X = np.zeros((8 * points, 8), np.float32)
    Y = np.zeros((8 * points, 9), np.float32)
    word = np.arange(8 * points) % 8
    X[np.arange(len(X)), word] = 1
    Y[np.arange(len(X)), word + 1] = 1
    Y[:, 0] = random.random(len(X)) < 0.9
    return Dataset("senses", Split(csr(X), csr(Y)), Split(csr(X[:8]), csr(Y[:8])))


def test_a_label_of_two_senses_is_found_in_both_clusters():
    data = two_senses()
    settings = {"cluster_labels": 5, "beam": 1, "clusters_per_label": 2}
    apart = train("overlap-xmc", data, rounds=0, **settings).predict(data.test.X, 5)
    overlapping = train("overlap-xmc", data, rounds=1, **settings).predict(data.test.X, 5)
    assert (apart.indices == 0).any(axis=1).mean() < 0.8
    assert (overlapping.indices == 0).any(axis=1).all()


@pytest.mark.parametrize(
    ("key", "value"), [("cluster_labels", 0), ("clusters_per_label", 0), ("beam", 0), ("rounds", -1), ("C", 0)]
)
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("overlap-xmc").config_type, {key: value})
