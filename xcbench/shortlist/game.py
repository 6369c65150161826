"""GAME, ECLARE's reranking (section 3.4): probabilities spread along a graph of labels, or of clusters.

A label becomes more likely where its neighbours in the graph are likely. With probabilities P [n, M] and a normalised
graph G [M, M], where top-beam keeps the `beam` largest entries of each row:

    mode "code" (the authors' code)    P / 2 + top-beam(P G) / 2
    mode "paper" (the paper)           top-beam(P G^T)

This file has all of GAME's arithmetic on the CPU; `device/game.py` has it for GPUs. `Game` reranks finished
predictions, of any method, by these two formulas (`_rerank_row`). For labels, the paper spreads classifiers'
probabilities within a point's shortlist, before it multiplies them by the probabilities of clusters; that is
`spread_in_shortlist`, which `predictors/beam.py` calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.kernels.arrays import Doubles, Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, arrays_of
from xcbench.kernels.hash_table import add, collect, slot_of, table_size
from xcbench.kernels.selection import label_in, largest_first, score_in, write_best
from xcbench.shortlist.blocks import empty_topk, topk_in_blocks
from xcbench.shortlist.contract import Arrays

GameMode: TypeAlias = Literal["paper", "code", "off"]
"""Which form of GAME: the paper's, that of the authors' code, or none."""


@dataclass(frozen=True)
class GameConfig:
    """The settings of GAME."""

    mode: GameMode = "code"
    """Its form: the authors' code's, the paper's, or none."""
    power: float = 1.0
    """Probabilities are raised to this power before they are spread, and the result to its inverse; the paper has 1."""

    def __post_init__(self) -> None:
        if not 0 < self.power <= 1:
            raise ValueError(f"GAME's power is greater than 0 and at most 1, got {self.power}")


def game(
    P: TopK | sp.csr_array,
    graph: sp.csr_array,
    beam: int,
    mode: GameMode = "code",
    power: float = 1.0,
) -> TopK:
    """Rerank predictions by GAME.

    Parameters
    ----------
    P
        Probabilities of labels per point; see `Game.__call__`.
    graph, beam, mode, power
        See `Game`.
    """
    return Game(graph, beam, mode, power)(P)


@dataclass(frozen=True)
class Game:
    """Reranks probabilities P along a graph G.

    With a power t below 1, sums along the graph become power means: P^t is spread, and the result raised to 1/t. It is
    for probabilities that fall steeply from label to label. Otherwise neighbours of the first label would outrank the
    second label.

    Parameters
    ----------
    graph
        [M, M] the normalised graph G of M labels (or clusters).
    beam
        How many of the spread probabilities are kept per point.
    mode
        "code": P / 2 + top-beam(P G) / 2, so that up to `beam` new labels join those of P. "paper": top-beam(P G^T).
        "off": P as it is.
    power
        t, greater than 0 and at most 1. The paper has 1.
    """

    graph: sp.csr_array
    beam: int
    mode: GameMode = "code"
    power: float = 1.0

    def __post_init__(self) -> None:
        if self.mode not in ("paper", "code", "off"):
            raise InputError(f"GAME's mode is paper, code or off, got {self.mode!r}")
        if self.graph.shape[0] != self.graph.shape[1] or self.beam < 1:
            raise InputError(f"GAME needs a square graph and a beam, got {self.graph.shape} and {self.beam}")
        if not 0 < self.power <= 1:
            raise InputError(f"GAME's power is greater than 0 and at most 1, got {self.power}")

    def __call__(self, P: TopK | sp.csr_array) -> TopK:
        """Rerank the predictions of many points, on all threads.

        Parameters
        ----------
        P
            Probabilities per point, as a `TopK` or a sparse matrix [n, M]. All of them are used: to spread only the
            first `beam` ones, pass `P.cut(beam)`.

        Returns
        -------
        TopK
            Best first, with as many columns as the longest row can need.
        """
        if self.mode == "off":
            return P if isinstance(P, TopK) else TopK.from_csr(P)

        rows = self._raised(P)
        largest_label = rows.indices.max(initial=-1)
        if largest_label >= self.graph.shape[0]:
            raise InputError(f"a graph of {self.graph.shape[0]} labels cannot re-rank label {largest_label}")

        row_sizes = np.diff(rows.indptr)
        width = self.width(int(row_sizes.max(initial=0)))

        def rerank(block: slice) -> TopK:
            indptr = rows.indptr[block.start : block.stop + 1]
            return self._rerank(rows._replace(indptr=indptr), width)

        return topk_in_blocks(len(row_sizes), width, rerank)

    def rerank_block(self, P: TopK) -> TopK:
        """Rerank one block of points, on the calling thread."""
        if self.mode == "off":
            return P
        return self._rerank(self._raised(P), self.width(P.k))

    def width(self, k: int) -> int:
        """Return how many columns the result has for predictions with k columns."""
        if self.mode == "paper":
            return self.beam
        if self.mode == "code":
            return k + self.beam
        return k

    @cached_property
    def graph_arrays(self) -> CsrArrays:
        """G, for compiled loops."""
        return arrays_of(self.graph)

    @cached_property
    def multiplier(self) -> CsrArrays:
        """The matrix by which P is multiplied: G or its transpose."""
        if self.mode == "code":
            return self.graph_arrays
        return arrays_of(self.graph.T.tocsr())

    def _raised(self, P: TopK | sp.csr_array) -> CsrArrays:
        """P^power, for compiled loops. Places without a label (-1) stay; their values are not read."""
        rows = _arrays_of_predictions(P)
        if self.power == 1:
            return rows
        nonnegative = np.maximum(rows.data, 0)  # unused places of a TopK have the score -inf
        return rows._replace(data=nonnegative ** np.float32(self.power))

    def _rerank(self, P: CsrArrays, width: int) -> TopK:
        """Rerank rows that are raised to the power already."""
        result = empty_topk(len(P.indptr) - 1, width)
        kept_share = 0.5 if self.mode == "code" else 0.0
        _rerank_rows(
            P,
            self.multiplier,
            self.beam,
            np.float32(kept_share),
            result.indices,
            result.scores,
        )
        if self.power != 1:
            inverse = np.float32(1 / self.power)
            np.power(result.scores, inverse, out=result.scores, where=result.indices >= 0)
        return result


def _arrays_of_predictions(P: TopK | sp.csr_array) -> CsrArrays:
    if not isinstance(P, TopK):
        return arrays_of(sp.csr_array(P))
    indptr = np.arange(len(P) + 1, dtype=np.int64) * P.k
    return CsrArrays(indptr, P.indices.ravel(), P.scores.ravel())


def game_to_parts(game: Game | None) -> tuple[dict[str, Any] | None, Arrays]:
    """Return the settings and the arrays to save. `game_from_parts` takes them back."""
    if game is None:
        return None, {}
    settings = {"beam": game.beam, "mode": game.mode, "power": game.power}
    arrays = {f"graph.{name}": array for name, array in game.graph_arrays._asdict().items()}
    return settings, arrays


def game_from_parts(settings: dict[str, Any] | None, arrays: Arrays) -> Game | None:
    """Return what `game_to_parts` was given."""
    if settings is None:
        return None
    indptr = arrays["graph.indptr"]
    count = len(indptr) - 1
    graph = sp.csr_array(
        (arrays["graph.data"], arrays["graph.indices"], indptr),
        shape=(count, count),
    )
    return Game(graph, **settings)


# The compiled loops. A hash table from labels to sums is two arrays, see `kernels/hash_table.py`.


@njit(cache=True, nogil=True)
def _rerank_rows(
    P: CsrArrays,
    multiplier: CsrArrays,
    beam: int,
    kept_share: np.float32,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    """Write kept_share * P + (1 - kept_share) * top-beam(P G), where G is the multiplier."""
    max_neighbours = _max_neighbours(P.indptr, P.indices, multiplier.indptr)
    size = table_size(max(max_neighbours, out_labels.shape[1]))
    table_labels = np.empty(size, np.int32)
    table_sums = np.empty(size, np.float32)
    keys = np.empty(size, np.uint64)

    indptr, labels, probabilities = P
    for i in range(len(indptr) - 1):
        row = slice(indptr[i], indptr[i + 1])
        count = _rerank_row(
            labels[row],
            probabilities[row],
            multiplier,
            beam,
            kept_share,
            table_labels,
            table_sums,
            keys,
        )
        write_best(keys, count, out_labels[i], out_scores[i])


@njit(cache=True)
def _rerank_row(
    labels: Ints,
    probabilities: Floats,
    multiplier: CsrArrays,
    beam: int,
    kept_share: np.float32,
    table_labels: Ints,
    table_sums: Floats,
    keys: npt.NDArray[np.uint64],
) -> int:
    """Write the new scores of one point to `keys`, with their labels, and return how many they are."""
    indptr, neighbours, weights = multiplier

    # P G
    table_labels[:] = -1
    for e in range(len(labels)):
        label = labels[e]
        probability = probabilities[e]
        if label >= 0 and probability > 0:
            for g in range(indptr[label], indptr[label + 1]):
                add(table_labels, table_sums, neighbours[g], probability * weights[g])
    count = collect(table_labels, table_sums, keys)

    # top-beam
    if count > beam:
        largest_first(keys, count, beam)
        count = beam
    if kept_share == 0:
        return count

    # the mean with P itself
    table_labels[:] = -1
    for e in range(count):
        label = label_in(keys[e])
        score = (1 - kept_share) * score_in(keys[e])
        add(table_labels, table_sums, label, score)
    for e in range(len(labels)):
        if labels[e] >= 0:
            add(table_labels, table_sums, labels[e], kept_share * probabilities[e])
    return collect(table_labels, table_sums, keys)


@njit(cache=True)
def _max_neighbours(indptr: Longs, labels: Ints, graph_indptr: Longs) -> int:
    """Return how many neighbours the labels of one row have together at most, counted with repetition.

    The result is never more than the number of labels in the graph.
    """
    longest = 0
    for i in range(len(indptr) - 1):
        count = 0
        for e in range(indptr[i], indptr[i + 1]):
            if labels[e] >= 0:
                count += graph_indptr[labels[e] + 1] - graph_indptr[labels[e]]
        longest = max(longest, count)
    return min(longest, len(graph_indptr) - 1)


@njit(cache=True)
def spread_in_shortlist(
    labels: Ints,
    probabilities: Floats,
    graph: CsrArrays,
    power: np.float32,
    table_labels: Ints,
    table_values: Floats,
    out: Doubles,
) -> None:
    """Spread the probabilities of one point's shortlist among the shortlist's labels, as in the paper.

    out_l = (sum over shortlisted j of G_lj p_j^power)^(1 / power).

    The table's two arrays are scratch memory of at least `table_size(len(labels))` entries. `out` has room for a value
    per label. It is float64, so that the result is rounded only once, after it is multiplied by the cluster's
    probability.
    """
    indptr, neighbours, weights = graph

    table_labels[:] = -1
    for e in range(len(labels)):
        add(table_labels, table_values, labels[e], probabilities[e] ** power)

    for e in range(len(labels)):
        label = labels[e]
        total = np.float32(0)
        for g in range(indptr[label], indptr[label + 1]):
            slot = slot_of(table_labels, neighbours[g])
            if table_labels[slot] != -1:
                total += weights[g] * table_values[slot]
        out[e] = total ** (1 / power)
