"""Slow and plain versions of what this room computes, on dense arrays."""

import numpy as np
import scipy.sparse as sp

from xcbench.data import TopK


def best(S, k):
    """The k best columns of each row, by score and then by smaller id; -inf never counts."""
    indices, scores = np.full((len(S), k), -1, np.int32), np.full((len(S), k), -np.inf, np.float32)
    for i, row in enumerate(S):
        order = [j for j in np.lexsort((np.arange(len(row)), -row)) if row[j] > -np.inf][:k]
        indices[i, : len(order)], scores[i, : len(order)] = order, row[order]
    return TopK(indices, scores)


def dense(top, columns, missing=0.0):
    """The scores of a TopK in an n x columns array."""
    S = np.full((len(top), columns), missing, np.float64)
    for i, row in enumerate(top.indices):
        S[i, row[row >= 0]] = top.scores[i, row >= 0]
    return S


def keep_largest(S, k):
    """S with all but the k largest positive entries of each row set to 0."""
    top = best(np.where(S > 0, S, -np.inf), k)
    return dense(top, S.shape[1])


def dense_game(P, G, beam, mode, power=1.0):
    if mode == "off":
        return P
    P = P**power
    spread = keep_largest(P @ G.T, beam) if mode == "paper" else 0.5 * P + 0.5 * keep_largest(P @ G, beam)
    return spread ** (1 / power)


def sigma(logits):
    return 1 / (1 + np.exp(-np.asarray(logits, np.float64)))


def random_graph(rng, count, share=0.3):
    """Nonnegative weights, none twice the same."""
    weights = rng.random((count, count)).astype(np.float32)
    return sp.csr_array(np.where(rng.random((count, count)) < share, weights, 0))


def assert_same(found, expected, tolerance=1e-6):
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=tolerance)
    np.testing.assert_array_equal(found.indices, expected.indices)


def assert_close(found, expected):
    """The same scores, and the same labels wherever scores are further apart than rounding."""
    np.testing.assert_allclose(found.scores, expected.scores, rtol=2e-5, atol=1e-6)
    scores = np.where(expected.indices < 0, -1e9 * np.arange(1, expected.k + 1), expected.scores)
    for place in range(expected.k - 1):  # the best label that is left out may be as close to the last
        others = np.delete(scores, place, axis=1)
        gap = np.abs(others - scores[:, [place]]).min(axis=1, initial=np.inf)
        is_clear = gap > 1e-5
        np.testing.assert_array_equal(found.indices[is_clear, place], expected.indices[is_clear, place])
