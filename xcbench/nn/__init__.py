"""Building blocks of methods in torch: token and label tables, embedding blocks, attention, losses, and Adam.

Every operation has two forms that compute the same: compiled kernels for float32 tensors in CPU memory, and plain torch
for all others.

May import `kernels` and the ground. `shortlist`, `train`, `runner`, `report` and methods may import it.
"""

from xcbench.nn.adam import Adam
from xcbench.nn.attention import ComponentAttention
from xcbench.nn.blocks import DocumentEncoder, GatedBlock, GatedSum, GraphConvolution, ResidualBlock, Scale
from xcbench.nn.components import ComponentClassifiers
from xcbench.nn.dropout import relu_dropout
from xcbench.nn.embeddings import LabelBank, TokenEmbeddings, weighted_sums
from xcbench.nn.inception import InceptionEncoder, PointNorm, inception_size
from xcbench.nn.label_text import FreeLabels, LabelText, NeighbourText
from xcbench.nn.losses import Reduction, Shortlists, bce_over_all, bce_over_shortlists
from xcbench.nn.pair_scores import pair_scores
from xcbench.nn.residual import Factored
from xcbench.nn.spectral import SpectralWeight
from xcbench.nn.transformer import TransformerEncoder

__all__ = [
    "Adam",
    "ComponentAttention",
    "ComponentClassifiers",
    "DocumentEncoder",
    "Factored",
    "FreeLabels",
    "GatedBlock",
    "GatedSum",
    "GraphConvolution",
    "InceptionEncoder",
    "LabelBank",
    "LabelText",
    "NeighbourText",
    "PointNorm",
    "Reduction",
    "ResidualBlock",
    "Scale",
    "Shortlists",
    "SpectralWeight",
    "TokenEmbeddings",
    "TransformerEncoder",
    "bce_over_all",
    "bce_over_shortlists",
    "inception_size",
    "pair_scores",
    "relu_dropout",
    "weighted_sums",
]
