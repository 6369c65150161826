"""Matrices divided by their largest singular value: the maps of all embedding blocks and of the attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from xcbench.kernels.arrays import Floats
from xcbench.kernels.parallel import kernel
from xcbench.nn.dropout import kernels_support


class SpectralWeight(nn.Module):
    """R / sigma(R), with sigma the largest singular value. One power iteration per training step updates sigma.

    The parameter is initialised before anything is divided: torch's own parametrisation would silently ignore an
    identity that is written to the wrapped weight afterwards.

    Parameters
    ----------
    start
        The initial matrix R.
    """

    u: Tensor
    v: Tensor

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.raw = nn.Parameter(start)
        self.register_buffer("u", normalize(torch.randn_like(start[:, 0]), dim=0))
        self.register_buffer("v", torch.empty_like(start[0]))
        for _ in range(15):
            _power_iteration(start, self.u, self.v)

    def forward(self, gate: Tensor | None = None) -> Tensor:
        """Return R / sigma(R), or diag(gate) R / sigma(R) where a gate [rows] is given."""
        if kernels_support(self.raw):
            if gate is None:
                gate = torch.ones(len(self.raw))
            return _GatedNormalised.apply(self.raw, gate, self.u, self.v, self.training)  # type: ignore[no-untyped-call, no-any-return]

        normalised = _normalised(self.raw, self.u, self.v, self.training)
        if gate is None:
            return normalised
        return gate[:, None] * normalised


def _power_iteration(raw: Tensor, u: Tensor, v: Tensor) -> None:
    """Bring u and v closer to the leading singular vectors, in place."""
    torch.mv(raw.T, u, out=v)
    v /= torch.linalg.vector_norm(v).clamp_(min=1e-12)
    torch.mv(raw, v, out=u)
    u /= torch.linalg.vector_norm(u).clamp_(min=1e-12)


def _normalised(raw: Tensor, u: Tensor, v: Tensor, training: bool) -> Tensor:
    """Return raw / sigma with sigma = u^T raw v and constant u, v."""
    if training:
        with torch.no_grad():
            _power_iteration(raw.detach(), u, v)

    # Copies: the next iteration must not change what the backward pass will read. Sigma is a sum and not a product of
    # matrices, because sums stay in full precision under autocast.
    sigma = (u.clone()[:, None] * raw * v.clone()).sum()
    return raw / sigma


class _GatedNormalised(torch.autograd.Function):
    """diag(gate) raw / sigma on our kernels.

    Every block needs it at every step. The dozen small torch operations that compute the same, forward and backward,
    take ten times as long as two passes over the matrix.
    """

    @staticmethod
    def forward(ctx: Any, raw: Tensor, gate: Tensor, u: Tensor, v: Tensor, training: bool) -> Tensor:
        gate = gate.contiguous()
        out = torch.empty_like(raw)
        ctx.sigma = _gated_normalised(
            raw.detach().numpy(),
            gate.detach().numpy(),
            u.numpy(),
            v.numpy(),
            out.numpy(),
            training,
        )
        # Copies: the next iteration must not change what this backward pass will read.
        ctx.save_for_backward(raw, gate, u.clone(), v.clone())
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        raw, gate, u, v = ctx.saved_tensors
        draw = torch.empty_like(raw)
        dgate = torch.empty_like(gate)
        _gated_normalised_backward(
            grads[0].contiguous().numpy(),
            raw.detach().numpy(),
            gate.detach().numpy(),
            u.numpy(),
            v.numpy(),
            draw.numpy(),
            dgate.numpy(),
            ctx.sigma,
        )
        return draw, dgate, None, None, None


@kernel
def _gated_normalised(raw: Floats, gate: Floats, u: Floats, v: Floats, out: Floats, training: bool) -> np.float32:
    """out = diag(gate) raw / sigma, in training after one power iteration. Returns sigma."""
    rows, columns = raw.shape
    if training:
        v[:] = np.float32(0)
        for i in range(rows):
            for j in range(columns):
                v[j] += u[i] * raw[i, j]
        v /= max(_norm(v), np.float32(1e-12))

    sigma = np.float32(0)
    for i in range(rows):
        product = np.float32(0)
        for j in range(columns):
            product += raw[i, j] * v[j]
        if training:
            u[i] = product
        else:
            sigma += u[i] * product
    if training:
        sigma = max(_norm(u), np.float32(1e-12))
        u /= sigma

    for i in range(rows):
        factor = gate[i] / sigma
        for j in range(columns):
            out[i, j] = factor * raw[i, j]
    return sigma  # type: ignore[no-any-return]


@kernel
def _gated_normalised_backward(
    g: Floats,
    raw: Floats,
    gate: Floats,
    u: Floats,
    v: Floats,
    draw: Floats,
    dgate: Floats,
    sigma: np.float32,
) -> None:
    """With N = raw / sigma: dgate_i = <g_i, N_i>, draw = (gate (.) g - <gate (.) g, N> u v^T) / sigma."""
    rows, columns = raw.shape
    product = np.float32(0)
    for i in range(rows):
        total = np.float32(0)
        for j in range(columns):
            total += g[i, j] * raw[i, j]
        dgate[i] = total / sigma
        product += gate[i] * dgate[i]

    for i in range(rows):
        direct = gate[i] / sigma
        through_sigma = product * u[i] / sigma
        for j in range(columns):
            draw[i, j] = direct * g[i, j] - through_sigma * v[j]


@kernel
def _norm(a: Floats) -> np.float32:
    total = np.float32(0)
    for i in range(len(a)):
        total += a[i] * a[i]
    return np.sqrt(total)  # type: ignore[no-any-return]
