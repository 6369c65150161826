"""Encoders of documents that methods exchange: what maps the text of a point to its vector."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from xcbench.data.word_vectors import learn_vectors
from xcbench.nn import DocumentEncoder, GatedBlock, TokenEmbeddings
from xcbench.shortlist.predictors import FixedEncoder, as_array, folded


@dataclass(frozen=True)
class BagConfig:
    """A bag of tokens: x_hat = drop(ReLU(block(sum_t x_t e_t))), with DECAF's embedding block."""

    dim: int = 256
    dropout: float = 0.5
    start: Literal["words", "random"] = "words"
    """Where token vectors start: at vectors learnt from the co-occurrence of words, or at random."""

    def __post_init__(self) -> None:
        if self.dim < 1 or not 0 <= self.dropout < 1:
            raise ValueError(f"dim is at least 1, dropout at least 0 and below 1, got {self.dim} and {self.dropout}")


def bag_encoder(config: BagConfig, X: sp.csr_array, seed: int) -> DocumentEncoder:
    """Return a new encoder.

    Parameters
    ----------
    config
        Its sizes.
    X
        [N, V] the texts from which token vectors are learnt, if they are to start there.
    seed
        The start of that.
    """
    E = TokenEmbeddings(int(X.shape[1]), config.dim, lazy=True)
    if config.start == "words":
        # As long as vectors that start at random.
        vectors = math.sqrt(2) * learn_vectors(X, config.dim, seed)
        with torch.no_grad():
            E.weight.copy_(torch.from_numpy(vectors))
    return DocumentEncoder(GatedBlock(config.dim, config.dropout), E)


def bag_encoder_of(config: BagConfig, state: Mapping[str, Tensor]) -> DocumentEncoder:
    """Return the encoder whose `state_dict` this is."""
    vocabulary, dim = state["E.weight"].shape
    E = TokenEmbeddings(vocabulary, dim, lazy=True)
    encoder = DocumentEncoder(GatedBlock(dim, config.dropout), E)
    encoder.load_state_dict(dict(state))
    return encoder


def state_on_cpu(module: nn.Module) -> dict[str, Tensor]:
    """Return the `state_dict` of a module in main memory, as a stage keeps it."""
    return {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}


def fixed(encoder: DocumentEncoder) -> FixedEncoder:
    """Return a trained encoder as arrays, for prediction."""
    assert encoder.E is not None
    return FixedEncoder(**folded(encoder.block), E=as_array(encoder.E.weight))
