"""The predictor of a method with two modules: one encoder for the shortlist, one for the label classifiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import safetensors
import safetensors.numpy
import scipy.sparse as sp
import torch
from torch import Tensor

from xcbench.data import TopK
from xcbench.errors import DataError
from xcbench.files import atomic_file
from xcbench.kernels.arrays import Floats
from xcbench.kernels.csr import SparseRows
from xcbench.nn import GatedBlock, ResidualBlock, weighted_sums
from xcbench.progress import counted
from xcbench.shortlist.contract import Vectors
from xcbench.shortlist.device.blocks import is_cpu
from xcbench.shortlist.device.cascade import DeviceCascade, DeviceEncoder
from xcbench.shortlist.predictors.beam import BeamPredictor
from xcbench.shortlist.predictors.shortlist import ShortlistPredictor

POINTS_AT_ONCE = 1 << 15
"""How many points are encoded at a time, so that the memory of their dense vectors is limited."""


class Ranker(Protocol):
    """Predicts from two vectors per point: `BeamPredictor` and `ShortlistPredictor`."""

    def predict(self, first: Vectors, second: Vectors, k: int, /) -> TopK:
        """Return the k best labels per point, from the vectors of the first and of the second encoder."""

    def save(self, folder: Path) -> None:
        """Write the parameters to a new folder."""

    def to(self, device: str | torch.device) -> Ranker:
        """Return a copy that predicts on a device."""


@dataclass(frozen=True)
class FixedEncoder:
    """A trained `DocumentEncoder` as four arrays: x_hat = ReLU(W ReLU(r) + b + skip (.) r) with r = E x.

    Parameters
    ----------
    W, b, skip
        [D, D], [D] and [D]: what `folded` returns for the encoder's block.
    E
        [V, D] the token embeddings. Two encoders may share the array.
    """

    W: Floats
    b: Floats
    skip: Floats
    E: Floats

    def __call__(self, X: sp.csr_array) -> Floats:
        """Return the vectors [n, D] of the points X [n, V]."""
        x = np.empty((X.shape[0], len(self.b)), np.float32)
        for start in counted(range(0, X.shape[0], POINTS_AT_ONCE), "points encoded"):
            part = slice(start, start + POINTS_AT_ONCE)
            x[part] = self.of_embedded(embed(X[part], self.E))
        return x

    def to(self, device: str | torch.device) -> FixedEncoder | DeviceEncoder:
        """Return a copy that encodes on a device; on the CPU that is the encoder itself."""
        if is_cpu(device):
            return self
        return DeviceEncoder(self, device)

    @torch.no_grad()
    def of_embedded(self, r: Tensor) -> Floats:
        """Return the vectors of points whose r = E x is known."""
        W = torch.from_numpy(self.W)
        b = torch.from_numpy(self.b)
        skip = torch.from_numpy(self.skip)
        x = torch.addcmul(b, skip, r)
        x.addmm_(torch.relu(r), W.T)
        return x.relu_().numpy()


def folded(block: GatedBlock | ResidualBlock) -> dict[str, Floats]:
    """Return W, b and skip of a trained block: the arrays of a `FixedEncoder` without E, by name."""
    block.eval()
    W, b, skip = block.folded()
    return {
        "W": as_array(W),
        "b": as_array(b),
        "skip": as_array(skip),
    }


def as_array(parameter: Tensor) -> Floats:
    """Return the values of a trained parameter."""
    return parameter.detach().cpu().numpy()


def predict_in_parts(X: sp.csr_array, predict: Callable[[sp.csr_array], TopK]) -> TopK:
    """Predict `POINTS_AT_ONCE` points at a time.

    Parameters
    ----------
    X
        [n, V] the points.
    predict
        Returns the predictions for some rows of X.
    """
    starts = range(0, max(X.shape[0], 1), POINTS_AT_ONCE)  # at least one part, also where there are no points
    parts = [predict(X[start : start + POINTS_AT_ONCE]) for start in counted(starts)]
    indices = np.concatenate([part.indices for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    return TopK(indices, scores)


@torch.no_grad()
def embed(X: sp.csr_array, E: Floats) -> Tensor:
    """Return E x [n, D] for the rows x of X [n, V]."""
    return weighted_sums(SparseRows.of(X), torch.from_numpy(E))


class CascadePredictor:
    """Predicts in two steps: a shortlist from the first encoder's vectors, then scores from the second encoder's.

    Parameters
    ----------
    first
        The encoder for the shortlist.
    second
        The encoder for the label classifiers. Where both have the same E, its sums are computed once.
    ranker
        Makes the shortlist and scores its labels.
    """

    def __init__(self, first: FixedEncoder, second: FixedEncoder, ranker: Ranker) -> None:
        self.first = first
        self.second = second
        self.ranker = ranker

    @property
    def _shares_embeddings(self) -> bool:
        return self.second.E is self.first.E

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        """Return the k best labels per point of X [n, V]."""
        return predict_in_parts(X, lambda part: self._predict_part(part, k))

    def vectors(self, X: sp.csr_array, titles: Sequence[str] | None = None) -> Floats:
        """Return the vectors [n, D] that label classifiers see."""
        return self.second(X)

    def _predict_part(self, X: sp.csr_array, k: int) -> TopK:
        first_r = embed(X, self.first.E)
        second_r = first_r
        if not self._shares_embeddings:
            second_r = embed(X, self.second.E)
        first_x = self.first.of_embedded(first_r)
        second_x = self.second.of_embedded(second_r)
        return self.ranker.predict(first_x, second_x, k)

    def to(self, device: str | torch.device) -> CascadePredictor | DeviceCascade:
        """Return a copy that predicts on a device; on the CPU that is the predictor itself."""
        if is_cpu(device):
            return self
        return DeviceCascade(self, device)

    def save(self, folder: Path) -> None:
        arrays = _named_arrays("first", self.first)
        arrays |= _named_arrays("second", self.second)
        if self._shares_embeddings:
            del arrays["second.E"]
        with atomic_file(folder / "encoders.safetensors") as part:
            safetensors.numpy.save_file(arrays, part)
        name = "beam" if isinstance(self.ranker, BeamPredictor) else "shortlist"
        self.ranker.save(folder / name)

    @classmethod
    def load(cls, folder: Path) -> CascadePredictor:
        try:
            arrays = safetensors.numpy.load_file(folder / "encoders.safetensors")
            arrays.setdefault("second.E", arrays["first.E"])  # saved once where the encoders share it
            first = _encoder_of("first", arrays)
            second = _encoder_of("second", arrays)
        except (OSError, KeyError, safetensors.SafetensorError) as error:
            raise DataError(f"cannot be read as two saved encoders: {error}", folder) from None

        if (folder / "beam").exists():
            return cls(first, second, BeamPredictor.load(folder / "beam"))
        return cls(first, second, ShortlistPredictor.load(folder / "shortlist"))


def _named_arrays(name: str, encoder: FixedEncoder) -> dict[str, Floats]:
    return {
        f"{name}.W": np.ascontiguousarray(encoder.W),
        f"{name}.b": np.ascontiguousarray(encoder.b),
        f"{name}.skip": np.ascontiguousarray(encoder.skip),
        f"{name}.E": np.ascontiguousarray(encoder.E),
    }


def _encoder_of(name: str, arrays: dict[str, Floats]) -> FixedEncoder:
    return FixedEncoder(
        W=arrays[f"{name}.W"],
        b=arrays[f"{name}.b"],
        skip=arrays[f"{name}.skip"],
        E=arrays[f"{name}.E"],
    )
