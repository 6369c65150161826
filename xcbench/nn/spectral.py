"""Matrices divided by their largest singular value: the maps of all blocks and of the attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from xcbench.kernels.parallel import Floats, kernel
from xcbench.nn.dropout import fusable


class SpectralWeight(nn.Module):
    """A matrix divided by its largest singular value, which one power iteration a training step follows.

    The parameter is initialised before anything is divided: torch's own parametrisation would silently ignore an
    identity that is written to the wrapped weight afterwards.
    """

    u: Tensor
    v: Tensor

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.raw = nn.Parameter(start)
        self.register_buffer("u", normalize(torch.randn_like(start[:, 0]), dim=0))
        self.register_buffer("v", torch.empty_like(start[0]))
        for _ in range(15):
            _iterate(start, self.u, self.v)

    def forward(self, gate: Tensor | None = None) -> Tensor:
        """The normed matrix; with a gate [rows], diag(gate) times it."""
        if fusable(self.raw):
            gate = torch.ones(len(self.raw)) if gate is None else gate
            return _Gated.apply(self.raw, gate, self.u, self.v, self.training)  # type: ignore[no-untyped-call, no-any-return]
        normed = _normed(self.raw, self.u, self.v, self.training)
        return normed if gate is None else gate[:, None] * normed


def _iterate(raw: Tensor, u: Tensor, v: Tensor) -> None:
    """Bring u and v closer to the leading singular vectors."""
    torch.mv(raw.T, u, out=v)
    v /= torch.linalg.vector_norm(v).clamp_(min=1e-12)
    torch.mv(raw, v, out=u)
    u /= torch.linalg.vector_norm(u).clamp_(min=1e-12)


def _normed(raw: Tensor, u: Tensor, v: Tensor, training: bool) -> Tensor:
    """raw / sigma with sigma = u^T raw v and constant u, v."""
    if training:
        with torch.no_grad():
            _iterate(raw.detach(), u, v)
    # Copies: the next iteration must not change what the backward pass will read. (Sums, unlike products of matrices,
    # stay in full precision where the rest is computed in half of it.)
    return raw / (u.clone()[:, None] * raw * v.clone()).sum()


class _Gated(torch.autograd.Function):
    """The same by hand, with the gate: it is asked for at every step of every block, and torch's dozen of small
    operations, forward and back, take ten times as long as two passes over the matrix."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, gate: Tensor, u: Tensor, v: Tensor, training: bool) -> Tensor:
        gate, out = gate.contiguous(), torch.empty_like(raw)
        ctx.sigma = _gated(raw.detach().numpy(), gate.detach().numpy(), u.numpy(), v.numpy(), out.numpy(), training)
        # Copies: the next iteration must not change what this backward pass will read.
        ctx.save_for_backward(raw, gate, u.clone(), v.clone())
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        raw, gate, u, v = ctx.saved_tensors
        draw, dgate = torch.empty_like(raw), torch.empty_like(gate)
        g = grads[0].contiguous().numpy()
        its = u.numpy(), v.numpy(), draw.numpy(), dgate.numpy()
        _gated_backward(g, raw.detach().numpy(), gate.detach().numpy(), *its, ctx.sigma)
        return draw, dgate, None, None, None


@kernel
def _gated(raw: Floats, gate: Floats, u: Floats, v: Floats, out: Floats, training: bool) -> np.float32:
    """out = diag(gate) raw / sigma; in training after one power iteration. Returns sigma."""
    rows, columns = raw.shape
    if training:
        v[:] = np.float32(0)
        for i in range(rows):
            for j in range(columns):
                v[j] += u[i] * raw[i, j]
        v /= max(_length(v), np.float32(1e-12))
    sigma = np.float32(0)
    for i in range(rows):
        along = np.float32(0)
        for j in range(columns):
            along += raw[i, j] * v[j]
        if training:
            u[i] = along
        else:
            sigma += u[i] * along
    if training:
        sigma = max(_length(u), np.float32(1e-12))
        u /= sigma
    for i in range(rows):
        factor = gate[i] / sigma
        for j in range(columns):
            out[i, j] = factor * raw[i, j]
    return sigma  # type: ignore[no-any-return]


@kernel
def _gated_backward(
    g: Floats, raw: Floats, gate: Floats, u: Floats, v: Floats, draw: Floats, dgate: Floats, sigma: np.float32
) -> None:
    """With N = raw / sigma: dgate_i = <g_i, N_i>, draw = (gate (.) g - <gate (.) g, N> u v^T) / sigma."""
    rows, columns = raw.shape
    along = np.float32(0)
    for i in range(rows):
        total = np.float32(0)
        for j in range(columns):
            total += g[i, j] * raw[i, j]
        dgate[i] = total / sigma
        along += gate[i] * dgate[i]
    for i in range(rows):
        own, shared = gate[i] / sigma, along * u[i] / sigma
        for j in range(columns):
            draw[i, j] = own * g[i, j] - shared * v[j]


@kernel
def _length(a: Floats) -> np.float32:
    total = np.float32(0)
    for i in range(len(a)):
        total += a[i] * a[i]
    return np.sqrt(total)  # type: ignore[no-any-return]
