"""torch parts that methods are made of: token and label tables, embedding blocks, attention, losses, Adam.

Imports nothing of ours but `errors`, `files` and `threads`. Every operation has two forms that compute the same: our
own kernels where the tensors are float32 in the memory of the CPU, plain torch elsewhere.
"""

from xcbench.nn.adam import Adam
from xcbench.nn.attention import ComponentAttention
from xcbench.nn.blocks import (
    AstecEncoder,
    AstecResidual,
    DocumentEncoder,
    GatedBlock,
    GatedSum,
    GraphConvolution,
    ResidualBlock,
    Scale,
)
from xcbench.nn.dropout import relu_dropout
from xcbench.nn.losses import Reduction, Shortlists, bce_over_all, bce_over_shortlists
from xcbench.nn.residual import Factored
from xcbench.nn.sparse_rows import SparseRows
from xcbench.nn.spectral import SpectralWeight
from xcbench.nn.tables import LabelBank, TokenEmbeddings, weighted_sums

__all__ = [
    "Adam",
    "AstecEncoder",
    "AstecResidual",
    "ComponentAttention",
    "DocumentEncoder",
    "Factored",
    "GatedBlock",
    "GatedSum",
    "GraphConvolution",
    "LabelBank",
    "Reduction",
    "ResidualBlock",
    "Scale",
    "Shortlists",
    "SparseRows",
    "SpectralWeight",
    "TokenEmbeddings",
    "bce_over_all",
    "bce_over_shortlists",
    "relu_dropout",
    "weighted_sums",
]
