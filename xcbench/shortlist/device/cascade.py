"""Encoders and the predictor of a method with two modules, on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from xcbench.data import TopK
from xcbench.kernels.arrays import Floats
from xcbench.kernels.csr import SparseRows
from xcbench.nn import weighted_sums
from xcbench.shortlist.blocks import empty_topk
from xcbench.shortlist.device import blocks
from xcbench.shortlist.device.blocks import upload
from xcbench.shortlist.device.copies import DeviceCopy

if TYPE_CHECKING:
    from xcbench.shortlist.predictors.cascade import CascadePredictor, FixedEncoder


class DeviceEncoder:
    """A `FixedEncoder` that encodes on a device.

    Parameters
    ----------
    source
        The encoder in main memory.
    device
        Where the copies of its tables live.
    E
        The token embeddings, if they are on the device already.
    """

    def __init__(self, source: FixedEncoder, device: str | torch.device, E: Tensor | None = None) -> None:
        self.W = upload(source.W, device)
        self.b = upload(source.b, device)
        self.skip = upload(source.skip, device)
        self.E = upload(source.E, device) if E is None else E

    def __call__(self, X: sp.csr_array) -> Floats:
        """Return the vectors [n, D] of the points X [n, V], in main memory."""
        x = np.empty((X.shape[0], len(self.b)), np.float32)
        for start in range(0, X.shape[0], blocks.POINTS_AT_ONCE):
            part = slice(start, start + blocks.POINTS_AT_ONCE)
            x[part] = self.of_embedded(self.embed(X[part])).cpu().numpy()
        return x

    @torch.no_grad()
    def embed(self, X: sp.csr_array) -> Tensor:
        """Return r = E x for the rows x of X."""
        return weighted_sums(SparseRows.of(X), self.E)

    @torch.no_grad()
    def of_embedded(self, r: Tensor) -> Tensor:
        """Return the vectors of points whose r = E x is known."""
        x = torch.addcmul(self.b, self.skip, r)
        x.addmm_(torch.relu(r), self.W.T)
        return x.relu_()


class DeviceCascade(DeviceCopy["CascadePredictor"]):
    """A `CascadePredictor` that predicts on a device.

    Parameters
    ----------
    source
        The predictor in main memory, which is what `save` writes.
    device
        Where the copies of its tables live. Token embeddings that two encoders share are copied once.
    """

    def __init__(self, source: CascadePredictor, device: str | torch.device) -> None:
        super().__init__(source)
        self.ranker = source.ranker.to(device)
        self.first = DeviceEncoder(source.first, device)
        shared = self.first.E if source.second.E is source.first.E else None
        self.second = DeviceEncoder(source.second, device, shared)

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        """Return the k best labels per point of X [n, V]."""
        result = empty_topk(X.shape[0], k)
        for start in range(0, X.shape[0], blocks.POINTS_AT_ONCE):
            block = slice(start, start + blocks.POINTS_AT_ONCE)
            part = self._predict_block(X[block], k)
            result.indices[block] = part.indices
            result.scores[block] = part.scores
        return result

    def vectors(self, X: sp.csr_array, titles: Sequence[str] | None = None) -> Floats:
        """Return the vectors [n, D] that label classifiers see, in main memory."""
        return self.second(X)

    def _predict_block(self, X: sp.csr_array, k: int) -> TopK:
        first_r = self.first.embed(X)
        second_r = first_r
        if self.second.E is not self.first.E:
            second_r = self.second.embed(X)
        first_x = self.first.of_embedded(first_r)
        second_x = self.second.of_embedded(second_r)
        return self.ranker.predict(first_x, second_x, k)
