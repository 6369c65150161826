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
    seed=st.integers(0, 2**31),
)
def test_the_dense_formula(n, M, k, beam, mode, seed):
    rng = np.random.default_rng(seed)
    top = best(rng.random((n, M)).astype(np.float32), min(k, M)).padded(k)
    G = random_graph(rng, M)
    expected = dense_game(dense(top, M), G.toarray().astype(np.float64), beam, mode)
    found = game(top, G, beam, mode)
    np.testing.assert_allclose(dense(found, M), expected, rtol=1e-5, atol=1e-7)
    again = game(top.to_csr(M), G, beam, mode)
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
