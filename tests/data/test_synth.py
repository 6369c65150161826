"""Synthetic data has the published shape, is the same under one seed, and rewards both text and co-occurrence."""

import numpy as np
import pytest
import scipy.sparse as sp

from xcbench.data.dataset import Propensity
from xcbench.data.stats import statistics
from xcbench.data.synth import Shape, from_shape, published_shapes, synthesise
from xcbench.errors import InputError


@pytest.fixture(scope="module")
def small():
    return synthesise("LF-AmazonTitles-131K", 0.02, seed=1)


def best_column(scores):
    """The column of the largest entry of each row; -1 for empty rows."""
    scores = sp.csr_array(scores)
    rows = zip(scores.indptr[:-1], scores.indptr[1:], strict=True)
    return np.array([scores.indices[a:b][scores.data[a:b].argmax()] if b > a else -1 for a, b in rows])


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("LF-AmazonTitles-131K", 0.05),
        ("LF-WikiSeeAlsoTitles-320K", 0.02),
        ("LF-WikiTitles-500K", 0.02),
        ("LF-AmazonTitles-1.3M", 0.005),
    ],
)
def test_the_shape_is_the_published_one(name, scale):
    shape, dataset = published_shapes()[name], synthesise(name, scale)
    found = statistics(dataset)
    assert found.train_points == round(shape.train * scale)
    assert found.test_points == round(shape.test * scale)
    assert found.labels == round(shape.labels * scale)
    assert found.features == round(shape.features * np.sqrt(scale))
    assert found.labels_per_point == pytest.approx(shape.labels_per_point, rel=0.05)
    assert found.labels_per_test_point == pytest.approx(shape.labels_per_point, rel=0.07)
    for titles, mean in (
        (dataset.train.titles, shape.tokens_per_point),
        (dataset.label_titles, shape.tokens_per_label),
    ):
        assert np.mean([title.count(" ") + 1 for title in titles]) == pytest.approx(mean, rel=0.03)
    assert found.tokens_per_point == pytest.approx(shape.tokens_per_point, rel=0.1)  # a repeated word counts once
    assert dataset.propensity == shape.propensity


def test_the_tail_is_as_long_as_that_of_real_data(small):
    """The embedded and the published sets: a median of 3, seven labels of ten below 5 points, all seen in training."""
    found = statistics(small)
    assert found.median_points_per_label == pytest.approx(3, abs=1)
    assert 0.65 < found.share_of_labels_with_few_points < 0.8
    assert found.most_points_of_a_label > 20 * found.points_per_label
    assert found.labels_without_training_points == 0
    ranked = np.sort(small.label_frequency)[::-1]
    ranks = np.arange(1, len(ranked) + 1)
    slope = np.polyfit(np.log(ranks[10:500]), np.log(ranked[10:500]), 1)[0]
    assert slope == pytest.approx(-0.61, abs=0.1)


def test_label_text_carries_signal(small):
    best = best_column(small.test.X @ small.Z.T)
    hits = np.mean([small.test.Y[i, label] > 0 for i, label in enumerate(best) if label >= 0])
    chance = small.test.Y.nnz / np.prod(small.test.Y.shape)
    assert 0.2 < hits < 0.8
    assert hits > 100 * chance


def test_co_occurrence_carries_signal(small):
    """Of a test point's first label, guess another from what went with it in training; text is not looked at."""
    Y = small.train.Y
    together = sp.csr_array(Y.T @ Y)
    together.setdiag(0)
    together.eliminate_zeros()
    several = np.flatnonzero(np.diff(small.test.Y.indptr) > 1)
    given = small.test.Y.indices[small.test.Y.indptr[several]]
    best = best_column(together[given])
    hits = np.mean([b >= 0 and small.test.Y[point, b] > 0 for point, b in zip(several, best, strict=True)])
    popular = int(small.label_frequency.argmax())
    by_frequency = np.mean([small.test.Y[point, popular] > 0 for point in several])
    assert hits > 0.1
    assert hits > 3 * by_frequency


def test_features_are_those_of_the_written_titles(small):
    for titles, X in ((small.train.titles, small.train.X), (small.label_titles, small.Z)):
        np.testing.assert_array_equal(small.encoder.encode(titles[:300]).toarray(), X[:300].toarray())
    assert len(set(small.encoder.vocabulary)) == small.feature_count
    assert all(word.isalpha() for word in small.encoder.vocabulary)


def test_one_seed_gives_one_dataset(small):
    again = synthesise("lf-amazontitles-131k", 0.02, seed=1)
    other = synthesise("LF-AmazonTitles-131K", 0.02, seed=2)
    assert again.fingerprint == small.fingerprint
    assert other.fingerprint != small.fingerprint


def test_the_manifest_says_that_it_is_made_up(small):
    assert "Synthetic" in small.manifest.title
    assert "never for claims of accuracy" in small.manifest.task
    assert "--seed 1" in small.manifest.source


@pytest.mark.parametrize("shape", [(2, 1, 1), (5, 2, 3), (50, 20, 4), (3, 3, 40)])
@pytest.mark.parametrize("labels_per_point", [1.0, 2.5, 30.0])
def test_tiny_shapes_work(shape, labels_per_point):
    tiny = from_shape(Shape(*shape, 10, labels_per_point, 3.0, 1.0, Propensity()), 0, "tiny")
    assert (len(tiny.train), len(tiny.test), tiny.label_count) == shape
    for split in (tiny.train, tiny.test):
        assert np.diff(split.Y.indptr).min() >= 1
        assert np.diff(split.X.indptr).min() >= 1
        assert set(split.Y.data) == {1.0}
        assert split.Y.has_canonical_format
        assert len(split.titles) == len(split)
    np.testing.assert_allclose(sp.linalg.norm(tiny.Z, axis=1), 1, rtol=1e-6)


def test_wrong_names_and_scales_are_refused():
    with pytest.raises(InputError, match="did you mean lf-amazontitles-131k"):
        synthesise("LF-AmazonTitels-131K")
    for scale in (0, -1, float("nan"), float("inf"), 1e5, 1e300):
        with pytest.raises(InputError, match="scale"):
            synthesise("LF-AmazonTitles-131K", scale)
    with pytest.raises(InputError, match="a seed is at least 0"):
        synthesise("LF-AmazonTitles-131K", 0.001, seed=-1)
