"""Adam for modules in which a step touches a few rows of large tables and all of everything else.

A row-sparse gradient (`LabelBank`, any torch layer with sparse gradients, `TokenEmbeddings(lazy=True)`) updates
moments and weights of its own rows only; the others stay as they are, moments included. The number of the step that
corrects the moments' bias counts all steps, as in torch's SparseAdam. What differs from SparseAdam is where epsilon
stands: here as in Adam, beside the corrected root, so that a table whose rows are all touched learns exactly as under
dense Adam. The two agree wherever gradients are large against epsilon.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from xcbench.kernels.parallel import Floats, Longs, kernel, share_rows
from xcbench.nn.dropout import fusable
from xcbench.nn.embeddings import TokenEmbeddings


class Adam:
    """Adam over the trainable parameters of a module. Its state is a dictionary of tensors and a step count.

    `rates` multiplies the learning rate of the parameters that it names.
    """

    def __init__(
        self, module: nn.Module, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        rates: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.lr, self.betas, self.eps, self.rates = lr, betas, eps, rates or {}
        self.steps = 0
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in self.parameters.items()}
        self._embeddings = {id(m.weight): m for m in module.modules() if isinstance(m, TokenEmbeddings)}

    @torch.no_grad()
    def step(self) -> None:
        """Update everything that has a gradient, and clear the gradients."""
        self.steps += 1
        dense: dict[float, list[str]] = defaultdict(list)
        for name, p in self.parameters.items():
            if p.grad is None:
                continue
            table = self._embeddings.get(id(p))
            if table is not None and (table.lazy or fusable(p)):
                self._update_embeddings(name, table)
            elif p.grad.is_sparse:
                self._update_rows(name, *_unique_rows(p.grad))
                p.grad = None
            else:
                dense[self.rates.get(name, 1.0)].append(name)
        for rate, names in dense.items():
            self._update_dense(names, rate * self.lr)

    def state(self) -> dict[str, Tensor]:
        """Both moments of every parameter, by name."""
        return {
            f"{name}.{which}": t for name, pair in self.moments.items() for which, t in zip("mv", pair, strict=True)
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Continue where a checkpoint left off."""
        for name, t in self.state().items():
            t.copy_(state[name])
        self.steps = steps

    def _update_embeddings(self, name: str, table: TokenEmbeddings) -> None:
        grad = table.weight.grad
        assert grad is not None
        rows = table.touched.nonzero()[:, 0] if table.lazy else torch.arange(len(grad))
        if fusable(grad):
            self._update_rows(name, rows, grad, grad_by_row=True)
        else:
            self._update_rows(name, rows, grad[rows])
            grad.zero_()
        table.touched.zero_()

    def _update_rows(self, name: str, rows: Tensor, grad: Tensor, grad_by_row: bool = False) -> None:
        p, (m, v) = self.parameters[name], self.moments[name]
        b1, b2 = self.betas
        rate = self.rates.get(name, 1.0) * self.lr / (1 - b1**self.steps)
        root = 1 / math.sqrt(1 - b2**self.steps)
        if fusable(p, grad):
            P, M, V, G = (t.detach().numpy().reshape(len(t), -1) for t in (p, m, v, grad))
            f = np.float32
            numbers = f(b1), f(1 - b1), f(b2), f(1 - b2), f(rate), f(root), f(self.eps)
            share_rows(_adam_rows, len(rows), len(rows) * P.shape[1], P, M, V, G, rows, grad_by_row, *numbers)
            return
        m_rows = m[rows].lerp(grad, 1 - b1)
        v_rows = v[rows].mul_(b2).addcmul_(grad, grad, value=1 - b2)
        m[rows], v[rows] = m_rows, v_rows
        p[rows] -= rate * m_rows / (v_rows.sqrt() * root + self.eps)

    def _update_dense(self, names: list[str], lr: float) -> None:
        p: list[Tensor] = [self.parameters[name] for name in names]
        grads = [t.grad for t in p if t.grad is not None]
        m, v = zip(*(self.moments[name] for name in names), strict=True)
        adam(
            p, grads, list(m), list(v), [], [torch.full((), self.steps - 1.0, device=t.device) for t in p],
            fused=True, amsgrad=False, beta1=self.betas[0], beta2=self.betas[1], lr=lr, weight_decay=0.0,
            eps=self.eps, maximize=False,
        )  # fmt: skip
        for t in p:
            t.grad = None


def _unique_rows(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and values of a sparse gradient, each row once. Ours come sorted, and then there is nothing to do:
    torch sorts and copies unless a gradient says that it is coalesced, which none does once it has been accumulated.
    """
    rows = grad._indices()[0]
    if not bool((rows[1:] > rows[:-1]).all()):
        grad = grad.coalesce()
    return grad._indices()[0], grad._values()


@kernel
def _adam_rows(
    first: int, last: int, p: Floats, m: Floats, v: Floats, grad: Floats, rows: Longs, grad_by_row: bool,
    b1: np.float32, b1_rest: np.float32, b2: np.float32, b2_rest: np.float32, rate: np.float32, root: np.float32,
    eps: np.float32,
) -> None:  # fmt: skip
    """Row k of `grad` belongs to rows[k]; or, by row, row rows[k] does, and is set back to zero while it is at hand.

    1 - b comes separately: taken in 32 bits, 1 - 0.999 is wrong in its fifth digit.
    """
    for k in range(first, last):
        row = np.uint64(rows[k])
        p_row, m_row, v_row, g_row = p[row], m[row], v[row], grad[row if grad_by_row else np.uint64(k)]
        for j in range(len(p_row)):
            g = g_row[j]
            mean, square = b1 * m_row[j] + b1_rest * g, b2 * v_row[j] + b2_rest * g * g
            m_row[j], v_row[j] = mean, square  # kept at hand below: read back, they would cost a third more
            p_row[j] -= rate * mean / (np.sqrt(square) * root + eps)
            if grad_by_row:
                g_row[j] = np.float32(0)
