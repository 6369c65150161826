"""A held-out slice keeps families together, numbers its filters anew, and leaves the test points alone."""

import numpy as np
import pytest
import scipy.sparse as sp

from experiments.search.holdout import held_out
from xcbench.data import Dataset, Split, TextColumn
from xcbench.data.text import TextEncoder
from xcbench.errors import InputError


def dataset(titles):
    n = len(titles)
    X = sp.eye_array(n, dtype=np.float32, format="csr")
    pairs = np.array([(i, i) for i in range(0, n, 3)], np.int64)
    return Dataset("d", Split(X, X, titles and TextColumn.of(titles), pairs), Split(X[:1], X[:1]))


def test_families_stay_together_and_filters_follow_their_points():
    data = dataset([f"pkg-{family}-{part}: of {part}" for family in range(200) for part in range(2)])
    part = held_out(data)
    inside, outside = (
        {title.split(":")[0].rsplit("-", 1)[0] for title in split.titles} for split in (part.train, part.test)
    )
    assert not inside & outside
    assert 0.1 < len(part.test) / 400 < 0.3
    for split in (part.train, part.test):
        own = split.Y.indices  # point i has label i, and every third a filter pair with itself
        assert split.filter.tolist() == [[i, label] for i, label in enumerate(own.tolist()) if label % 3 == 0]


def test_a_large_family_stays_inside():
    data = dataset([f"big-one-{i}: x" for i in range(50)] + [f"name{i}: y" for i in range(100)])
    assert not any(title.startswith("big-one") for title in held_out(data, share=0.9).test.titles)


def test_words_that_only_held_out_points_have_are_not_known():
    titles = [f"name{i}: common" for i in range(100)]
    encoder = TextEncoder.fit([*titles, "name1", "other"])
    X, Y = encoder.encode(titles), sp.csr_array(np.ones((100, 2), np.float32))
    labels = TextColumn.of(["name1", "other"])
    data = Dataset(
        "d", Split(X, Y, TextColumn.of(titles)), Split(X, Y), encoder.encode(labels), labels, encoder=encoder
    )
    part = held_out(data)
    inside = {title.split(":")[0] for title in part.train.titles}
    assert 0 < len(part.test) < 100
    assert set(part.encoder.vocabulary) == {"common", "name1", "other"} | inside
    np.testing.assert_array_equal(part.test.X.toarray(), part.encoder.encode(part.test.titles).toarray())
    np.testing.assert_array_equal(part.Z.toarray(), part.encoder.encode(labels).toarray())


def test_without_titles_there_is_no_slice():
    with pytest.raises(InputError, match="no titles"):
        held_out(Dataset("d", *(Split(sp.csr_array((1, 1)), sp.csr_array((1, 1))),) * 2))
