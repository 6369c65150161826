"""GAME, ECLARE's re-ranking: predictions spread along a label graph (or a cluster graph).

It needs nothing but probabilities and a graph, so it can stand behind any method's predictions.
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
from xcbench.kernels.csr import Rows, rows_of
from xcbench.kernels.hash_table import add, collect, table_size
from xcbench.kernels.selection import label_in, largest_first, score_in, write_best
from xcbench.shortlist.blocks import topk_in_blocks

GameMode: TypeAlias = Literal["paper", "code", "off"]


def game(P: TopK | sp.csr_array, graph: sp.csr_array, beam: int, mode: GameMode = "code", power: float = 1.0) -> TopK:
    """Re-rank once; see `Game`."""
    return Game(graph, beam, mode, power)(P)


@dataclass(frozen=True)
class Game:
    """Probabilities P spread along a normalised graph G, of which the `beam` largest are kept in every row.

    paper: top-beam(P Gᵀ). code (the authors' own): P / 2 + top-beam(P G) / 2, so that up to `beam` new labels join
    those of P. off: P as it is. P is taken whole; cut it to the beam beforehand where it is longer.

    With a `power` t other than 1 the sums are power means: P^t is spread, and the result raised to 1/t. Of scores that
    fall steeply from place to place a plain sum would have the first label's neighbours outrank all that comes second.
    """

    graph: sp.csr_array  # [M, M]
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
        """Best first; as many columns as the longest row may need."""
        if self.mode == "off":
            return P if isinstance(P, TopK) else TopK.from_csr(P)
        indptr, labels, probabilities = self._raised(P)
        if labels.max(initial=-1) >= self.graph.shape[0]:
            raise InputError(f"a graph of {self.graph.shape[0]} labels cannot re-rank label {labels.max()}")
        width = self.width(int(np.diff(indptr).max(initial=0)))
        return topk_in_blocks(
            len(indptr) - 1,
            width,
            lambda block: self.spread(indptr[block.start : block.stop + 1], labels, probabilities, width),
        )

    def width(self, k: int) -> int:
        """How many columns the result has for predictions of k columns."""
        return {"paper": self.beam, "code": k + self.beam, "off": k}[self.mode]

    def block(self, P: TopK) -> TopK:
        """One block of points, on the calling thread."""
        return P if self.mode == "off" else self.spread(*self._raised(P), self.width(P.k))

    def spread(
        self,
        indptr: npt.NDArray[np.int64],
        labels: npt.NDArray[np.int32],
        probabilities: npt.NDArray[np.float32],
        width: int,
    ) -> TopK:
        """Of probabilities that are raised to the power already."""
        rows = len(indptr) - 1
        out = TopK(np.empty((rows, width), np.int32), np.empty((rows, width), np.float32))
        keep = 0.5 if self.mode == "code" else 0.0
        _spread(indptr, labels, probabilities, *self.along, self.beam, np.float32(keep), out.indices, out.scores)
        if self.power != 1:
            np.power(out.scores, np.float32(1 / self.power), out=out.scores, where=out.indices >= 0)
        return out

    def _raised(self, P: TopK | sp.csr_array) -> Rows:
        rows = _rows_of(P)
        if self.power == 1:
            return rows
        return rows._replace(data=np.maximum(rows.data, 0) ** np.float32(self.power))  # padding is minus infinity

    @cached_property
    def rows(self) -> Rows:
        """G as kernels take it."""
        return rows_of(self.graph)

    @cached_property
    def along(self) -> Rows:
        """What rows of P are multiplied by: G, or its transpose."""
        return self.rows if self.mode == "code" else rows_of(self.graph.T.tocsr())


def game_parts(game: Game | None) -> tuple[dict[str, Any] | None, dict[str, npt.NDArray[Any]]]:
    """Settings and arrays to save; `game_from` takes them back."""
    if game is None:
        return None, {}
    graph = rows_of(game.graph)
    settings = {"beam": game.beam, "mode": game.mode, "power": game.power}
    return settings, {f"graph.{name}": part for name, part in graph._asdict().items()}


def game_from(settings: dict[str, Any] | None, arrays: dict[str, npt.NDArray[Any]]) -> Game | None:
    if settings is None:
        return None
    indptr, indices, data = (arrays[f"graph.{name}"] for name in Rows._fields)
    count = len(indptr) - 1
    return Game(sp.csr_array((data, indices, indptr), shape=(count, count)), **settings)


def _rows_of(P: TopK | sp.csr_array) -> Rows:
    if isinstance(P, TopK):
        return Rows(np.arange(len(P) + 1, dtype=np.int64) * P.k, P.indices.ravel(), P.scores.ravel())
    return rows_of(sp.csr_array(P))


@njit(cache=True)
def _longest_sum(
    indptr: npt.NDArray[np.int64], labels: npt.NDArray[np.int32], graph_indptr: npt.NDArray[np.int64]
) -> int:
    """How many neighbours, counted with repetition, a row meets at most; never more than there are labels."""
    longest = 0
    for i in range(len(indptr) - 1):
        met = 0
        for e in range(indptr[i], indptr[i + 1]):
            if labels[e] >= 0:
                met += graph_indptr[labels[e] + 1] - graph_indptr[labels[e]]
        longest = max(longest, met)
    return min(longest, len(graph_indptr) - 1)


@njit(cache=True, nogil=True)
def _spread(
    indptr: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int32],
    probabilities: npt.NDArray[np.float32],
    graph_indptr: npt.NDArray[np.int64],
    graph_indices: npt.NDArray[np.int32],
    graph_data: npt.NDArray[np.float32],
    beam: int,
    keep: np.float32,
    out_labels: npt.NDArray[np.int32],
    out_scores: npt.NDArray[np.float32],
) -> None:
    """out = keep * P + (1 - keep) * top-beam(P G), where keep = 0 leaves P's own entries out."""
    size = table_size(max(_longest_sum(indptr, labels, graph_indptr), out_labels.shape[1]))
    held, sums, keys = np.empty(size, np.int32), np.empty(size, np.float32), np.empty(size, np.uint64)
    for i in range(len(indptr) - 1):
        held[:] = -1
        for e in range(indptr[i], indptr[i + 1]):
            label, p = labels[e], probabilities[e]
            if label >= 0 and p > 0:
                for g in range(graph_indptr[label], graph_indptr[label + 1]):
                    add(held, sums, graph_indices[g], p * graph_data[g])
        count = collect(held, sums, keys)
        if count > beam:
            largest_first(keys, count, beam)
            count = beam
        if keep > 0:
            held[:] = -1
            for place in range(count):
                add(held, sums, label_in(keys[place]), (1 - keep) * score_in(keys[place]))
            for e in range(indptr[i], indptr[i + 1]):
                if labels[e] >= 0:
                    add(held, sums, labels[e], keep * probabilities[e])
            count = collect(held, sums, keys)
        write_best(keys, count, out_labels[i], out_scores[i])
