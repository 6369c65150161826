"""Slice against numpy's own decomposition and scikit-learn's SVM on the same shortlists."""

import numpy as np
import pytest
from xcbench.methods.baselines.slice import dense_vectors, singular_words

from tests.methods.problems import needs, separable, train
from xcbench.errors import InputError
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.toy import toy_dataset


def test_words_are_the_leading_right_singular_vectors():
    X = toy_dataset().train.X
    V = singular_words(X, 10, seed=0)
    _, sizes, Vt = np.linalg.svd(X.toarray(), full_matrices=False)
    assert pytest.approx(np.eye(10), abs=1e-4) == V.T @ V
    # Nearly equal singular values let their vectors mix, so compare what the space as a whole keeps.
    kept = np.linalg.norm(X @ V) ** 2
    assert kept == pytest.approx((sizes[:10] ** 2).sum(), rel=0.01)
    assert np.linalg.norm(Vt[0] @ V) == pytest.approx(1, abs=1e-3)


def test_few_points_give_few_dimensions():
    assert singular_words(separable(3, 1).train.X, 300, seed=0).shape == (4, 3)


@needs("dismec")
def test_scores_are_an_svm_s_on_the_shortlist_times_the_cosine():
    """With a shortlist of all labels every label learns from every point, as scikit-learn does here."""
    from sklearn.svm import LinearSVC

    data = toy_dataset()
    model = train("slice", data, dim=20, shortlist=50)
    T, S = dense_vectors(data.train.X, model.words), dense_vectors(data.test.X, model.words)
    Y = data.train.Y.toarray()
    centroids = Y.T @ T
    cosine = np.clip(S @ (centroids / np.linalg.norm(centroids, axis=1, keepdims=True)).T, 0, 1)
    margins = np.array([LinearSVC(C=1, tol=1e-4).fit(T, y).decision_function(S) for y in Y.T]).T
    expected = cosine / (1 + np.exp(-4 * margins))
    found = model.predict(data.test.X, 50)
    assert found.scores == pytest.approx(
        np.take_along_axis(expected, found.indices, axis=1), abs=0.06
    )  # both solve to a tolerance


@pytest.mark.parametrize(("key", "value"), [("dim", 0), ("shortlist", 0), ("M", 1), ("C", 0)])
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("slice").config_type, {key: value})
