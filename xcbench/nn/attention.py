"""ECLARE's attention over the components of a label classifier.

With components S_1 ... S_c of a label and t_j = T ReLU(drop(S_j)) + b_T, the weights are
alpha = softmax(A [t_1; ...; t_c]), and the classifier is sum_j alpha_j S_j.

There is no non-linearity between T and A. So A_j T is multiplied out first, once per step. Each component of each label
then meets c x D numbers instead of the D x D matrix T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from xcbench.kernels.arrays import Floats
from xcbench.kernels.parallel import kernel, share_rows
from xcbench.nn.dropout import (
    DropoutMask,
    KernelMask,
    first_label,
    kept_entries,
    kernels_support,
    next_mask,
    pool_numbers,
)
from xcbench.nn.residual import ROWS_PER_SUM
from xcbench.nn.spectral import SpectralWeight


class ComponentAttention(nn.Module):
    """w_l = sum_j alpha_lj S_lj with alpha_l = softmax(A [t_l1; ...; t_lc]) and t_lj = T ReLU(drop(S_lj)) + b_T.

    Parameters
    ----------
    components
        c, the number of components.
    dim
        D, the length of a vector.
    dropout
        The dropout rate.
    """

    def __init__(self, components: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.T = SpectralWeight(nn.init.xavier_uniform_(torch.empty(dim, dim)))
        self.A = SpectralWeight(nn.init.xavier_uniform_(torch.empty(components, components * dim)))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.components = components
        self.dropout = dropout

    def forward(self, *components: Tensor) -> Tensor:
        """Return the classifiers [n, D]. Each component is a table [n, D]."""
        self._check_count(components)
        first_row = self.components * first_label()
        mask = next_mask(self.dropout, self.training, components[0].shape[1], first_row)
        M, offset = self._maps()
        if kernels_support(*components):
            return _Attend.apply(M, offset, mask, *components)  # type: ignore[no-untyped-call, no-any-return]

        alpha = _attention_weights(components, M, offset, mask)
        w = alpha[:, 0, None] * components[0]
        for j in range(1, len(components)):
            w = torch.addcmul(w, alpha[:, j, None], components[j])
        return w

    @torch.no_grad()
    def weights(self, *components: Tensor) -> Tensor:
        """Return alpha [n, c], the weight of each component, without dropout."""
        self._check_count(components)
        M, offset = self._maps()
        return _attention_weights(components, M, offset, None)

    def _maps(self) -> tuple[Tensor, Tensor]:
        """Return M with M[j] = A_j T, and the part of the logits that is the same for all labels."""
        A = self.A().view(self.components, self.components, -1)  # [logit, j, D]
        A = A.transpose(0, 1)  # [j, logit, D]
        return A @ self.T(), A.sum(0) @ self.bias

    def _check_count(self, components: Sequence[Tensor]) -> None:
        if len(components) != self.components:
            raise ValueError(f"attention over {self.components} components was given {len(components)}")


def _attention_weights(
    components: Sequence[Tensor],
    M: Tensor,
    offset: Tensor,
    mask: DropoutMask | None,
) -> Tensor:
    """Return alpha [n, c], component by component: they are never stacked, since that would copy all of them."""
    logits = offset
    for j, component in enumerate(components):
        S = torch.relu(component)
        if mask is not None and mask.threshold > 0:
            # The rows of the mask are the components of label 0, then those of label 1, and so on.
            rows = torch.arange(j, len(S) * len(components), len(components), device=S.device)
            S = torch.where(kept_entries(mask, rows, S.shape[1]), S * mask.scale, 0)
        logits = logits + S @ M[j].T
    in_full_precision = torch.promote_types(logits.dtype, torch.float32)
    return torch.softmax(logits, 1, dtype=in_full_precision)


class _Attend(torch.autograd.Function):
    """The classifiers on our kernels, without a copy of the components.

    There is one pass over them forward and one backward. Each computes the dropout mask anew.
    """

    @staticmethod
    def forward(ctx: Any, M: Tensor, offset: Tensor, mask: DropoutMask, *components: Tensor) -> Tensor:
        S = [component.contiguous() for component in components]
        M = M.contiguous()
        alpha = torch.empty(len(S[0]), len(S))
        w = torch.empty_like(S[0])
        share_rows(
            _attend,
            _block_count(len(w)),
            len(S) * w.numel(),
            tuple(s.numpy() for s in S),
            M,
            offset,
            mask.for_kernels(),
            alpha,
            w,
        )
        ctx.mask = mask
        ctx.save_for_backward(M, alpha, *S)
        return w

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        M, alpha, *S = ctx.saved_tensors
        blocks = _block_count(len(alpha))
        c = len(S)
        dS = [torch.empty_like(s) for s in S]
        dM = torch.empty(blocks, c, c, M.shape[2])
        doffset = torch.empty(blocks, c)
        share_rows(
            _attend_backward,
            blocks,
            c * S[0].numel(),
            tuple(s.numpy() for s in S),
            M,
            alpha,
            grads[0].contiguous(),
            ctx.mask.for_kernels(),
            tuple(ds.numpy() for ds in dS),
            dM,
            doffset,
        )
        return dM.sum(0), doffset.sum(0), None, *dS


def _block_count(rows: int) -> int:
    return -(-rows // ROWS_PER_SUM)


@njit(inline="always")
def _dropped_relu(row: Floats, mask: KernelMask, i: int, out: Floats) -> None:
    numbers = pool_numbers(mask, i, len(row))
    for d in range(len(row)):
        out[d] = max(row[d], np.float32(0)) * mask.scale if numbers[d] >= mask.threshold else np.float32(0)


@njit(inline="always")
def _softmax(a: Floats) -> None:
    highest = a[0]
    total = np.float32(0)
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
    first: int,
    last: int,
    S: tuple[Floats, ...],
    M: Floats,
    offset: Floats,
    mask: KernelMask,
    alpha: Floats,
    w: Floats,
) -> None:
    """Write the weights alpha and the classifiers w, for blocks of `ROWS_PER_SUM` rows."""
    n = len(alpha)
    c = len(S)  # known to the compiler, which unrolls the loops over it
    for block in range(first, last):
        p = np.empty(M.shape[2], np.float32)
        for i in range(block * ROWS_PER_SUM, min((block + 1) * ROWS_PER_SUM, n)):
            a = alpha[i]
            a[:] = offset
            for j in range(c):
                _dropped_relu(S[j][i], mask, i * c + j, p)
                for k in range(c):
                    a[k] += _dot(p, M[j, k])
            _softmax(a)

            w[i] = np.float32(0)
            for j in range(c):
                row = S[j][i]
                weight = a[j]
                for d in range(len(row)):
                    w[i, d] += weight * row[d]


@kernel
def _attend_backward(
    first: int,
    last: int,
    S: tuple[Floats, ...],
    M: Floats,
    alpha: Floats,
    dw: Floats,
    mask: KernelMask,
    dS: tuple[Floats, ...],
    dM: Floats,
    doffset: Floats,
) -> None:
    """Write dS, and for each block of rows its parts of dM and doffset."""
    n = len(alpha)
    c = len(S)  # known to the compiler, which unrolls the loops over it
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
                _dropped_relu(S[j][i], mask, i * c + j, p)
                ds = dS[j][i]
                weight = alpha[i, j]
                for d in range(len(p)):
                    through = np.float32(0)
                    for k in range(c):
                        through += dlogit[k] * M[j, k, d]
                    ds[d] = weight * dw[i, d] + (through * mask.scale if p[d] > 0 else np.float32(0))
                for k in range(c):
                    g = dlogit[k]
                    total = dM[block, j, k]
                    for d in range(len(p)):
                        total[d] += g * p[d]
