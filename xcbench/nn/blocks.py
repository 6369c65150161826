"""The embedding blocks of DECAF, ECLARE and Astec, and what DECAF does with the two halves of a classifier.

All maps start as the identity, so that a new block begins with the embeddings it is given.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from xcbench.kernels.sparse_rows import SparseRows
from xcbench.nn.dropout import first_point, relu_dropout
from xcbench.nn.embeddings import TokenEmbeddings
from xcbench.nn.residual import Factored, relu_residual
from xcbench.nn.spectral import SpectralWeight


class GatedBlock(nn.Module):
    """DECAF's embedding block: sigmoid(a) (.) [R drop(ReLU(r0)) + b] + sigmoid(c) (.) r0, with R spectrally normed."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.R = SpectralWeight(torch.eye(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.a = nn.Parameter(torch.zeros(dim))
        self.c = nn.Parameter(torch.zeros(dim))
        self.dropout = dropout

    def forward(self, r0: Tensor, first_row: int = 0) -> Tensor:
        return self.factored(r0, first_row).full()

    def factored(
        self, r0: Tensor, first_row: int = 0, gate: Tensor | None = None, plus: tuple[Tensor, Tensor] | tuple[()] = ()
    ) -> Factored:
        """gate (.) block(r0), and + g (.) z where `plus` is (g, z), without multiplying R out."""
        return relu_residual(r0, *self.folded(gate), self.dropout, self.training, first_row, plus)

    def folded(self, gate: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """W, b and skip with (gate (.)) block(r0) = W drop(ReLU(r0)) + b + skip (.) r0."""
        a, c = torch.sigmoid(self.a), torch.sigmoid(self.c)
        if gate is not None:
            a, c = gate * a, gate * c
        return self.R(a), a * self.bias, c


class ResidualBlock(nn.Module):
    """ECLARE's embedding block: r0 + lambda (R drop(ReLU(r0)) + b), with R spectrally normed and a scalar lambda."""

    ones: Tensor

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.R = SpectralWeight(torch.eye(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.lam = nn.Parameter(torch.ones(()))
        self.register_buffer("ones", torch.ones(dim), persistent=False)
        self.dropout = dropout

    def forward(self, r0: Tensor, first_row: int = 0) -> Tensor:
        return relu_residual(r0, *self.folded(), self.dropout, self.training, first_row).full()

    def folded(self) -> tuple[Tensor, Tensor, Tensor]:
        """W, b and skip with block(r0) = W drop(ReLU(r0)) + b + skip (.) r0."""
        return self.R(self.lam.expand(len(self.bias))), self.lam * self.bias, self.ones


class GraphConvolution(nn.Module):
    """A layer of Kipf and Welling's network on what a graph has summed up: ReLU(W r + b)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.eye(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, r: Tensor) -> Tensor:
        return torch.relu(linear(r, self.W, self.bias))


class Scale(nn.Module):
    """LightGCN's place for a layer: a factor a dimension, and nothing that is not linear."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(dim))

    def forward(self, r: Tensor) -> Tensor:
        return r * self.factor


class DocumentEncoder(nn.Module):
    """x_hat = drop(ReLU(E_D(E x))), of documents as tokens, or of vectors E x where E is fixed and not passed."""

    def __init__(self, block: GatedBlock | ResidualBlock, E: TokenEmbeddings | None = None) -> None:
        super().__init__()
        self.E, self.block = E, block

    def forward(self, X: SparseRows | Tensor) -> Tensor:
        r = self.block(embedded(X, self.E), first_point())
        return relu_dropout(r, self.block.dropout, self.training, first_point())


def embedded(X: SparseRows | Tensor, E: TokenEmbeddings | None) -> Tensor:
    """E x, or x itself where it is a vector already."""
    if isinstance(X, Tensor):
        return X
    if E is None:
        raise ValueError("an encoder without token embeddings was given tokens")
    return E(X)  # type: ignore[no-any-return]


class GatedSum(nn.Module):
    """DECAF's combination: w = sigmoid(alpha) (.) z2 + sigmoid(beta) (.) E_L(r0), gates shared by all labels."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(dim))
        self.beta = nn.Parameter(torch.zeros(dim))

    def forward(self, z2: Tensor, E_L: GatedBlock, r0: Tensor) -> Factored:
        """The block is passed unapplied: its map is multiplied out only where that pays."""
        return E_L.factored(r0, gate=torch.sigmoid(self.beta), plus=(torch.sigmoid(self.alpha), z2))
