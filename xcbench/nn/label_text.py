"""The parts of label classifiers: the text of labels, the text of their neighbours in a graph, and free vectors.

Each module is called with label ids (None: all labels) and returns one row per label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from xcbench.kernels.arrays import Longs
from xcbench.kernels.csr import SparseRows
from xcbench.nn.device_arrays import DeviceRows, on_device, take_on_device
from xcbench.nn.embeddings import LabelBank, TokenEmbeddings, weighted_sums
from xcbench.nn.label_parts import LabelPart, LabelRange


class LabelText(LabelPart):
    """E z_l, the embedded text of labels.

    Parameters
    ----------
    E
        Token embeddings.
    Z
        The text of the labels, [labels, tokens].
    frozen
        Whether E stays fixed. Then E z_l is computed here once, and looked up afterwards.
    """

    table: Tensor | None

    def __init__(self, E: TokenEmbeddings, Z: sp.csr_array, frozen: bool = False) -> None:
        super().__init__()
        self.Z = SparseRows.of(Z)
        self._Z_of_all = self.Z
        self.E = None if frozen else E
        table = E.embed(self.Z) if frozen else None
        self.register_buffer("table", table, persistent=False)

    def forward(self, labels: Longs | None = None) -> Tensor:
        rows = self.rows_of(labels)
        if self.E is None:
            assert self.table is not None
            return _rows(self.table, rows)

        if rows is None:
            return self.E(self.Z)  # type: ignore[no-any-return]
        return self.E.of_rows(self.Z, rows)

    @property
    def row_count(self) -> int:
        return len(self.Z)

    def label_tables(self) -> list[Tensor]:
        if self.table is None:
            return []
        return [self.table]

    def keep(self, labels: LabelRange | None) -> None:
        super().keep(labels)
        self.Z = self._Z_of_all
        if labels is not None:
            self.Z = self.Z.take(labels.labels)


class NeighbourText(LabelPart):
    """(G^k E z)_l for several orders k: the text of a label (k = 0), of its neighbours in the graph (k = 1), and so on.

    Parameters
    ----------
    E
        Token embeddings.
    Z
        The text of the labels, [labels, tokens].
    G
        The label graph, [labels, labels], with normalised rows.
    orders
        The orders k.
    frozen
        Whether E stays fixed. Then all vectors are computed here once, and looked up afterwards.
    """

    def __init__(
        self,
        E: TokenEmbeddings,
        Z: sp.csr_array,
        G: sp.csr_array,
        orders: Sequence[int],
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.Z = SparseRows.of(Z)
        self.G = SparseRows.of(G)
        self.orders = orders
        self.E = None if frozen else E
        self._around_kept: _Surroundings | None = None
        if frozen:
            for k, table in enumerate(self._of_all_labels(E.embed(self.Z))):
                self.register_buffer(f"table{k}", table, persistent=False)

    def forward(self, labels: Longs | None = None) -> list[Tensor]:
        """Return one table [labels, D] per order."""
        if self.E is None:
            rows = self.rows_of(labels)
            return [_rows(table, rows) for table in self.label_tables()]
        if labels is None:
            return self._of_all_labels(self.E(self.Z))
        return self._of_some_labels(labels)

    def _of_all_labels(self, Ez: Tensor) -> list[Tensor]:
        powers = [Ez]
        while len(powers) <= max(self.orders):
            powers.append(weighted_sums(self.G, powers[-1]))
        return [powers[order] for order in self.orders]

    def _of_some_labels(self, labels: Longs) -> list[Tensor]:
        """Return (G^k E z)_l for these labels, embedding only the text of labels within k steps of them."""
        assert self.E is not None
        labels_at, edges_from = self._surroundings(labels, self.E.weight.device)
        results = []
        for order in self.orders:
            sums = self.E.of_rows(self.Z, labels_at[order])
            for edges in reversed(edges_from[:order]):
                sums = weighted_sums(edges, sums)
            results.append(sums)
        return results

    def _surroundings(self, labels: Longs, device: torch.device) -> _Surroundings:
        """Return the labels at each distance from the labels given, and the edges from each of these to the next."""
        are_all_kept = self.kept is not None and labels is self.kept.labels
        if are_all_kept and self._around_kept is not None:
            return self._around_kept

        labels_at = [labels]
        edges_from: list[SparseRows | DeviceRows] = []
        while len(edges_from) < max(self.orders):
            neighbours, edges = _step_along(self.G, labels_at[-1], device)
            labels_at.append(neighbours)
            edges_from.append(edges)

        if are_all_kept:
            self._around_kept = (labels_at, edges_from)
        return labels_at, edges_from

    @property
    def row_count(self) -> int:
        return len(self.Z)

    def label_tables(self) -> list[Tensor]:
        return list(self.buffers(recurse=False))

    def keep(self, labels: LabelRange | None) -> None:
        super().keep(labels)
        self._around_kept = None


_Surroundings: TypeAlias = tuple[list[Longs], list[SparseRows | DeviceRows]]


def _step_along(G: SparseRows, labels: Longs, device: torch.device) -> tuple[Longs, SparseRows | DeviceRows]:
    """Return the neighbours of some labels, and the edges to them, with neighbours numbered from 0 on."""
    edges = G.take(labels)
    is_neighbour = np.zeros(edges.width, np.int32)
    is_neighbour[edges.indices] = 1
    neighbours = np.flatnonzero(is_neighbour)

    if device.type == "cpu":
        position = is_neighbour  # reuses the memory
        position[neighbours] = np.arange(len(neighbours))
        return neighbours, SparseRows(edges.indptr, position[edges.indices], edges.data, len(neighbours))

    # The graph stays on the device, and only the neighbours go over.
    taken = take_on_device(G, labels, device)
    positions = torch.empty(G.width, dtype=torch.int64, device=device)
    positions[on_device(neighbours, device)] = torch.arange(len(neighbours), device=device)
    return neighbours, taken._replace(indices=positions[taken.indices])


class FreeLabels(nn.Module):
    """A plain linear classifier: one free vector and one bias per label.

    Parameters
    ----------
    labels
        The number of labels.
    dim
        D, the length of a vector.
    start
        The initial vectors, [labels, D]; biases then start at 0. By default both are uniform in +-1/sqrt(D).
    bias
        Whether there are biases.
    """

    def __init__(self, labels: int, dim: int, start: Tensor | None = None, bias: bool = True) -> None:
        super().__init__()
        start_bias = None
        if start is None:
            bound = dim**-0.5
            drawn = torch.empty(labels, dim + 1).uniform_(-bound, bound)
            start_bias = drawn[:, 0]
            start = drawn[:, 1:]
        self.weight = LabelBank(labels, dim, start)
        self.bias = LabelBank(labels, start=start_bias) if bias else None

    def forward(self, labels: Longs | None = None) -> tuple[Tensor, Tensor | None]:
        """Return vectors and biases of the labels given; None means all labels."""
        weight = self.weight(labels)
        if self.bias is None:
            return weight, None
        return weight, self.bias(labels)


def _rows(table: Tensor, labels: Longs | None) -> Tensor:
    if labels is None:
        return table
    return table[on_device(labels, table.device)]
