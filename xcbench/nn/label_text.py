"""The label side of classifiers: the text of labels, of their neighbours in a graph, and free vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from xcbench.kernels.parallel import Longs
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.nn.embeddings import LabelBank, TokenEmbeddings, weighted_sums


class LabelText(nn.Module):
    """E z_l for the labels asked for: summed up while token embeddings train, looked up once they are fixed."""

    table: Tensor | None

    def __init__(self, E: TokenEmbeddings, Z: sp.csr_array, frozen: bool = False) -> None:
        super().__init__()
        self.Z = SparseRows.of(Z)
        self.E = None if frozen else E
        self.register_buffer("table", E.embed(self.Z) if frozen else None, persistent=False)

    def forward(self, labels: Longs | None = None) -> Tensor:
        if self.E is not None:
            return self.E(self.Z if labels is None else self.Z.take(labels))  # type: ignore[no-any-return]
        assert self.table is not None
        return self.table if labels is None else self.table[torch.from_numpy(labels)]


class NeighbourText(nn.Module):
    """(G^k E z)_l for the orders k asked for: the text of a label (0), of its neighbours in a graph (1), and so on."""

    def __init__(
        self, E: TokenEmbeddings, Z: sp.csr_array, G: sp.csr_array, orders: Sequence[int], frozen: bool = False
    ) -> None:
        super().__init__()
        self.Z, self.G, self.orders = SparseRows.of(Z), SparseRows.of(G), orders
        self.E = None if frozen else E
        for k, table in enumerate(self._of_all(E.embed(self.Z)) if frozen else ()):
            self.register_buffer(f"table{k}", table, persistent=False)

    def forward(self, labels: Longs | None = None) -> list[Tensor]:
        if self.E is None:
            tables = self.buffers(recurse=False)
            return [table if labels is None else table[torch.from_numpy(labels)] for table in tables]
        return self._of_all(self.E(self.Z)) if labels is None else [self._of_some(labels, k) for k in self.orders]

    def _of_all(self, r: Tensor) -> list[Tensor]:
        powers = [r]
        while len(powers) <= max(self.orders):
            powers.append(weighted_sums(self.G, powers[-1]))
        return [powers[k] for k in self.orders]

    def _of_some(self, labels: Longs, order: int) -> Tensor:
        """Only what these labels need: the text of their neighbours, and of theirs."""
        assert self.E is not None
        if order == 0:
            return self.E(self.Z.take(labels))  # type: ignore[no-any-return]
        edges = self.G.take(labels)
        place = np.zeros(edges.width, np.int32)
        place[edges.columns] = 1
        near = np.flatnonzero(place)
        place[near] = np.arange(len(near))
        among = SparseRows(edges.starts, place[edges.columns], edges.values, len(near))
        return weighted_sums(among, self._of_some(near, order - 1))


class FreeLabels(nn.Module):
    """A free vector and a bias a label, as in a linear layer: both uniform in +-1/sqrt(D) unless a start is given."""

    def __init__(self, labels: int, dim: int, start: Tensor | None = None, bias: bool = True) -> None:
        super().__init__()
        bound = dim**-0.5
        drawn = torch.empty(labels, dim + 1).uniform_(-bound, bound) if start is None else None
        self.weight = LabelBank(labels, dim, start if drawn is None else drawn[:, 1:])
        self.bias = LabelBank(labels, start=None if drawn is None else drawn[:, 0]) if bias else None

    def forward(self, labels: Longs | None = None) -> tuple[Tensor, Tensor | None]:
        return self.weight(labels), None if self.bias is None else self.bias(labels)
