"""Prediction from titles: a trained encoder that reads their words or word pieces in order, and a ranker behind it.

An encoder is saved as a folder of texts and safetensors. That of a transformer is laid out as Hugging Face does it, so
another training can start from it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors
import scipy.sparse as sp
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from xcbench.data import TopK
from xcbench.data.pieces import word_pieces
from xcbench.data.text import TextEncoder
from xcbench.errors import DataError, InputError
from xcbench.files import atomic_folder
from xcbench.kernels.arrays import Floats
from xcbench.kernels.csr import SparseRows
from xcbench.nn import InceptionEncoder, TokenEmbeddings, TransformerEncoder
from xcbench.nn.pretrained import build_model
from xcbench.shortlist.contract import Vectors
from xcbench.shortlist.device.blocks import is_cpu
from xcbench.shortlist.exact import ExactShortlister
from xcbench.shortlist.predictors.cascade import CascadePredictor, FixedEncoder
from xcbench.shortlist.predictors.exact import ExactPredictor
from xcbench.shortlist.predictors.shortlist import ShortlistPredictor

TITLES_AT_ONCE = 256
"""How many titles are encoded at a time."""


class Reader(Protocol):
    """What turns titles into rows of words or word pieces, and a module that encodes such rows."""

    @property
    def kind(self) -> str:
        """The name of this class in a saved encoder."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What else a saved encoder has to say of how titles are read."""

    def sequences(self, titles: Sequence[str]) -> sp.csr_array:
        """Return the words or word pieces of titles in their order."""

    def module(self, tensors: Mapping[str, Tensor]) -> nn.Module:
        """Return the encoder with these weights."""

    def tensors(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the weights of an encoder, in main memory."""

    def save(self, folder: Path) -> None:
        """Write all but the weights into an existing folder."""


@dataclass(frozen=True)
class PieceReader:
    """How a transformer reads titles.

    Parameters
    ----------
    config, tokenizer
        The texts of its `config.json` and `tokenizer.json`.
    settings
        `length`, `pooling` and `precision`, and `dim`, which is D.
    """

    config: str
    tokenizer: str
    settings: Mapping[str, Any]
    kind: str = "transformer"

    def sequences(self, titles: Sequence[str]) -> sp.csr_array:
        return word_pieces(self.tokenizer, titles, self.settings["length"])

    def module(self, tensors: Mapping[str, Tensor]) -> nn.Module:
        model = build_model(self.config, tensors)
        return TransformerEncoder(model, self.settings["pooling"], self.settings["precision"])

    def tensors(self, module: nn.Module) -> dict[str, Tensor]:
        assert isinstance(module, TransformerEncoder)
        return _on_cpu(module.model)

    def save(self, folder: Path) -> None:
        (folder / "config.json").write_text(self.config, "utf-8")
        (folder / "tokenizer.json").write_text(self.tokenizer, "utf-8")

    @classmethod
    def load(cls, folder: Path, settings: Mapping[str, Any]) -> PieceReader:
        config = (folder / "config.json").read_text("utf-8")
        return cls(config, (folder / "tokenizer.json").read_text("utf-8"), settings)


@dataclass(frozen=True)
class WordReader:
    """How InceptionXML's encoder reads titles.

    Parameters
    ----------
    words
        The vocabulary.
    settings
        `length`, and `dim`, which is D.
    """

    words: TextEncoder
    settings: Mapping[str, Any]
    kind: str = "inception"

    def sequences(self, titles: Sequence[str]) -> sp.csr_array:
        return self.words.sequences(titles, self.settings["length"])

    def module(self, tensors: Mapping[str, Tensor]) -> nn.Module:
        E = TokenEmbeddings(*tensors["E.weight"].shape)
        encoder = InceptionEncoder(E, self.settings["length"])
        encoder.load_state_dict(dict(tensors))
        return encoder

    def tensors(self, module: nn.Module) -> dict[str, Tensor]:
        return _on_cpu(module)

    def save(self, folder: Path) -> None:
        (folder / "words.json").write_text(json.dumps(self.words.to_dict(), ensure_ascii=False), "utf-8")

    @classmethod
    def load(cls, folder: Path, settings: Mapping[str, Any]) -> WordReader:
        words = json.loads((folder / "words.json").read_text("utf-8"))
        return cls(TextEncoder.from_dict(words), settings)


def _on_cpu(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}


_READERS: Mapping[str, type[PieceReader] | type[WordReader]] = {"transformer": PieceReader, "inception": WordReader}


class TitleEncoder:
    """A trained encoder of titles, on whatever device its module is.

    Parameters
    ----------
    reader
        Reads titles.
    module
        Encodes what it reads; as `reader.module` returns it.
    """

    def __init__(self, reader: Reader, module: nn.Module) -> None:
        self.reader = reader
        self.network = module.eval()

    @classmethod
    def of(cls, reader: Reader, tensors: Mapping[str, Tensor]) -> TitleEncoder:
        return cls(reader, reader.module(tensors))

    def sequences(self, titles: Sequence[str]) -> sp.csr_array:
        """Return the words or word pieces of titles in their order."""
        return self.reader.sequences(titles)

    @torch.no_grad()
    def __call__(self, sequences: sp.csr_array) -> Floats:
        """Return the vectors [n, D] of titles, as `sequences` returns them."""
        vectors = np.empty((sequences.shape[0], self.reader.settings["dim"]), np.float32)
        # Titles of similar length need little padding.
        order = np.argsort(np.diff(sequences.indptr), kind="stable")
        for start in range(0, len(order), TITLES_AT_ONCE):
            rows = order[start : start + TITLES_AT_ONCE]
            vectors[rows] = self.network(SparseRows.of(sequences[rows])).cpu().numpy()
        return vectors

    def to(self, device: str | torch.device) -> TitleEncoder:
        """Return a copy whose module is on a device; on the CPU that is the encoder itself."""
        if is_cpu(device):
            return self
        return TitleEncoder(self.reader, copy.deepcopy(self.network).to(device))

    def save(self, folder: Path) -> None:
        with atomic_folder(folder) as part:
            self.reader.save(part)
            save_file(self.reader.tensors(self.network), part / "model.safetensors", {"format": "pt"})
            settings = {"kind": self.reader.kind, **self.reader.settings}
            (part / "reader.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")

    @classmethod
    def load(cls, folder: Path) -> TitleEncoder:
        try:
            settings = json.loads((folder / "reader.json").read_text("utf-8"))
            reader = _READERS[settings.pop("kind")].load(folder, settings)
            return cls.of(reader, load_file(folder / "model.safetensors"))
        except (OSError, ValueError, KeyError, RuntimeError, safetensors.SafetensorError) as error:
            raise DataError(f"cannot be read as a saved encoder: {error}", folder) from None


class TitleRanker(Protocol):
    """`ShortlistPredictor` and `ExactPredictor`."""

    def predict(self, first: Vectors, second: Vectors, k: int, /) -> TopK: ...
    def save(self, folder: Path) -> None: ...
    def to(self, device: str | torch.device) -> TitleRanker: ...


class TitlePredictor:
    """Predicts from titles: what `CascadePredictor` is for rows of X.

    Parameters
    ----------
    encoder
        Reads and encodes titles.
    ranker
        Ranks labels for the vectors.
    """

    def __init__(self, encoder: TitleEncoder, ranker: TitleRanker) -> None:
        self.encoder = encoder
        self.ranker = ranker

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        raise InputError("this encoder reads the words of a title in their order, which rows of X do not have")

    def predict_titles(self, titles: Sequence[str], k: int) -> TopK:
        """Return the k best labels per title."""
        x = self.vectors(sp.csr_array((len(titles), 0)), titles)
        return self.ranker.predict(x, x, k)

    def vectors(self, X: sp.csr_array, titles: Sequence[str] | None = None) -> Floats:
        """Return the vectors [n, D] that label classifiers see."""
        if titles is None:
            raise InputError("this encoder reads titles, which these points do not have")
        return self.encoder(self.encoder.sequences(titles))

    def to(self, device: str | torch.device) -> TitlePredictor | TitlePredictorOnDevice:
        """Return a copy that predicts on a device; on the CPU that is the predictor itself."""
        if is_cpu(device):
            return self
        return TitlePredictorOnDevice(self, device)

    def save(self, folder: Path) -> None:
        self.encoder.save(folder / "encoder")
        name = "exact" if isinstance(self.ranker, ExactPredictor) else "shortlist"
        self.ranker.save(folder / name)

    @classmethod
    def load(cls, folder: Path) -> TitlePredictor:
        encoder = TitleEncoder.load(folder / "encoder")
        if (folder / "exact").exists():
            return cls(encoder, ExactPredictor(ExactShortlister.load(folder / "exact")))
        return cls(encoder, ShortlistPredictor.load(folder / "shortlist"))

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether such a predictor was saved in this folder."""
        return (folder / "encoder").exists()


def predictor_of(encoder: FixedEncoder | TitleEncoder, ranker: Any) -> CascadePredictor | TitlePredictor:
    """Return the predictor of one encoder, of rows of X or of titles, before a ranker."""
    if isinstance(encoder, TitleEncoder):
        return TitlePredictor(encoder, ranker)
    return CascadePredictor(encoder, encoder, ranker)


class TitlePredictorOnDevice(TitlePredictor):
    """The same on a device; it saves what the predictor in main memory saves."""

    def __init__(self, source: TitlePredictor, device: str | torch.device) -> None:
        super().__init__(source.encoder.to(device), source.ranker.to(device))
        self.source = source

    def save(self, folder: Path) -> None:
        self.source.save(folder)
