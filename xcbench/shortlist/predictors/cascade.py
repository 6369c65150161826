"""What a method of two stages leaves behind: an encoder for each of them, and what predicts from their vectors."""

from __future__ import annotations

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
from xcbench.kernels.parallel import Floats
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.nn import GatedBlock, ResidualBlock, weighted_sums
from xcbench.shortlist.contract import Vectors
from xcbench.shortlist.predictors.beam import BeamPredictor
from xcbench.shortlist.predictors.listed import ShortlistPredictor

POINTS_AT_ONCE = 1 << 15
"""How many points are encoded at a time: two dense rows each, whatever the size of the whole."""

_PARTS = ("W", "b", "skip", "E")


class TwoStages(Protocol):
    """Predicts from two views of each point: that of the shortlist's encoder and that of the classifiers'."""

    def predict(self, first: Vectors, second: Vectors, k: int, /) -> TopK: ...
    def save(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class FixedEncoder:
    """x_hat = ReLU(W ReLU(r) + b + skip (.) r) with r = E x: a trained `DocumentEncoder`, folded into four arrays."""

    W: Floats  # [D, D]
    b: Floats  # [D]
    skip: Floats  # [D]
    E: Floats  # [V, D]

    def __call__(self, X: sp.csr_array) -> Floats:
        x = np.empty((X.shape[0], len(self.b)), np.float32)
        for start in range(0, X.shape[0], POINTS_AT_ONCE):
            part = slice(start, start + POINTS_AT_ONCE)
            x[part] = self.of_embedded(embed(X[part], self.E))
        return x

    @torch.no_grad()
    def of_embedded(self, r: Tensor) -> Floats:
        """The same for points whose E x is known."""
        W, b, skip = (torch.from_numpy(part) for part in (self.W, self.b, self.skip))
        x = torch.addcmul(b, skip, r).addmm_(torch.relu(r), W.T).relu_()
        return x.numpy()


def folded(block: GatedBlock | ResidualBlock) -> dict[str, Floats]:
    """W, b and skip of a trained block: all of a `FixedEncoder` but E, which stages may share."""
    block.eval()
    return {name: as_array(t) for name, t in zip(_PARTS[:3], block.folded(), strict=True)}


def as_array(parameter: Tensor) -> Floats:
    """What a trained parameter holds."""
    return parameter.detach().cpu().numpy()


@torch.no_grad()
def embed(X: sp.csr_array, E: Floats) -> Tensor:
    """E x for every row."""
    return weighted_sums(SparseRows.of(X), torch.from_numpy(E))


class CascadePredictor:
    """Encode, shortlist, encode anew, classify. Encoders with the same E share its table and the sums over it."""

    def __init__(self, first: FixedEncoder, second: FixedEncoder, stages: TwoStages) -> None:
        self.first, self.second, self.stages = first, second, stages

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        parts = [
            self._part(X[start : start + POINTS_AT_ONCE], k) for start in range(0, max(X.shape[0], 1), POINTS_AT_ONCE)
        ]
        indices, scores = ([getattr(part, name) for part in parts] for name in ("indices", "scores"))
        return TopK(np.concatenate(indices), np.concatenate(scores))

    def _part(self, X: sp.csr_array, k: int) -> TopK:
        r = embed(X, self.first.E)
        again = r if self.second.E is self.first.E else embed(X, self.second.E)
        return self.stages.predict(self.first.of_embedded(r), self.second.of_embedded(again), k)

    def save(self, folder: Path) -> None:
        arrays = {f"first.{part}": getattr(self.first, part) for part in _PARTS}
        arrays |= {f"second.{part}": getattr(self.second, part) for part in _PARTS}
        if self.second.E is self.first.E:
            del arrays["second.E"]
        with atomic_file(folder / "encoders.safetensors") as part:
            safetensors.numpy.save_file({name: np.ascontiguousarray(a) for name, a in arrays.items()}, part)
        self.stages.save(folder / ("beam" if isinstance(self.stages, BeamPredictor) else "shortlist"))

    @classmethod
    def load(cls, folder: Path) -> CascadePredictor:
        try:
            arrays = safetensors.numpy.load_file(folder / "encoders.safetensors")
            first = FixedEncoder(*(arrays[f"first.{part}"] for part in _PARTS))
            second = FixedEncoder(*(arrays.get(f"second.{part}", arrays[f"first.{part}"]) for part in _PARTS))
        except (OSError, KeyError, safetensors.SafetensorError) as error:
            raise DataError(f"cannot be read as two saved encoders: {error}", folder) from None
        if (folder / "beam").exists():
            return cls(first, second, BeamPredictor.load(folder / "beam"))
        return cls(first, second, ShortlistPredictor.load(folder / "shortlist"))
