"""A transformer as an encoder: one vector per text, from the vectors of its word pieces."""

from __future__ import annotations

import contextlib
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from xcbench.kernels.arrays import Longs
from xcbench.kernels.csr import SparseRows
from xcbench.nn.device_arrays import on_device

Pooling = Literal["mean", "first"]
Precision = Literal["float32", "bfloat16"]

SPLIT_FROM = 16
"""From so many texts on, the shorter and the longer half of a batch are padded apart."""


class TransformerEncoder(nn.Module):
    """Maps texts, as word pieces in their order, to vectors [texts, D].

    A batch is padded to its own longest text, and no text's vector depends on the others'.

    Parameters
    ----------
    model
        A model of the transformers library. Word embeddings get row-sparse gradients.
    pooling
        The mean over a text's word pieces, or the vector of its first one (BERT's [CLS]).
    precision
        Of the matrix products in the model. The vectors that come out are float32.
    """

    def __init__(self, model: Any, pooling: Pooling = "mean", precision: Precision = "float32") -> None:
        super().__init__()
        model.get_input_embeddings().sparse = True
        self.model = model
        self.pooling: Pooling = pooling
        self.precision: Precision = precision

    def forward(self, texts: SparseRows) -> Tensor:
        """Return one vector per text. An entry of `texts` is a word piece; entries stand in the order of the text."""
        if len(texts) < SPLIT_FROM:
            return self._encode(texts)
        by_length = np.argsort(np.diff(texts.indptr), kind="stable")
        halves = [self._encode(texts.take(rows)) for rows in np.array_split(by_length, 2)]
        place = on_device(np.argsort(by_length), halves[0].device)
        vectors: Tensor = torch.cat(halves)[place]
        return vectors

    def _encode(self, texts: SparseRows) -> Tensor:
        device = self.model.device
        T, places = texts.in_table()
        ids = _in_table(texts.indices.astype(np.int64), places, len(texts), T)
        is_piece = _in_table(np.ones(len(places), np.int64), places, len(texts), T)
        mask = on_device(is_piece, device)
        with self._products(device):
            pieces: Tensor = self.model(input_ids=on_device(ids, device), attention_mask=mask).last_hidden_state
        pieces = pieces.float()
        if self.pooling == "first":
            return pieces[:, 0]
        lengths = mask.sum(1, keepdim=True).clamp(min=1)
        means: Tensor = (pieces * mask[:, :, None]).sum(1) / lengths
        return means

    def _products(self, device: torch.device) -> contextlib.AbstractContextManager[object]:
        if self.precision == "bfloat16":
            return torch.autocast(device.type, torch.bfloat16)
        return contextlib.nullcontext()


def _in_table(values: Longs, places: Longs, rows: int, width: int) -> Longs:
    """Return values at places of a table of zeros."""
    table = np.zeros(rows * width, np.int64)
    table[places] = values
    return table.reshape(rows, width)
