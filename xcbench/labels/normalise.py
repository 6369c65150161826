"""From counts to weights: the ways to normalise a label graph. A row or column without mass stays zero."""

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp


def two_sided(graph: sp.csr_array) -> sp.csr_array:
    """A^-1/2 G B^-1/2 with the row sums A and the column sums B: ECLARE's choice."""
    return _scaled(graph, _inverse(np.sqrt(_row_sums(graph))), _inverse(np.sqrt(_column_sums(graph))))


def by_row(graph: sp.csr_array) -> sp.csr_array:
    """A^-1 G: rows become probabilities."""
    return _scaled(graph, _inverse(_row_sums(graph)), np.ones(graph.shape[1]))


def perron(graph: sp.csr_array, teleport: float = 0.05) -> sp.csr_array:
    """Chung's symmetric form of a directed graph: (F^1/2 P F^-1/2 + F^-1/2 P^T F^1/2) / 2.

    P is the row-stochastic graph and F its stationary vector as a diagonal matrix. Label graphs are not strongly
    connected, so their stationary vector is neither unique nor positive; that of a walk which starts anew at a
    uniform label with probability `teleport` is. With 0 the graph must be strongly connected.
    """
    P = by_row(graph)
    root = np.sqrt(stationary_vector(P, teleport))
    half = _scaled(P, root, _inverse(root))
    symmetric: sp.csr_array = ((half + half.T) * np.float32(0.5)).tocsr()
    return symmetric


def stationary_vector(P: sp.csr_array, teleport: float = 0.05, tolerance: float = 1e-10) -> npt.NDArray[np.float64]:
    """The distribution f with f = (1 - t) f P + t / L; mass in rows without edges also starts anew.

    Power iterations on the lazy walk, which stays where it is half of the time: it has the same f, and settles on
    periodic graphs too.
    """
    L = P.shape[0]
    backward = P.T.tocsr().astype(np.float64)
    f = np.full(L, 1 / L)
    for _ in range(10_000):
        moved = (1 - teleport) * (backward @ f)
        moved += (1 - moved.sum()) / L
        change = np.abs(moved - f).sum()
        f = (f + moved) / 2
        if change < tolerance:
            break
    return f


def _scaled(graph: sp.csr_array, rows: npt.NDArray[np.float64], columns: npt.NDArray[np.float64]) -> sp.csr_array:
    weights = graph.data * np.repeat(rows, np.diff(graph.indptr)) * columns[graph.indices]
    return sp.csr_array((weights.astype(np.float32), graph.indices, graph.indptr), shape=graph.shape)


def _row_sums(graph: sp.csr_array) -> npt.NDArray[np.float64]:
    return np.asarray(graph.sum(axis=1, dtype=np.float64))


def _column_sums(graph: sp.csr_array) -> npt.NDArray[np.float64]:
    return np.asarray(graph.sum(axis=0, dtype=np.float64))


def _inverse(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.divide(1, values, out=np.zeros_like(values), where=values > 0)
