"""Linear SVMs on sparse points: against a general-purpose minimiser, the dense solver, and plain products."""

import numba
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from xcbench.data.matrices import with_constant
from xcbench.errors import InputError
from xcbench.kernels.sparse_svm import CLASSIFIERS_AT_A_TIME, LabelWeights, fit_sparse_classifiers
from xcbench.kernels.svm import Examples, fit_classifiers


def problem(classifiers=5, points=80, words=30, seed=0):
    """Random titles; a tenth of the examples are true, and each has a cost of its own."""
    rng = np.random.default_rng(seed)
    X = with_constant(sp.csr_array(sp.random(points, words, 0.2, rng=rng, dtype=np.float32)))
    asked = rng.random((classifiers, points)) < 0.5
    signs = np.where(rng.random((classifiers, points)) < 0.2, 1.0, -1.0)
    return X, sp.csr_array((asked * signs * rng.uniform(0.3, 3, asked.shape)).astype(np.float32))


def minimum(X, costs):
    """min |w|^2 / 2 + sum |c_i| max(0, 1 - sign(c_i) <w, x_i>)^2 by L-BFGS."""
    sign, C = np.sign(costs), np.abs(costs)

    def objective(w):
        gap = np.maximum(0, 1 - sign * (X @ w))
        return w @ w / 2 + C @ gap**2, w - 2 * (C * gap * sign) @ X

    return scipy.optimize.minimize(objective, np.zeros(X.shape[1]), jac=True, options={"gtol": 1e-10}).x


def test_every_classifier_is_at_its_minimum():
    X, examples = problem()
    W = fit_sparse_classifiers(X, examples, seed=0, tolerance=1e-5, epochs=5000).toarray()
    for w, costs in zip(W, examples.toarray().astype(np.float64), strict=True):
        assert w == pytest.approx(minimum(X.toarray().astype(np.float64), costs), abs=1e-4)


def test_agrees_with_the_dense_solver():
    X, examples = problem()
    examples.data = np.sign(examples.data)
    asked, true = (sp.csr_array(part.astype(np.float32)) for part in (examples != 0, examples > 0))
    dense = fit_classifiers(X.toarray(), Examples(np.arange(5, dtype=np.int32), asked, true), 1.0, 0, 1e-5, 5000)
    sparse = fit_sparse_classifiers(X, examples, seed=1, tolerance=1e-5, epochs=5000).toarray()
    assert sparse == pytest.approx(dense, abs=1e-4)


def test_small_weights_are_dropped_and_no_others():
    X, examples = problem()
    whole = fit_sparse_classifiers(X, examples, seed=0)
    pruned = fit_sparse_classifiers(X, examples, seed=0, prune=0.2)
    assert 0 < pruned.nnz < whole.nnz
    assert np.array_equal(pruned.toarray(), np.where(np.abs(whole.toarray()) >= 0.2, whole.toarray(), 0))


def test_the_number_of_threads_changes_nothing():
    X, examples = problem(classifiers=5 * CLASSIFIERS_AT_A_TIME + 3)
    before, found = numba.get_num_threads(), []
    try:
        for threads in (1, min(2, before)):
            numba.set_num_threads(threads)
            found.append(fit_sparse_classifiers(X, examples, seed=3))
    finally:
        numba.set_num_threads(before)
    assert np.array_equal(found[0].toarray(), found[1].toarray())
    # Whichever block a classifier is in, it is the one that would have been trained alone under its number.
    assert np.array_equal(found[0][:2].toarray(), fit_sparse_classifiers(X, examples[:2], seed=3).toarray())


def test_without_examples_without_words_without_classifiers():
    X, examples = problem()
    X = sp.csr_array(sp.vstack([X[:-1], sp.csr_array((1, X.shape[1]))]))
    empty = sp.csr_array(examples.toarray() * np.array([[1], [0], [1], [1], [0]]))
    W = fit_sparse_classifiers(X, empty, seed=0)
    assert np.diff(W.indptr)[[1, 4]].tolist() == [0, 0]
    assert np.isfinite(W.data).all()
    assert fit_sparse_classifiers(X, empty[:0], seed=0).shape == (0, X.shape[1])


def test_margins_are_products():
    X, examples = problem(points=300, classifiers=20)
    W = fit_sparse_classifiers(X, examples, seed=0)
    labels = np.random.default_rng(1).integers(-1, 20, (300, 7)).astype(np.int32)
    product = (X @ W.T).toarray()
    expected = np.where(labels >= 0, np.take_along_axis(product, np.maximum(labels, 0), axis=1), -np.inf)
    assert LabelWeights.of(W).margins(X, labels) == pytest.approx(expected, abs=1e-5)
    ones = sp.csr_array(X.toarray() * np.r_[np.ones(X.shape[1] - 1, np.float32), 0] + np.eye(X.shape[1])[-1])
    product = (ones @ W.T).toarray()
    with_ones = np.where(labels >= 0, np.take_along_axis(product, np.maximum(labels, 0), axis=1), -np.inf)
    found = LabelWeights.of(W).margins(X[:, :-1], labels, constant=True)
    assert found == pytest.approx(with_ones, abs=1e-5)


def test_points_of_another_width_are_refused():
    X, examples = problem()
    W = fit_sparse_classifiers(X, examples, seed=0)
    with pytest.raises(InputError, match="do not fit points of shape"):
        LabelWeights.of(W).margins(X[:, :-1], np.zeros((80, 1), np.int32))
    with pytest.raises(InputError, match="do not fit points of shape"):
        LabelWeights.of(W).margins(X, np.zeros((80, 1), np.int32), constant=True)
