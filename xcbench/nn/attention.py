"""ECLARE's attention over the components of a label classifier.

With components S_1 ... S_c of a label, t_j = T ReLU(drop(S_j)) + b_T, the weights are softmax(A [t_1; ...; t_c]) and
the classifier is their mixture of the S_j. Nothing stands between T and A, so A_j T is multiplied out first, once a
step: c x D numbers that meet a label's c D, instead of a D x D matrix applied to each of its components.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from xcbench.kernels.parallel import Floats, kernel, share_rows
from xcbench.nn.dropout import Noise, draw_noise, fusable, kept_and_scaled, numbers_of_row
from xcbench.nn.residual import ROWS_PER_SUM
from xcbench.nn.spectral import SpectralWeight


class ComponentAttention(nn.Module):
    """w_l = sum_j alpha_lj S_lj over `components` tables of D-dimensional rows."""

    def __init__(self, components: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.T = SpectralWeight(nn.init.xavier_uniform_(torch.empty(dim, dim)))
        self.A = SpectralWeight(nn.init.xavier_uniform_(torch.empty(components, components * dim)))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.components = components
        self.dropout = dropout

    def forward(self, *components: Tensor) -> Tensor:
        """One classifier a row; all components have the same shape [n, D]."""
        self._check(components)
        noise = draw_noise(self.dropout, self.training, components[0].shape[1])
        M, offset = self._maps()
        if fusable(*components):
            return _Attend.apply(M, offset, noise, *components)  # type: ignore[no-untyped-call, no-any-return]
        alpha = _weights(components, M, offset, noise)
        return torch.einsum("nj,njd->nd", alpha, torch.stack(components, 1))

    @torch.no_grad()
    def weights(self, *components: Tensor) -> Tensor:
        """alpha [n, c]: how much each component counts, without dropout."""
        self._check(components)
        return _weights(components, *self._maps(), None)

    def _maps(self) -> tuple[Tensor, Tensor]:
        """M[j] = A_j T, and the part of the logits that all labels share."""
        A = self.A().view(self.components, self.components, -1).transpose(0, 1)  # [j, logit, D]
        return A @ self.T(), A.sum(0) @ self.bias

    def _check(self, components: Sequence[Tensor]) -> None:
        if len(components) != self.components:
            raise ValueError(f"attention over {self.components} components was given {len(components)}")


def _weights(components: Sequence[Tensor], M: Tensor, offset: Tensor, noise: Noise | None) -> Tensor:
    S = torch.relu(torch.stack(list(components), 1))
    n, c, D = S.shape
    if noise is not None:
        S = S * kept_and_scaled(noise, n * c, D, S.device).view(n, c, D).to(S.dtype)
    return torch.softmax(torch.einsum("njd,jkd->nk", S, M) + offset, 1)


class _Attend(torch.autograd.Function):
    """The same without a copy of the components: one pass over them forward, one back, masks hashed anew in each."""

    @staticmethod
    def forward(ctx: Any, M: Tensor, offset: Tensor, noise: Noise, *components: Tensor) -> Tensor:
        S = [s.contiguous() for s in components]
        M = M.contiguous()
        alpha, w = torch.empty(len(S[0]), len(S)), torch.empty_like(S[0])
        ctx.noise = noise
        blocks, arrays = -(-len(w) // ROWS_PER_SUM), tuple(s.numpy() for s in S)
        share_rows(_attend, blocks, len(S) * w.numel(), arrays, M, offset, noise, alpha, w)
        ctx.save_for_backward(M, alpha, *S)
        return w

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        M, alpha, *S = ctx.saved_tensors
        blocks, c, D = -(-len(alpha) // ROWS_PER_SUM), len(S), M.shape[2]
        dS = [torch.empty_like(s) for s in S]
        dM, doffset = torch.empty(blocks, c, c, D), torch.empty(blocks, c)
        arrays, darrays = tuple(s.numpy() for s in S), tuple(d.numpy() for d in dS)
        dw, work = grads[0].contiguous(), len(S) * S[0].numel()
        share_rows(_attend_backward, blocks, work, arrays, M, alpha, dw, ctx.noise, darrays, dM, doffset)
        return dM.sum(0), doffset.sum(0), None, *dS


@njit(inline="always")
def _dropped_relu(row: Floats, noise: Noise, i: int, out: Floats) -> None:
    numbers = numbers_of_row(noise, i, len(row))
    for d in range(len(row)):
        out[d] = max(row[d], np.float32(0)) * noise.scale if numbers[d] >= noise.threshold else np.float32(0)


@njit(inline="always")
def _softmax(a: Floats) -> None:
    highest, total = a[0], np.float32(0)
    for k in range(1, len(a)):
        highest = max(highest, a[k])
    for k in range(len(a)):
        a[k] = math.exp(a[k] - highest)
        total += a[k]
    for k in range(len(a)):
        a[k] /= total


@njit(inline="always")
def _dot(a: Floats, b: Floats) -> np.float32:
    total = np.float32(0)
    for d in range(len(a)):
        total += a[d] * b[d]
    return total  # type: ignore[no-any-return]


@kernel
def _attend(
    first: int, last: int, S: tuple[Floats, ...], M: Floats, offset: Floats, noise: Noise, alpha: Floats, w: Floats
) -> None:
    n, c = len(alpha), len(S)  # c is known to the compiler, which unrolls the loops over it
    for block in range(first, last):
        p = np.empty(M.shape[2], np.float32)
        for i in range(block * ROWS_PER_SUM, min((block + 1) * ROWS_PER_SUM, n)):
            a = alpha[i]
            a[:] = offset
            for j in range(c):
                _dropped_relu(S[j][i], noise, i * c + j, p)
                for k in range(c):
                    a[k] += _dot(p, M[j, k])
            _softmax(a)
            w[i] = np.float32(0)
            for j in range(c):
                row, weight = S[j][i], a[j]
                for d in range(len(row)):
                    w[i, d] += weight * row[d]


@kernel
def _attend_backward(
    first: int, last: int, S: tuple[Floats, ...], M: Floats, alpha: Floats, dw: Floats, noise: Noise,
    dS: tuple[Floats, ...], dM: Floats, doffset: Floats,
) -> None:  # fmt: skip
    n, c = len(alpha), len(S)  # c is known to the compiler, which unrolls the loops over it
    for block in range(first, last):
        p = np.empty(M.shape[2], np.float32)
        dlogit = np.empty(c, np.float32)
        dM[block] = np.float32(0)
        doffset[block] = np.float32(0)
        for i in range(block * ROWS_PER_SUM, min((block + 1) * ROWS_PER_SUM, n)):
            for j in range(c):
                dlogit[j] = _dot(dw[i], S[j][i])
            dlogit -= _dot(alpha[i], dlogit)
            dlogit *= alpha[i]
            doffset[block] += dlogit
            for j in range(c):
                _dropped_relu(S[j][i], noise, i * c + j, p)
                ds, weight = dS[j][i], alpha[i, j]
                for d in range(len(p)):
                    through = np.float32(0)
                    for k in range(c):
                        through += dlogit[k] * M[j, k, d]
                    ds[d] = weight * dw[i, d] + (through * noise.scale if p[d] > 0 else np.float32(0))
                for k in range(c):
                    g, total = dlogit[k], dM[block, j, k]
                    for d in range(len(p)):
                        total[d] += g * p[d]
