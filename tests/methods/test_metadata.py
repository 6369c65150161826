"""Label titles as training points."""

import dataclasses

import numpy as np
import pytest

from tests.methods.problems import csr, gappy, needs, separable, train
from xcbench.data import Dataset, Split
from xcbench.errors import InputError
from xcbench.plugins import NoConfig
from xcbench.plugins.registry import get_augmentation
from xcbench.runner.toy import toy_dataset


def augmented(data):
    return get_augmentation("metadata")(NoConfig()).apply(data, None)


def test_every_label_with_text_becomes_a_point_of_its_own():
    data = dataclasses.replace(gappy(), Z=csr([[0, 0, 1], [0, 0, 0], [0, 1, 0]]))
    found = augmented(data).train
    assert found.X.toarray()[-2:].tolist() == [[0, 0, 1], [0, 1, 0]]
    assert found.Y.toarray()[-2:].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert np.array_equal(found.X.toarray()[:-2], data.train.X.toarray())
    assert np.array_equal(found.Y.toarray()[:-2], data.train.Y.toarray())


def test_titles_and_filters_stay_beside_their_points():
    data = toy_dataset()
    data = dataclasses.replace(data, train=dataclasses.replace(data.train, filter=np.array([[3, 1]])))
    found = augmented(data).train
    assert list(found.titles) == [*data.train.titles, *data.label_titles]
    assert found.filter.tolist() == [[3, 1]]
    assert len(found) == 250


def test_test_points_and_labels_stay_as_they_are():
    data = separable()
    found = augmented(data)
    assert found.test is data.test
    assert found.Z is data.Z


def test_without_label_text_it_says_so():
    with pytest.raises(InputError, match="metadata needs label text"):
        augmented(dataclasses.replace(separable(), Z=None))


@needs("dismec")
def test_a_label_without_points_can_then_be_found():
    """Label 2 has text but no point: only the augmented data can lead to it."""
    X, Y = csr([[1, 0, 0], [0, 1, 0]] * 3), csr([[1, 0, 0], [0, 1, 0]] * 3)
    data = Dataset("zero-shot", Split(X, Y), Split(X, Y), Z=csr(np.eye(3)))
    assert train("dismec", augmented(data)).predict(csr([[0, 0, 1]]), 1).indices.tolist() == [[2]]
    assert train("dismec", data).predict(csr([[0, 0, 1]]), 3).indices.tolist() != [[2]]
