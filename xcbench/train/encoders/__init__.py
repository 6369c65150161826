"""Encoders of documents that methods exchange: what maps the text of a point to its vector.

A method asks `read_texts` in a stage, and `encoder_of` for an object with the methods of `Encoder`. Which kind of
encoder that is, only its config knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import scipy.sparse as sp
from torch import Tensor, nn

from xcbench.data import Dataset, Split
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats
from xcbench.nn.pretrained import find_model, require_transformers
from xcbench.shortlist.predictors import FixedEncoder, TitleEncoder
from xcbench.train.batches import Points, learnable, learnable_rows, targets_of
from xcbench.train.encoders.bag import Bag
from xcbench.train.encoders.config import EncoderConfig
from xcbench.train.encoders.rates import with_encoder_groups
from xcbench.train.encoders.titles import Frozen, Inception, Transformer

__all__ = [
    "TEXT_SETTINGS",
    "Encoder",
    "EncoderConfig",
    "check_encoder",
    "encoder_of",
    "parameter_count",
    "points_of",
    "read_texts",
    "with_encoder_groups",
]


class Encoder(Protocol):
    """An encoder in all its forms: what it reads, the module that learns, its weights, and what predicts."""

    dim: int
    """D, the length of its vectors."""

    def inputs(self) -> sp.csr_array | Floats:
        """Return what the module reads, a row per training point."""

    def start(self, seed: int) -> nn.Module:
        """Return a new module."""

    def state(self, encoder: nn.Module) -> dict[str, Tensor]:
        """Return the weights of a module in main memory, as a stage keeps them."""

    def restore(self, state: Mapping[str, Tensor]) -> nn.Module:
        """Return the module with these weights."""

    def fixed(self, encoder: nn.Module) -> FixedEncoder | TitleEncoder:
        """Return a trained module for prediction."""

    def vectors(self, encoder: nn.Module, split: Split) -> Floats:
        """Return the vectors of all points of a split by a trained module."""


def check_encoder(config: EncoderConfig) -> None:
    """Raise an `InputError` where settings contradict each other, or this machine lacks what the encoder needs."""
    is_transformer = config.kind == "transformer"
    if not is_transformer and (config.frozen or config.model is not None):
        raise InputError(f"encoder.model and encoder.frozen are for encoder.kind=transformer, got {config.kind}")
    if is_transformer and config.model is None:
        raise InputError("encoder.kind=transformer needs encoder.model: minilm, a folder, or a name at Hugging Face")
    if config.model is not None:
        require_transformers()
        find_model(config.model)


def parameter_count(config: EncoderConfig, data: Dataset) -> int | None:
    """Return about how many parameters an encoder has, before there is one; None for a transformer."""
    if config.kind == "transformer":
        return None
    return config.dim * (data.feature_count + config.dim)


TEXT_SETTINGS = ("kind", "model", "length", "frozen", "pooling", "precision")
"""The settings that `read_texts` reads."""


def read_texts(config: EncoderConfig, data: Dataset, device: str = "cpu") -> dict[str, Any]:
    """Return what an encoder reads beside X: nothing, words or word pieces in their order, or fixed vectors.

    Parameters
    ----------
    config
        The encoder's settings.
    data
        The training points, and for `inception` also the label text.
    device
        Where a frozen encoder makes its vectors.
    """
    if config.kind == "bag":
        return {}
    if config.kind == "inception":
        return Inception.read(config, data)
    if config.frozen:
        return Frozen.encode(config, data, device)
    return Transformer.read(config, data)


def encoder_of(config: EncoderConfig, texts: Mapping[str, Any], train: Split) -> Encoder:
    """Return the encoder.

    Parameters
    ----------
    config
        Its settings.
    texts
        What `read_texts` returned.
    train
        The training points that it was read from.
    """
    if config.kind == "bag":
        return Bag(config, train)
    if config.kind == "inception":
        return Inception(config, texts, train)
    if config.frozen:
        return Frozen(config, texts, train)
    return Transformer(config, texts, train)


def points_of(encoder: Encoder, train: Split) -> Points:
    """Return the training points as the encoder reads them, as far as there is something to learn from them."""
    inputs = encoder.inputs()[learnable_rows(train)]
    return Points(inputs, targets_of(learnable(train)))
