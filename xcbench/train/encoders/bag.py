"""A bag of tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from xcbench.data import Split
from xcbench.data.word_vectors import learn_vectors
from xcbench.kernels.arrays import Floats
from xcbench.nn import DocumentEncoder, GatedBlock, TokenEmbeddings
from xcbench.shortlist.predictors import FixedEncoder, as_array, folded
from xcbench.train.encoders.config import EncoderConfig


class Bag:
    """x_hat = drop(ReLU(block(sum_t x_t e_t))), with DECAF's embedding block."""

    def __init__(self, config: EncoderConfig, train: Split) -> None:
        self.config = config
        self.train = train
        self.dim = config.dim

    def inputs(self) -> sp.csr_array:
        return self.train.X

    def start(self, seed: int) -> DocumentEncoder:
        c = self.config
        X = self.train.X
        E = TokenEmbeddings(int(X.shape[1]), c.dim, lazy=True)
        if c.start == "words":
            # As long as vectors that start at random.
            vectors = math.sqrt(2) * learn_vectors(X, c.dim, seed)
            with torch.no_grad():
                E.weight.copy_(torch.from_numpy(vectors))
        return DocumentEncoder(GatedBlock(c.dim, c.dropout), E)

    def state(self, encoder: nn.Module) -> dict[str, Tensor]:
        return {name: tensor.detach().cpu() for name, tensor in encoder.state_dict().items()}

    def restore(self, state: Mapping[str, Tensor]) -> DocumentEncoder:
        vocabulary, dim = state["E.weight"].shape
        E = TokenEmbeddings(vocabulary, dim, lazy=True)
        encoder = DocumentEncoder(GatedBlock(dim, self.config.dropout), E)
        encoder.load_state_dict(dict(state))
        return encoder

    def fixed(self, encoder: nn.Module) -> FixedEncoder:
        assert isinstance(encoder, DocumentEncoder)
        assert encoder.E is not None
        return FixedEncoder(**folded(encoder.block), E=as_array(encoder.E.weight))

    def vectors(self, encoder: nn.Module, split: Split) -> Floats:
        return self.fixed(encoder)(split.X)
