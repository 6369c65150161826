"""From counts to weights: the ways to normalise a label graph. A row or column of zeros stays zero."""

import numpy as np
import scipy.sparse as sp

from xcbench.kernels.arrays import Doubles

MAX_ITERATIONS = 10_000


def two_sided(graph: sp.csr_array) -> sp.csr_array:
    """Return A^-1/2 G B^-1/2 with the row sums A and the column sums B: ECLARE's choice.

    Parameters
    ----------
    graph : counts G between labels or between clusters.
    """
    rows = _inverse(np.sqrt(_row_sums(graph)))
    columns = _inverse(np.sqrt(_column_sums(graph)))
    return _scaled(graph, rows, columns)


def by_row(graph: sp.csr_array) -> sp.csr_array:
    """Return A^-1 G with the row sums A: rows become probabilities.

    Parameters
    ----------
    graph : counts G between labels or between clusters.
    """
    rows = _inverse(_row_sums(graph))
    columns = np.ones(graph.shape[1])
    return _scaled(graph, rows, columns)


def perron(graph: sp.csr_array, teleport: float = 0.05) -> sp.csr_array:
    """Return Chung's symmetric form of a directed graph: (F^1/2 P F^-1/2 + F^-1/2 P^T F^1/2) / 2.

    P is the row-stochastic graph and F its stationary vector as a diagonal matrix.

    Parameters
    ----------
    graph : counts between labels or between clusters.
    teleport : the probability that the walk behind F starts anew at a uniformly drawn label. Label graphs are not
        strongly connected: without it, their stationary vector is neither unique nor positive. It may be 0 for a
        strongly connected graph.
    """
    P = by_row(graph)
    root = np.sqrt(stationary_vector(P, teleport))
    half = _scaled(P, root, _inverse(root))
    mean = (half + half.T) * np.float32(0.5)
    symmetric: sp.csr_array = mean.tocsr()
    return symmetric


def stationary_vector(
    P: sp.csr_array,
    teleport: float = 0.05,
    tolerance: float = 1e-10,
) -> Doubles:
    """Return the distribution f with f = (1 - t) f P + t / L. Mass in rows without edges also starts anew.

    Parameters
    ----------
    P : a row-stochastic graph (L x L), whose rows may be empty.
    teleport : t, the probability of starting anew at a uniformly drawn label.
    tolerance : the iterations stop when f changes by less than this in all.
    """
    L = P.shape[0]
    backward = P.T.tocsr().astype(np.float64)
    f = np.full(L, 1 / L)
    for _ in range(MAX_ITERATIONS):
        moved = (1 - teleport) * (backward @ f)
        moved += (1 - moved.sum()) / L
        change = np.abs(moved - f).sum()
        # A lazy walk, which stays where it is half of the time, has the same f and converges on periodic graphs too.
        f = (f + moved) / 2
        if change < tolerance:
            break
    return f


def _scaled(graph: sp.csr_array, rows: Doubles, columns: Doubles) -> sp.csr_array:
    """Multiply each row and each column by a number of its own."""
    row_factors = np.repeat(rows, np.diff(graph.indptr))
    column_factors = columns[graph.indices]
    weights = graph.data * row_factors * column_factors
    arrays = (weights.astype(np.float32), graph.indices, graph.indptr)
    return sp.csr_array(arrays, shape=graph.shape)


def _row_sums(graph: sp.csr_array) -> Doubles:
    sums = graph.sum(axis=1, dtype=np.float64)
    return np.asarray(sums)


def _column_sums(graph: sp.csr_array) -> Doubles:
    sums = graph.sum(axis=0, dtype=np.float64)
    return np.asarray(sums)


def _inverse(values: Doubles) -> Doubles:
    """Return 1 / values, and 0 for 0."""
    zeros = np.zeros_like(values)
    return np.divide(1, values, out=zeros, where=values > 0)
