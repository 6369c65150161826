"""Encoders that read the words of a title in their order: InceptionXML's, and transformers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor, nn

from xcbench.data import Dataset, Split
from xcbench.data.text import TextEncoder
from xcbench.data.word_vectors import learn_vectors
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats
from xcbench.nn import InceptionEncoder, TokenEmbeddings, inception_size
from xcbench.nn.dropout import dropout
from xcbench.nn.pretrained import Pretrained, load_pretrained
from xcbench.shortlist.predictors.titles import PieceReader, Reader, TitleEncoder, WordReader
from xcbench.train.encoders.config import EncoderConfig

SHORTEST = 3
"""Word pieces: one between the two that most transformers put around a text."""


class Dropping(nn.Module):
    """An encoder with dropout behind it; None for vectors that are there already."""

    def __init__(self, encoder: nn.Module | None, rate: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.rate = rate

    def forward(self, titles: Any) -> Tensor:
        x: Tensor = titles if self.encoder is None else self.encoder(titles)
        return dropout(x, self.rate, self.training)


class Titles:
    """What the encoders of titles have in common.

    Parameters
    ----------
    config
        Their settings.
    known
        What `read` of the class returned.
    train
        The training points.
    reader
        Turns titles into rows of words or word pieces.
    """

    dim: int

    def __init__(self, config: EncoderConfig, known: Mapping[str, Any], train: Split, reader: Reader) -> None:
        self.config = config
        self.known = known
        self.train = train
        self.reader = reader

    def inputs(self) -> sp.csr_array | Floats:
        rows: sp.csr_array | Floats = self.known["train"]
        return rows

    def state(self, encoder: nn.Module) -> dict[str, Tensor]:
        assert isinstance(encoder, Dropping)
        assert encoder.encoder is not None
        return self.reader.tensors(encoder.encoder)

    def restore(self, state: Mapping[str, Tensor]) -> Dropping:
        return Dropping(self.reader.module(state), self.config.dropout)

    def fixed(self, encoder: nn.Module) -> TitleEncoder:
        assert isinstance(encoder, Dropping)
        assert encoder.encoder is not None
        return TitleEncoder(self.reader, encoder.encoder)

    def vectors(self, encoder: nn.Module, split: Split) -> Floats:
        found = self.fixed(encoder)
        if split is self.train:
            return found(self.known["train"])
        return found(found.sequences(split.titles or ()))


class Inception(Titles):
    """InceptionXML's encoder (`xcbench/nn/inception.py`)."""

    def __init__(self, config: EncoderConfig, known: Mapping[str, Any], train: Split) -> None:
        self.words = TextEncoder.from_dict(known["words"])
        self.dim = inception_size(config.dim)
        super().__init__(config, known, train, WordReader(self.words, {"length": config.length, "dim": self.dim}))

    @staticmethod
    def read(config: EncoderConfig, data: Dataset) -> dict[str, Any]:
        """Return the words of training and label text, and the training titles as words in their order."""
        titles = data.train.titles or ()
        words = TextEncoder.fit(itertools.chain(titles, data.label_titles or ()), stop_words="english")
        return {"words": words.to_values(), "train": words.sequences(titles, config.length)}

    def start(self, seed: int) -> Dropping:
        c = self.config
        # All vectors are about as long as the authors' random ones, which lie in +-0.25.
        if c.start == "words":
            texts = self.words.encode(self.train.titles or ())
            E = 0.25 * math.sqrt(c.dim / 3) * learn_vectors(texts, c.dim, seed)
        else:
            shape = (self.words.feature_count, c.dim)
            E = np.random.default_rng(seed).uniform(-0.25, 0.25, shape).astype(np.float32)
        return Dropping(InceptionEncoder(TokenEmbeddings.of(E), c.length), c.dropout)


class Transformer(Titles):
    """A pretrained transformer."""

    def __init__(self, config: EncoderConfig, known: Mapping[str, Any], train: Split) -> None:
        self.dim = known["dim"]
        reader = piece_reader(config, known["config"], known["tokenizer"], self.dim)
        super().__init__(config, known, train, reader)

    @staticmethod
    def read(config: EncoderConfig, data: Dataset) -> dict[str, Any]:
        """Return how the model reads, and the training titles as word pieces in their order."""
        found = pretrained(config)
        reader = piece_reader(config, found.config, found.tokenizer, found.dim)
        return {
            "config": found.config,
            "tokenizer": found.tokenizer,
            "dim": found.dim,
            "train": reader.sequences(data.train.titles or ()),
        }

    def start(self, seed: int) -> Dropping:
        return self.restore(pretrained(self.config).tensors)


class Frozen(Transformer):
    """A pretrained transformer that stays as it is: training reads vectors."""

    @staticmethod
    def encode(config: EncoderConfig, data: Dataset, device: str) -> dict[str, Any]:
        """Return how the model reads, and the vectors of the training titles."""
        known = Transformer.read(config, data)
        reader = piece_reader(config, known["config"], known["tokenizer"], known["dim"])
        encoder = TitleEncoder.of(reader, pretrained(config).tensors).to(device)
        return known | {"train": encoder(known["train"])}

    def start(self, seed: int) -> Dropping:
        return self.restore({})

    def state(self, encoder: nn.Module) -> dict[str, Tensor]:
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> Dropping:
        return Dropping(None, self.config.dropout)

    def fixed(self, encoder: nn.Module) -> TitleEncoder:
        return TitleEncoder.of(self.reader, pretrained(self.config).tensors)

    def vectors(self, encoder: nn.Module, split: Split) -> Floats:
        if split is self.train:
            known: Floats = self.known["train"]
            return known
        return super().vectors(encoder, split)


def pretrained(config: EncoderConfig) -> Pretrained:
    """Return the model that a training starts from."""
    assert config.model is not None
    found = load_pretrained(config.model)
    if not SHORTEST <= config.length <= found.longest:
        raise InputError(f"encoder.length is {SHORTEST} to {found.longest} for {config.model}, got {config.length}")
    return found


def piece_reader(config: EncoderConfig, model_config: str, tokenizer: str, dim: int) -> PieceReader:
    """Return how a transformer reads titles."""
    settings = {"length": config.length, "pooling": config.pooling, "precision": config.precision, "dim": dim}
    return PieceReader(model_config, tokenizer, settings)
