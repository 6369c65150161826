"""Classifiers behind a shortlist, against the same sums by numpy."""

import numpy as np
import pytest

from xcbench.errors import InputError
from xcbench.shortlist.exact import ExactShortlister
from xcbench.shortlist.predictors.shortlist import ShortlistPredictor, rank_shortlist, shortlist_logits


@pytest.fixture
def random():
    return np.random.default_rng(3)


def drawn(random, *shape):
    return random.normal(size=shape).astype(np.float32)


def test_logits_of_listed_labels(random):
    X, W, b = drawn(random, 5, 4), drawn(random, 7, 4), drawn(random, 7)
    labels = np.array([[0, 6, -1], [1, 1, 1], [2, 3, 4], [-1, -1, -1], [5, 0, 2]], np.int32)
    want = np.where(labels >= 0, np.take_along_axis(X @ W.T + b, np.maximum(labels, 0), 1), -np.inf)
    np.testing.assert_allclose(shortlist_logits(X, W, labels, b), want, rtol=1e-5, atol=1e-6)
    plain = shortlist_logits(X[:1], W, labels[:1])
    np.testing.assert_allclose(plain[0, :2], (X @ W.T)[0, [0, 6]], rtol=1e-5)
    with pytest.raises(InputError, match="1 for 5 points"):
        shortlist_logits(X, W, labels[:1])


def test_ranking_leaves_unlisted_places_out():
    found = rank_shortlist(np.array([[4, -1, 2, 3]], np.int32), np.array([[0.1, 9, 0.5, 0.5]], np.float32), 5)
    assert found.indices.tolist() == [[2, 3, 4, -1, -1]]
    np.testing.assert_allclose(found.scores[0, :3], [0.5, 0.5, 0.1])


def test_scores_are_the_product_and_survive_the_disk(random, tmp_path):
    first, second, W, b = drawn(random, 6, 3), drawn(random, 6, 5), drawn(random, 9, 5), drawn(random, 9)
    lister = ExactShortlister.of(drawn(random, 9, 3))
    predictor = ShortlistPredictor.of(lister, 4, W, b)
    found = predictor.predict(first, second, 6)
    p = np.clip(first @ lister.W.T, 0, 1)
    product = p / (1 + np.exp(-(second @ W.T + b)))
    for i in range(6):
        listed = np.argsort(-(first @ lister.W.T)[i])[:4]
        assert set(found.indices[i, :4]) == set(listed)
        np.testing.assert_allclose(found.scores[i, :4], np.sort(product[i, listed])[::-1], rtol=1e-5)
        assert (found.indices[i, 4:] == -1).all()
    predictor.save(tmp_path / "p")
    again = ShortlistPredictor.load(tmp_path / "p").predict(first, second, 6)
    np.testing.assert_array_equal(again.indices, found.indices)
    with pytest.raises(InputError, match="9 labels need a classifier each"):
        ShortlistPredictor.of(lister, 4, W[:3])


def test_a_save_that_fails_leaves_nothing(random, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ExactShortlister, "save", full)
    with pytest.raises(OSError, match="No space"):
        ShortlistPredictor.of(ExactShortlister.of(drawn(random, 9, 3)), 4, drawn(random, 9, 5)).save(tmp_path / "p")
    assert not any(tmp_path.iterdir())
