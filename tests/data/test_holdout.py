"""Training points in the place of test points: nothing is lost, filters follow, features without text stay."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

from xcbench.data import Dataset, Split, TextColumn
from xcbench.data.holdout import hold_out, training_slice
from xcbench.errors import InputError
from xcbench.runner.toy import toy_dataset


def test_rows_change_sides_with_their_features_targets_and_filters():
    X = sp.eye_array(5, dtype=np.float32, format="csr")
    Y = sp.csr_array(np.tri(5, 3, dtype=np.float32))
    Z = sp.csr_array(np.ones((3, 5), np.float32))
    train = Split(X, Y, filter=np.array([[0, 1], [3, 0], [4, 2]]))
    data = Dataset("d", train, test=Split(X[:1], Y[:1]), Z=Z)

    part = hold_out(data, np.array([3, 0]))
    assert part.train.X.toarray().tolist() == X.toarray()[[1, 2, 4]].tolist()
    assert part.test.X.toarray().tolist() == X.toarray()[[0, 3]].tolist()
    assert part.test.Y.toarray().tolist() == Y.toarray()[[0, 3]].tolist()
    assert part.train.filter.tolist() == [[2, 2]]
    assert part.test.filter.tolist() == [[0, 1], [1, 0]]
    assert part.Z is data.Z
    assert part.fingerprint != data.fingerprint


def test_siblings_stay_on_one_side_of_a_slice():
    data = toy_dataset()
    families = [f"pack{row // 3}" for row in range(len(data.train))]
    titles = TextColumn.of([f"{family}-tool-{row}: text" for row, family in enumerate(families)])
    data = dataclasses.replace(data, train=dataclasses.replace(data.train, titles=titles))
    first = training_slice(data, 0.2, seed=0)
    assert 40 <= len(first.test) <= 42
    assert len(first.train) + len(first.test) == 200
    sides = [{title.partition("-")[0] for title in split.titles} for split in (first.train, first.test)]
    assert not sides[0] & sides[1]
    assert list(training_slice(data, 0.2, seed=1).test.titles) != list(first.test.titles)


def test_a_slice_needs_no_titles_and_no_small_families():
    data = toy_dataset()
    without = dataclasses.replace(data, encoder=None, train=dataclasses.replace(data.train, titles=None))
    assert len(training_slice(without, 0.25, seed=0).test) == 50
    alike = TextColumn.of([f"pack{row % 2}-tool: {row}" for row in range(200)])
    two = dataclasses.replace(data, train=dataclasses.replace(data.train, titles=alike))
    assert len(training_slice(two, 0.2, seed=0).test) == 100
    one = TextColumn.of([f"pack: {row}" for row in range(200)])
    with pytest.raises(InputError, match="all training titles begin alike"):
        training_slice(dataclasses.replace(data, train=dataclasses.replace(data.train, titles=one)), 0.2, seed=0)
