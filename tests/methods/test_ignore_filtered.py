"""Pairs of the training filter, ignored in training."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from tests.methods.problems import csr, separable, train
from xcbench.data import Dataset, Split
from xcbench.errors import InputError
from xcbench.plugins import NoConfig
from xcbench.plugins.registry import get_augmentation
from xcbench.runner.resolve import resolve
from xcbench.runner.spec import RunSpec
from xcbench.runner.toy import toy_dataset


def augmented(data, name="ignore-filtered", said=None):
    run = SimpleNamespace(log=(said if said is not None else []).append)
    return get_augmentation(name)(NoConfig()).apply(data, run)


def with_filter(data, pairs):
    return dataclasses.replace(data, train=dataclasses.replace(data.train, filter=np.array(pairs)))


def test_filtered_pairs_are_open_unless_the_data_calls_them_true():
    data = with_filter(separable(), [[0, 0], [0, 3], [5, 1]])  # point i has label i
    found = augmented(data, said=(said := []))
    assert said == ["2 pairs of the training filter are ignored in training"]
    assert found.train.ignored.tolist() == [[0, 3], [5, 1]]
    assert found.train.Y is data.train.Y
    assert found.fingerprint != data.fingerprint
    assert augmented(found, "metadata").train.ignored.tolist() == [[0, 3], [5, 1]]


def test_without_a_filter_it_says_so():
    for data in (separable(), with_filter(separable(), [[0, 0]])):
        with pytest.raises(InputError, match="filtered needs a training filter"):
            augmented(data)


def test_methods_that_cannot_leave_pairs_open_are_refused():
    data = toy_dataset()
    for method in ("decaf", "eclare", "astec"):
        assert resolve(RunSpec(method, augment=("ignore-filtered",)), data).augmentations[0].name == "ignore-filtered"
    with pytest.raises(InputError, match="filtered needs a method that can ignore pairs in training; knn cannot"):
        resolve(RunSpec("knn", augment=("ignore-filtered",)), data)


@pytest.mark.parametrize("method", ["decaf", "eclare"])
def test_a_point_that_is_a_label_does_not_speak_against_that_label(method):
    """Points 0 to 7 have the very text of labels 0 to 7, which nobody else has, but are told to be label 8 to 15."""
    words, others = np.eye(8, dtype=np.float32), np.eye(16, dtype=np.float32)
    X = csr(np.vstack([words] * 4))
    Y = csr(np.vstack([others[8:]] * 4))
    Z = csr(np.vstack([words, np.roll(words, 1, axis=1)]))
    own = np.array([[point, point % 8] for point in range(32)])
    data = Dataset("own", Split(X, Y, filter=own), Split(X[:8], Y[:8]), Z=Z)

    def of_their_own_labels(data):
        found = train(method, data, dim=16).predict(X[:8], 16).to_csr(16).toarray()
        return found[np.arange(8), np.arange(8)].mean()

    assert of_their_own_labels(augmented(data)) > 5 * of_their_own_labels(data)
