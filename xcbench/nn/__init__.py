"""torch parts that methods are made of: token and label tables, embedding blocks, attention, losses, Adam.

Imports nothing of ours but `errors`, `files` and `threads`. Every operation has two forms that compute the same: our
own kernels where the tensors are float32 in the memory of the CPU, plain torch elsewhere.
"""

from xcbench.nn.adam import Adam
from xcbench.nn.attention import ComponentAttention
from xcbench.nn.blocks import DocumentEncoder, GatedBlock, GatedSum, GraphConvolution, ResidualBlock, Scale
from xcbench.nn.dropout import relu_dropout
from xcbench.nn.embeddings import LabelBank, TokenEmbeddings, weighted_sums
from xcbench.nn.label_text import FreeLabels, LabelText, NeighbourText
from xcbench.nn.losses import Reduction, Shortlists, bce_over_all, bce_over_shortlists
from xcbench.nn.residual import Factored
from xcbench.nn.spectral import SpectralWeight

__all__ = [
    "Adam",
    "ComponentAttention",
    "DocumentEncoder",
    "Factored",
    "FreeLabels",
    "GatedBlock",
    "GatedSum",
    "GraphConvolution",
    "LabelBank",
    "LabelText",
    "NeighbourText",
    "Reduction",
    "ResidualBlock",
    "Scale",
    "Shortlists",
    "SpectralWeight",
    "TokenEmbeddings",
    "bce_over_all",
    "bce_over_shortlists",
    "relu_dropout",
    "weighted_sums",
]
