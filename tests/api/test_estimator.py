"""The estimator keeps scikit-learn's contract, as far as it applies to one of many labels and texts."""

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import xcbench
from xcbench import XCClassifier
from xcbench.errors import InputError

TITLES = ["red apple", "green apple", "blue sky", "red evening sky", "apple pie"] * 4
LABELS = [["fruit"], ["fruit"], ["nature"], ["evening", "nature"], ["food", "fruit"]] * 4


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))


NOT_APPLICABLE = {
    "check_classifiers_multilabel_representation_invariance": "a list of lists holds labels here, not zeros and ones",
}
"""Checks of scikit-learn that ask for what the estimator is not, and why."""


@parametrize_with_checks([XCClassifier("knn", k=1)], expected_failed_checks=lambda _: NOT_APPLICABLE)
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def test_titles_in_lists_out():
    classifier = XCClassifier("knn", k=2).fit(TITLES, LABELS)
    assert classifier.classes_.tolist() == ["evening", "food", "fruit", "nature"]
    assert classifier.predict(["sky", "apple pie", ""]) == [["nature", "evening"], ["fruit", "food"], []]
    top = classifier.predict_topk(["sky"], k=1)
    assert classifier.classes_[top.indices[0, 0]] == "nature"


def test_features_and_an_indicator_matrix():
    rng = np.random.default_rng(0)
    Y = rng.random((60, 5)) < 0.4
    X = sp.csr_array(Y @ rng.random((5, 8)) + 0.01)
    classifier = XCClassifier("knn", settings={"neighbours": 1}, k=5, threshold=0.5).fit(X, sp.csr_array(Y.astype(int)))
    predicted = classifier.predict(X)
    assert sp.issparse(predicted)
    assert predicted.shape == Y.shape
    assert set(predicted.data) == {1}
    assert f1_score(Y, predicted, average="micro") > 0.9
    assert (classifier.predict(X.toarray()) == predicted.toarray()).all()


def test_parameters_are_set_and_copied():
    classifier = XCClassifier("knn", settings={"neighbours": 3}, k=4)
    assert classifier.get_params()["settings"] == {"neighbours": 3}
    assert clone(classifier).set_params(k=1).get_params()["k"] == 1
    with pytest.raises(NotFittedError):
        classifier.predict(TITLES)


def test_it_stands_in_searches():
    classes = [labels[0] for labels in LABELS]
    search = GridSearchCV(XCClassifier("knn", k=1), {"settings": [{"neighbours": 1}, {"neighbours": 20}]}, cv=2)
    search.fit(TITLES, classes)
    assert search.best_params_ == {"settings": {"neighbours": 1}}
    assert cross_val_score(XCClassifier("knn", settings={"neighbours": 1}), TITLES, classes, cv=2).tolist() == [1, 1]


def test_wrong_settings_are_errors_of_ours():
    with pytest.raises(InputError, match="did you mean neighbours"):
        XCClassifier("knn", settings={"neighbors": 3}).fit(TITLES, LABELS)
    with pytest.raises(InputError, match="k is a whole number"):
        xcbench.XCClassifier("knn", k=0).fit(TITLES, LABELS)
