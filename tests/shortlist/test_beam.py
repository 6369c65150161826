"""Cluster beams and predictions from them, against brute force over all clusters and labels."""

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shortlist.reference import assert_same, best, dense, dense_game, random_graph, sigma
from xcbench.errors import InputError
from xcbench.labels import Clustering
from xcbench.shortlist import BeamShortlister, Game, beam_width, load_shortlister
from xcbench.shortlist.predictors import BeamPredictor


def world(seed, n, K, L, D=4, clusters=None):
    rng = np.random.default_rng(seed)
    H, b, W, c = (rng.standard_normal(shape, dtype=np.float32) for shape in ((K, D), (K,), (L, D), (L,)))
    X = rng.standard_normal((2, n, D), dtype=np.float32)
    clustering = Clustering.of(rng.integers(0, K, L) if clusters is None else clusters, K)
    return rng, H, b, W, c, X, clustering


def cluster_probabilities(X, H, b, beam, G=None, mode="off"):
    top = best((X @ H.T + b), min(beam, len(H)))
    P = np.where(dense(top, len(H), -np.inf) > -np.inf, sigma(X @ H.T + b), 0)
    return dense_game(P, G, beam, mode)


def plain_prediction(X, W, c, p, cluster_of, k, G=None, mode="off", beam=0, power=1.0):
    """The equations of the fact sheet, all labels of all points at once."""
    p_of_label = p[:, cluster_of]
    listed = p_of_label > 0
    r = np.where(listed, sigma(X @ W.T + c), 0)
    if mode == "paper":
        s = (r**power @ G.T) ** (1 / power) * p_of_label
        return best(np.where(listed, s, -np.inf).astype(np.float32), k)
    s = r * p_of_label
    if mode == "code":
        kept = dense(best(np.where(listed, s, -np.inf).astype(np.float32), beam), len(W))
        s = dense_game(kept, G, beam, "code", power)
        listed = s > 0
    return best(np.where(listed, s, -np.inf).astype(np.float32), k)


@settings(deadline=None, max_examples=50)
@given(
    n=st.integers(0, 6),
    K=st.integers(1, 12),
    L=st.integers(1, 40),
    beam=st.integers(1, 15),
    k=st.integers(1, 50),
    mode=st.sampled_from(["paper", "code", "off", None]),
    power=st.sampled_from([1.0, 0.25]),
    seed=st.integers(0, 2**31),
)
def test_predictions_are_the_equations(n, K, L, beam, k, mode, power, seed):
    """Clusters of any size, empty ones too; beams beyond K; more labels wanted than there are."""
    rng, H, b, W, c, (Xc, Xl), clustering = world(seed, n, K, L)
    beam_in = min(beam, K)
    G_clusters, G_labels = random_graph(rng, K), random_graph(rng, L)
    games = (None, None) if mode is None else (Game(G_clusters, beam_in, mode), Game(G_labels, beam, mode, power))
    shortlister = BeamShortlister.of(H, clustering, beam, b, games[0])
    found = BeamPredictor.of(shortlister, W, c, games[1]).predict(Xc, Xl, k)
    p = cluster_probabilities(Xc, H, b, beam_in, G_clusters.toarray().astype(np.float64), mode or "off")
    expected = plain_prediction(
        Xl, W, c, p, clustering.cluster_of, k, G_labels.toarray().astype(np.float64), mode or "off", beam, power
    )
    assert found.indices.shape == (n, k)
    np.testing.assert_allclose(dense(found, L), dense(expected, L), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-6)


def test_one_label_per_cluster_and_a_full_beam_is_the_product():
    """Fact sheet, section 10: DECAF's score is then sigma(h_l) sigma(s_l)."""
    _, H, b, W, c, (Xc, Xl), clustering = world(0, 5, 20, 20, clusters=np.random.default_rng(1).permutation(20))
    predictor = BeamPredictor.of(BeamShortlister.of(H, clustering, 20, b), W, c)
    product = sigma(Xc @ H.T + b)[:, clustering.cluster_of] * sigma(Xl @ W.T + c)
    assert_same(predictor.predict(Xc, Xl, 20), best(product.astype(np.float32), 20))


def test_shortlist_holds_the_best_clusters_members():
    _, H, b, _, _, (X, _), clustering = world(3, 7, 6, 30)
    shortlister = BeamShortlister.of(H, clustering, 3, b)
    p = cluster_probabilities(X, H, b, 3)[:, clustering.cluster_of]
    expected = best(np.where(p > 0, p, -np.inf).astype(np.float32), 9)
    assert_same(shortlister.shortlist(X, 9), expected)
    np.testing.assert_allclose(shortlister.candidates(X).toarray(), p, rtol=1e-5)
    np.testing.assert_array_equal(shortlister.clusters(X).indices, best(X @ H.T + b, 3).indices)


def test_labels_in_a_far_cluster_can_enter_through_the_graph():
    """GAME as in the code reaches labels outside the beam; as in the paper it stays within."""
    H, W = np.array([[5.0], [-5.0]], np.float32), np.ones((2, 1), np.float32)
    clustering, X = Clustering.of(np.array([0, 1]), 2), np.ones((1, 1), np.float32)
    edge = np.array([[0.5, 0.5], [0.5, 0.5]], np.float32)
    found = {}
    for mode in ("code", "paper"):
        game = Game(sp.csr_array(edge), 2, mode)
        found[mode] = BeamPredictor.of(BeamShortlister.of(H, clustering, 1), W, game=game).predict(X, X, 2)
    np.testing.assert_array_equal(found["code"].indices, [[0, 1]])
    np.testing.assert_array_equal(found["paper"].indices, [[0, -1]])


def test_one_label_one_cluster_one_point():
    _, H, b, W, c, (Xc, Xl), clustering = world(0, 1, 1, 1)
    found = BeamPredictor.of(BeamShortlister.of(H, clustering, 10, b), W, c).predict(Xc, Xl, 3)
    np.testing.assert_array_equal(found.indices, [[0, -1, -1]])
    np.testing.assert_allclose(found.scores[0, 0], sigma(Xc @ H.T + b) * sigma(Xl @ W.T + c), rtol=1e-5)


def test_tied_labels_come_in_the_order_of_their_ids():
    clustering = Clustering.of(np.arange(60)[::-1] % 7, 7)
    H, W, X = np.zeros((7, 2), np.float32), np.zeros((60, 2), np.float32), np.ones((3, 2), np.float32)
    found = BeamPredictor.of(BeamShortlister.of(H, clustering, 7), W).predict(X, X, 60)
    np.testing.assert_array_equal(found.indices, np.tile(np.arange(60), (3, 1)))
    np.testing.assert_array_equal(found.scores, np.full((3, 60), 0.25))


def test_the_number_of_threads_changes_nothing():
    rng, H, b, W, c, (Xc, Xl), clustering = world(0, 500, 40, 200)
    games = [Game(random_graph(rng, count, 0.1), 8, "code") for count in (40, 200)]
    predictor = BeamPredictor.of(BeamShortlister.of(H, clustering, 8, b, games[0]), W, c, games[1])
    before = numba.get_num_threads()
    try:
        found = []
        for count in (1, before):
            numba.set_num_threads(count)
            found.append(predictor.predict(Xc, Xl, 20))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(found[0].indices, found[1].indices)
    np.testing.assert_allclose(found[0].scores, found[1].scores, rtol=1e-5)


def test_the_game_over_labels_may_differ_from_that_over_clusters():
    rng, H, b, W, c, (Xc, Xl), clustering = world(5, 4, 6, 20)
    G = random_graph(rng, 6)
    shortlister = BeamShortlister.of(H, clustering, 2, b, Game(G, 2, "code"))
    p = cluster_probabilities(Xc, H, b, 2, G.toarray().astype(np.float64), "code")
    expected = plain_prediction(Xl, W, c, p, clustering.cluster_of, 20)
    found = BeamPredictor.of(shortlister, W, c).predict(Xc, Xl, 20)
    np.testing.assert_allclose(dense(found, 20), dense(expected, 20), rtol=1e-5, atol=1e-7)


def test_saved_and_loaded(tmp_path):
    rng, H, b, W, c, (Xc, Xl), clustering = world(0, 9, 5, 17)
    games = [Game(random_graph(rng, count), 3, mode, 0.5) for count, mode in ((5, "code"), (17, "paper"))]
    shortlister = BeamShortlister.of(H, clustering, 3, b, games[0])
    predictor = BeamPredictor.of(shortlister, W, c, games[1])
    predictor.save(tmp_path / "predictor")
    again = BeamPredictor.load(tmp_path / "predictor").predict(Xc, Xl, 6)
    np.testing.assert_array_equal(again.scores, predictor.predict(Xc, Xl, 6).scores)
    np.testing.assert_array_equal(again.indices, predictor.predict(Xc, Xl, 6).indices)
    shortlister.save(tmp_path / "shortlister")
    loaded = load_shortlister(tmp_path / "shortlister")
    np.testing.assert_array_equal(loaded.shortlist(Xc, 6).indices, shortlister.shortlist(Xc, 6).indices)


def test_wrong_input():
    _, H, b, W, _, (Xc, Xl), clustering = world(0, 4, 5, 17)
    with pytest.raises(InputError, match="5 clusters need a classifier each, got 4"):
        BeamShortlister.of(H[:4], clustering, 2)
    with pytest.raises(InputError, match="at least 1 cluster"):
        BeamShortlister.of(H, clustering, 0)
    shortlister = BeamShortlister.of(H, clustering, 2, b)
    with pytest.raises(InputError, match="17 labels need a classifier each, got 16"):
        BeamPredictor.of(shortlister, W[:16])
    with pytest.raises(InputError, match="the same points, got 3 and 4"):
        BeamPredictor.of(shortlister, W).predict(Xc[:3], Xl, 2)


@pytest.mark.parametrize(
    ("wanted", "beam", "width"), [(1, None, 1), (10, None, 4), (99, None, 4), (99, 2, 2), (1, 9, 4)]
)
def test_a_beam_is_as_wide_as_asked_or_as_holds_so_many_labels(wanted, beam, width):
    assert beam_width(4, 12, wanted, beam) == width  # three labels per cluster
