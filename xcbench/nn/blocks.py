"""The embedding blocks of DECAF and ECLARE, the layers of its graph ablations, and DECAF's sum of two classifiers.

All maps start as the identity, so a new block starts close to the embeddings that it is given. `(.)` is the
element-wise product, and drop(...) is dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from xcbench.kernels.csr import SparseRows
from xcbench.nn.dropout import first_label, first_point, relu_dropout
from xcbench.nn.embeddings import TokenEmbeddings
from xcbench.nn.residual import Factored, relu_residual
from xcbench.nn.spectral import SpectralWeight


class GatedBlock(nn.Module):
    """DECAF's embedding block: sigmoid(a) (.) [R drop(ReLU(r0)) + b] + sigmoid(c) (.) r0.

    R is divided by its largest singular value; a, b and c have one number per dimension.

    Parameters
    ----------
    dim
        D, the length of a vector.
    dropout
        The dropout rate.
    """

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.R = SpectralWeight(torch.eye(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.a = nn.Parameter(torch.zeros(dim))
        self.c = nn.Parameter(torch.zeros(dim))
        self.dropout = dropout

    def forward(self, r0: Tensor, first_row: int | None = None) -> Tensor:
        """Return the block's output.

        `first_row` is the number of r0's first row within the dropout mask; by default that of the first label.
        """
        return self.factored(r0, first_row).full()

    def factored(
        self,
        r0: Tensor,
        first_row: int | None = None,
        gate: Tensor | None = None,
        plus: tuple[Tensor, Tensor] | tuple[()] = (),
    ) -> Factored:
        """Return gate (.) block(r0), plus g (.) z where `plus` is (g, z), without multiplying R out."""
        W, b, skip = self.folded(gate)
        if first_row is None:
            first_row = first_label()
        return relu_residual(r0, W, b, skip, self.dropout, self.training, first_row, plus)

    def folded(self, gate: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return W, b and skip such that (gate (.)) block(r0) = W drop(ReLU(r0)) + b + skip (.) r0."""
        a = torch.sigmoid(self.a)
        c = torch.sigmoid(self.c)
        if gate is not None:
            a = gate * a
            c = gate * c
        return self.R(a), a * self.bias, c


class ResidualBlock(nn.Module):
    """ECLARE's embedding block: r0 + lambda (R drop(ReLU(r0)) + b).

    R is divided by its largest singular value, and lambda is a scalar.

    Parameters
    ----------
    dim
        D, the length of a vector.
    dropout
        The dropout rate.
    """

    ones: Tensor

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.R = SpectralWeight(torch.eye(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.lam = nn.Parameter(torch.ones(()))
        self.register_buffer("ones", torch.ones(dim), persistent=False)
        self.dropout = dropout

    def forward(self, r0: Tensor, first_row: int | None = None) -> Tensor:
        """Return the block's output.

        `first_row` is the number of r0's first row within the dropout mask; by default that of the first label.
        """
        W, b, skip = self.folded()
        if first_row is None:
            first_row = first_label()
        return relu_residual(r0, W, b, skip, self.dropout, self.training, first_row).full()

    def folded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return W, b and skip such that block(r0) = W drop(ReLU(r0)) + b + skip (.) r0."""
        gate = self.lam.expand(len(self.bias))
        return self.R(gate), self.lam * self.bias, self.ones


class GraphConvolution(nn.Module):
    """Kipf and Welling's layer, ReLU(W r + b), on vectors r that are already summed along the graph."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.eye(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, r: Tensor) -> Tensor:
        return torch.relu(linear(r, self.W, self.bias))


class Scale(nn.Module):
    """LightGCN's layer: s (.) r, one factor per dimension and no non-linearity."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(dim))

    def forward(self, r: Tensor) -> Tensor:
        return r * self.factor


class DocumentEncoder(nn.Module):
    """x_hat = drop(ReLU(E_D(E x))), with an embedding block E_D.

    Parameters
    ----------
    block
        E_D.
    E
        Token embeddings, for documents that are given as tokens. Without it, documents are given as vectors E x.
    """

    def __init__(self, block: GatedBlock | ResidualBlock, E: TokenEmbeddings | None = None) -> None:
        super().__init__()
        self.E = E
        self.block = block

    def forward(self, X: SparseRows | Tensor) -> Tensor:
        r0 = embedded(X, self.E)
        r = self.block(r0, first_point())
        return relu_dropout(r, self.block.dropout, self.training, first_point())


def embedded(X: SparseRows | Tensor, E: TokenEmbeddings | None) -> Tensor:
    """Return E x for documents given as tokens, and documents given as vectors as they are."""
    if isinstance(X, Tensor):
        return X
    if E is None:
        raise ValueError("an encoder without token embeddings was given tokens")
    return E(X)  # type: ignore[no-any-return]


class GatedSum(nn.Module):
    """DECAF's combination: w = sigmoid(alpha) (.) z2 + sigmoid(beta) (.) E_L(r0), with gates shared by all labels."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(dim))
        self.beta = nn.Parameter(torch.zeros(dim))

    def forward(self, z2: Tensor, E_L: GatedBlock, r0: Tensor) -> Factored:
        """Return the classifiers in factored form. E_L is passed unapplied, so that the loss decides how to apply it.

        Parameters
        ----------
        z2
            Free vectors, [labels, D].
        E_L
            The embedding block of label text.
        r0
            The embedded text of the labels, [labels, D].
        """
        beta = torch.sigmoid(self.beta)
        alpha = torch.sigmoid(self.alpha)
        return E_L.factored(r0, gate=beta, plus=(alpha, z2))
