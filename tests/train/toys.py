"""Small problems of the shape of DECAF's modules, for the tests of the loop."""

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from xcbench.kernels.csr import SparseRows
from xcbench.nn import DocumentEncoder, GatedBlock, GatedSum, LabelBank, LabelText, TokenEmbeddings
from xcbench.train import Candidates, Points, RankAll, RankShortlist


class RefinedText(nn.Module):
    """DECAF's label side in Modules II and IV: gated sum of a free vector and encoded label text, and a bias."""

    def __init__(self, E, Z, dim, dropout, frozen=False):
        super().__init__()
        self.text = LabelText(E, Z, frozen)
        self.E_L = GatedBlock(dim, dropout)
        self.C_L = GatedSum(dim)
        self.z2 = LabelBank(Z.shape[0], dim, E.embed(SparseRows.of(Z)))
        self.bias = LabelBank(Z.shape[0])

    def forward(self, labels=None):
        return self.C_L(self.z2(labels), self.E_L, self.text(labels)), self.bias(labels)


def random_matrix(rows, columns, density, seed):
    rng = np.random.default_rng(seed)
    return sp.random_array((rows, columns), density=density, format="csr", dtype=np.float32, rng=rng)


def toy(points=60, labels=30, tokens=40, dim=8, dropout=0.2, shortlists=True, lazy=False, seed=0):
    """(task, points): a fresh module and data to train it on."""
    X = random_matrix(points, tokens, 0.2, seed)
    Z = random_matrix(labels, tokens, 0.2, seed + 1)
    Y = random_matrix(points, labels, 0.1, seed + 2)
    Y.data[:] = 1
    torch.manual_seed(seed)
    E = TokenEmbeddings(tokens, dim, lazy)
    sides = DocumentEncoder(GatedBlock(dim, dropout), E), RefinedText(E, Z, dim, dropout)
    if not shortlists:
        return RankAll(*sides), Points(X, Y)
    listed = np.random.default_rng(seed).integers(-1, labels, (points, 6)).astype(np.int32)
    return RankShortlist(*sides), Points(X, Y, Candidates.of_labels(listed, labels, with_positives=True))


def parameters(module):
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
