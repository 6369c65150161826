"""GAME against the dense formula, in every mode."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shortlist.reference import best, dense, dense_game, random_graph
from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.shortlist import game


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(0, 5),
    M=st.integers(1, 30),
    k=st.integers(1, 12),
    beam=st.integers(1, 12),
    mode=st.sampled_from(["paper", "code", "off"]),
    power=st.sampled_from([1.0, 0.5, 0.25]),
    seed=st.integers(0, 2**31),
)
def test_the_dense_formula(n, M, k, beam, mode, power, seed):
    rng = np.random.default_rng(seed)
    top = best(rng.random((n, M)).astype(np.float32), min(k, M)).padded(k)
    G = random_graph(rng, M)
    expected = dense_game(dense(top, M), G.toarray().astype(np.float64), beam, mode, power)
    found = game(top, G, beam, mode, power)
    np.testing.assert_allclose(dense(found, M), expected, rtol=1e-5, atol=1e-7)
    again = game(top.to_csr(M), G, beam, mode, power)
    np.testing.assert_allclose(dense(again, M), expected, rtol=1e-5, atol=1e-7)
    used = found.indices >= 0
    assert all(np.unique(row[u]).size == u.sum() for row, u in zip(found.indices, used, strict=True))
    assert np.all(found.scores[:, 1:] <= found.scores[:, :-1])


def test_by_hand():
    """Two of three labels predicted; label 1 passes half of itself on to label 2."""
    P = TopK(np.array([[0, 1]], np.int32), np.array([[0.8, 0.4]], np.float32))
    G = sp.csr_array(np.array([[1, 0, 0], [0, 0.5, 0.5], [0, 0, 1]], np.float32))
    code = game(P, G, 2, "code")  # P G = (0.8, 0.2, 0.2), of which the two largest are 0.8 and (smaller id) label 1
    np.testing.assert_array_equal(code.indices, [[0, 1, -1, -1]])
    np.testing.assert_allclose(code.scores, [[0.8, 0.3, -np.inf, -np.inf]], rtol=1e-6)
    wider = game(P, G, 3, "code")
    np.testing.assert_array_equal(wider.indices, [[0, 1, 2, -1, -1]])
    np.testing.assert_allclose(wider.scores[0, :3], [0.8, 0.3, 0.1], rtol=1e-6)
    paper = game(P, G, 3, "paper")  # G P = (0.8, 0.2, 0): nobody passes anything to label 2
    np.testing.assert_array_equal(paper.indices, [[0, 1, -1]])
    np.testing.assert_allclose(paper.scores[0, :2], [0.8, 0.2], rtol=1e-6)


def test_a_power_keeps_neighbours_of_the_first_label_behind_the_second():
    """P = (0.81, 0.01) and label 0 passes a tenth of itself on to label 2."""
    P = TopK(np.array([[0, 1]], np.int32), np.array([[0.81, 0.01]], np.float32))
    G = sp.csr_array(np.array([[0.9, 0, 0.1], [0, 1, 0], [0, 0, 1]], np.float32))
    plain = game(P, G, 3, "code")  # P G = (0.729, 0.01, 0.081)
    np.testing.assert_array_equal(plain.indices[0, :3], [0, 2, 1])
    np.testing.assert_allclose(plain.scores[0, :3], [0.7695, 0.0405, 0.01], rtol=1e-6)
    root = game(P, G, 3, "code", power=0.5)  # roots (0.9, 0.1) G = (0.81, 0.1, 0.09); half of each, squared
    np.testing.assert_array_equal(root.indices[0, :3], [0, 1, 2])
    np.testing.assert_allclose(root.scores[0, :3], [0.855**2, 0.01, 0.045**2], rtol=1e-6)


@pytest.mark.parametrize("mode", ["paper", "code"])
def test_head_labels_keep_their_score_exactly(mode):
    """A label whose only edge is its own of weight 1 is left as it was."""
    rng = np.random.default_rng(0)
    G = random_graph(rng, 10).toarray()
    G[3], G[:, 3] = 0, 0
    G[3, 3] = 1
    top = best(rng.random((20, 10)).astype(np.float32), 10)
    before, after = dense(top, 10), dense(game(top, sp.csr_array(G), 10, mode), 10)
    np.testing.assert_array_equal(before[:, 3], after[:, 3])


def test_wrong_input():
    P = TopK(np.array([[4]], np.int32), np.ones((1, 1), np.float32))
    with pytest.raises(InputError, match="3 labels cannot re-rank label 4"):
        game(P, sp.csr_array(np.eye(3, dtype=np.float32)), 1)
    with pytest.raises(InputError, match="paper, code or off"):
        game(P, sp.csr_array(np.eye(5, dtype=np.float32)), 1, "both")
    with pytest.raises(InputError, match="power is greater than 0 and at most 1, got 0"):
        game(P, sp.csr_array(np.eye(5, dtype=np.float32)), 1, "code", 0)
