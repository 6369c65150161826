"""MixUp as batches are cut, against rows mixed one by one."""

import numpy as np
import pytest
import torch

from tests.train.toys import parameters, random_matrix, same
from xcbench.data import Split
from xcbench.data.dataset import Mixing
from xcbench.kernels.csr import SparseRows
from xcbench.nn import DocumentEncoder, FreeLabels, ResidualBlock, TokenEmbeddings
from xcbench.train import Candidates, Points, RankAll, RankShortlist, Training, Work, train
from xcbench.train.mixing import mixed_pairs

N = 30
V = 12
L = 9


def split(**fields):
    return Split(random_matrix(N, V, 0.4, 0), random_matrix(N, L, 0.3, 1), **fields)


def rows_by_hand(points, matrix, rows, key):
    drawn_rows, pairs = points.mixed.draw(rows, key)
    own = matrix[drawn_rows]
    other = matrix[np.where(pairs.partners < 0, drawn_rows, pairs.partners)]
    return pairs.weights[:, None] * own + (1 - pairs.weights[:, None]) * other


@pytest.mark.parametrize("dense", [False, True])
def test_features_and_targets_are_mixed_alike(dense):
    points = split(mixing=Mixing(alpha=1.0))
    X = points.X.toarray() if dense else points.X
    mixed = Points(X, points.Y, split=points)
    rows = np.arange(0, N, 2)
    batch = mixed.cut(rows, key=7)
    found = batch.X.numpy() if dense else batch.X.to_scipy().toarray()
    np.testing.assert_allclose(found, rows_by_hand(mixed, points.X.toarray(), rows, 7), rtol=1e-6)
    by_hand = rows_by_hand(mixed, points.Y.toarray(), rows, 7)
    np.testing.assert_allclose(batch.targets.to_scipy().toarray(), by_hand, rtol=1e-6)


def test_for_a_bag_mixing_rows_is_mixing_embeddings():
    points = split(mixing=Mixing(alpha=1.0))
    mixed = Points(points.X, points.Y, split=points)
    E = TokenEmbeddings(V, 5)
    rows = np.arange(N)
    with torch.no_grad():
        embedded = E(SparseRows.of(points.X)).numpy()
        found = E(mixed.cut(rows, key=3).X).numpy()
    np.testing.assert_allclose(found, rows_by_hand(mixed, embedded, rows, 3), rtol=1e-4, atol=1e-5)


def test_a_mixed_point_has_the_candidates_of_both():
    points = split(mixing=Mixing(weight=0.5))
    listed = np.random.default_rng(1).integers(0, L, (N, 2)).astype(np.int32)
    mixed = Points(points.X, points.Y, Candidates.of_labels(listed, L), points)
    rows = np.arange(N)
    batch = mixed.cut(rows, key=1)
    _, pairs = mixed.mixed.draw(rows, 1)
    entries = batch.shortlists.entries.to_scipy()
    for i in rows:
        labels = batch.shortlists.labels[entries.indices[entries.indptr[i] : entries.indptr[i + 1]]]
        assert set(labels) == {*listed[i], *listed[pairs.partners[i]]}


def test_titles_are_partners_and_no_points():
    label_of = np.full(N, -1, np.int32)
    label_of[20:] = np.arange(10) % L
    points = split(label_of=label_of, mixing=Mixing("labels", alpha=1.0))
    mixed = Points(points.X, points.Y, split=points)
    assert len(mixed) == 20
    rows, pairs = mixed.mixed.draw(np.arange(20), 0)
    assert rows.tolist() == list(range(20))
    assert set(pairs.partners) <= set(range(20, N))


def test_draws_depend_on_the_point_and_not_on_the_batch():
    """So that processes which share a batch mix what one process would."""
    points = split(mixing=Mixing())
    pairs = mixed_pairs(points)
    whole = pairs.draw(np.arange(N), 5)[1]
    part = pairs.draw(np.arange(10, 20), 5)[1]
    np.testing.assert_array_equal(whole.partners[10:20], part.partners)
    np.testing.assert_array_equal(whole.weights[10:20], part.weights)
    assert not np.array_equal(whole.weights, pairs.draw(np.arange(N), 6)[1].weights)


def test_weights_are_the_larger_part_of_a_beta_draw():
    many = random_matrix(4000, 5, 0.5, 0)
    points = Split(many, many, mixing=Mixing(alpha=0.4))
    weights = mixed_pairs(points).draw(np.arange(4000), 1)[1].weights
    drawn = np.random.default_rng(0).beta(0.4, 0.4, 100_000)
    expected = np.maximum(drawn, 1 - drawn)
    assert weights.min() >= 0.5
    quarters = [0.25, 0.5, 0.75]
    np.testing.assert_allclose(np.quantile(weights, quarters), np.quantile(expected, quarters), atol=0.02)


@pytest.mark.parametrize("shortlists", [False, True])
def test_mixing_with_weight_1_is_the_identity(shortlists, tmp_path):
    def trained(mixing):
        torch.manual_seed(0)
        points = split(mixing=mixing)
        documents = DocumentEncoder(ResidualBlock(4, 0.2), TokenEmbeddings(V, 4, lazy=True))
        task = (RankShortlist if shortlists else RankAll)(documents, FreeLabels(L, 4))
        candidates = None
        if shortlists:
            candidates = Candidates.of_labels(np.tile(np.arange(3, dtype=np.int32), (N, 1)), L, random=2)
        train(task, Points(points.X, points.Y, candidates, points), Training(batch_size=8, epochs=2), Work())
        return parameters(task)

    assert same(trained(None), trained(Mixing(weight=1.0)))
    assert not same(trained(None), trained(Mixing(weight=0.7)))


@pytest.mark.parametrize("bad", [{"alpha": 0}, {"weight": 1.5}, {"weight": -0.1}])
def test_mixing_that_makes_no_sense_is_refused(bad):
    with pytest.raises(ValueError):  # noqa: PT011
        Mixing(**bad)


def test_a_pair_that_either_ignores_is_ignored():
    points = split(mixing=Mixing(weight=0.5))
    Y = points.Y.copy()
    Y.data[:] = np.nan
    mixed = Points(points.X, Y, split=points)
    assert np.isnan(mixed.cut(np.arange(N)).targets.data).all()


def test_titles_come_on_top_of_a_least_number_of_steps():
    """6 steps for 30 points; where 10 of these are titles, 9, so that the other 20 are seen as often as in 6."""
    label_of = np.full(N, -1, np.int32)
    settings = Training(batch_size=10, epochs=1, min_steps=6)
    assert settings.step_count(Points(*points_of(split(label_of=label_of)))) == 6
    label_of[20:] = 0
    assert settings.step_count(Points(*points_of(split(label_of=label_of)))) == 9
    assert Training(batch_size=10, steps=6).step_count(Points(*points_of(split(label_of=label_of)))) == 6


def points_of(points):
    return points.X, points.Y, None, points
