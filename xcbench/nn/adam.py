"""Adam for modules in which a step touches a few rows of large tables, and all of every other parameter.

A row-sparse gradient updates the moments and weights of its own rows only. Other rows stay as they are, moments
included. `LabelBank`, torch layers with sparse gradients and `TokenEmbeddings(lazy=True)` have such gradients. The step
count that corrects the bias of the moments counts all steps, as in torch's SparseAdam.

There is one difference from SparseAdam: epsilon is added to the bias-corrected root, as in Adam. So a table whose rows
are all touched learns exactly as under dense Adam. The two agree wherever gradients are large compared with epsilon.

Weight decay is that of AdamW: every row of a matrix shrinks at every step, touched or not. A row that a step does not
touch is multiplied later, when it is next read, by all that it owes. So the module never sees a row that is out of
date, and no step sweeps a table.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.utils.hooks import RemovableHandle

from xcbench.kernels.arrays import Floats, Longs
from xcbench.kernels.csr import SparseRows
from xcbench.kernels.parallel import kernel, share_rows
from xcbench.nn.device_arrays import on_device
from xcbench.nn.dropout import kernels_support
from xcbench.nn.embeddings import LabelBank, TokenEmbeddings


class Adam:
    """Adam over the trainable parameters of a module.

    Parameters
    ----------
    module
        The module whose parameters with `requires_grad` are updated.
    lr
        The learning rate. It may be changed between steps by assigning to the attribute.
    betas
        Decay of the first and of the second moment.
    eps
        Added to the bias-corrected root of the second moment.
    lr_factors
        Multiplies the learning rate of the parameters that it names; others have the factor 1.
    weight_decay
        At each step, a matrix is multiplied by 1 - lr weight_decay, as in AdamW. Vectors and numbers (biases, gates,
        norms) are not.
    names
        The parameters that are updated; None for all.
    """

    def __init__(
        self,
        module: nn.Module,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        lr_factors: Mapping[str, float] | None = None,
        weight_decay: float = 0.0,
        names: Collection[str] | None = None,
    ) -> None:
        self.lr = lr
        self.betas = betas
        self.eps = eps
        self.lr_factors = lr_factors or {}
        self.weight_decay = weight_decay
        self.steps = 0

        self.parameters: dict[str, nn.Parameter] = {}
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and (names is None or name in names):
                self.parameters[name] = parameter
                self.moments[name] = (torch.zeros_like(parameter), torch.zeros_like(parameter))

        self._embeddings = {id(part.weight): part for part in module.modules() if isinstance(part, TokenEmbeddings)}
        self._owed: dict[str, Tensor] = {}  # by table: the logarithm of the factor that each row still has to take
        self._debtors: set[str] = set()  # the tables of which some rows owe something
        self._hooks: list[RemovableHandle] = []
        self._watch_tables(module)

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient, and clear the gradients."""
        self.steps += 1
        dense: dict[float, list[str]] = defaultdict(list)  # names by the factor of their learning rate
        for name, parameter in self.parameters.items():
            if parameter.grad is None:
                continue

            self._decay(name)
            table = self._embeddings.get(id(parameter))
            if table is not None and (table.lazy or kernels_support(parameter)):
                self._update_embeddings(name, table)
            elif parameter.grad.is_sparse:
                self._update_rows(name, *_summed_rows(parameter.grad))
                parameter.grad = None
            else:
                self._pay(name, None)
                dense[self._lr_factor(name)].append(name)

        for factor, names in dense.items():
            self._update_dense(names, factor * self.lr)

    def state(self) -> dict[str, Tensor]:
        """Return both moments of every parameter, `NAME.m` and `NAME.v`, and the decay that rows owe, `NAME.owed`."""
        state = {}
        for name, (m, v) in self.moments.items():
            state[f"{name}.m"] = m
            state[f"{name}.v"] = v
        for name, owed in self._owed.items():
            state[f"{name}.owed"] = owed
        return state

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Continue from the moments that `state` returned after so many steps."""
        for name, moment in self.state().items():
            moment.copy_(state[name])
        self.steps = steps

    def settle(self) -> None:
        """Let every row take the decay that it owes, before somebody reads the tables themselves."""
        for name in self._owed:
            self._pay(name, None)

    def close(self) -> None:
        """Settle, and watch the module no longer."""
        self.settle()
        for hook in self._hooks:
            hook.remove()

    def _watch_tables(self, module: nn.Module) -> None:
        """Have the rows of row-sparse tables take what they owe before they are read."""
        names = {id(parameter): name for name, parameter in self.parameters.items()}
        for part in module.modules():
            if not isinstance(part, LabelBank | TokenEmbeddings) or id(part.weight) not in names:
                continue
            name = names[id(part.weight)]
            if self._has_decay(name) and _has_sparse_updates(part):
                self._owed[name] = torch.zeros(len(part.weight), dtype=torch.float64, device=part.weight.device)
                self._debtors.add(name)  # a checkpoint may say so
                self._hooks.append(part.register_forward_pre_hook(self._payment(name)))

    def _payment(self, name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        """Return what a table calls with the rows that it is about to return."""

        def pay(table: nn.Module, arguments: tuple[Any, ...]) -> None:
            rows = arguments[0] if arguments else None
            if isinstance(table, LabelBank):
                rows = table.rows_of(rows)
            self._pay(name, _rows_read(rows, self.parameters[name].device))

        return pay

    def _has_decay(self, name: str) -> bool:
        return self.weight_decay > 0 and self.parameters[name].dim() > 1

    def _decay(self, name: str) -> None:
        """Shrink a matrix, or note what its rows owe."""
        if not self._has_decay(name):
            return
        kept = 1 - self._lr_factor(name) * self.lr * self.weight_decay
        if name in self._owed:
            self._owed[name] += math.log(kept)
            self._debtors.add(name)
        else:
            self.parameters[name].mul_(kept)

    @torch.no_grad()
    def _pay(self, name: str, rows: Tensor | None) -> None:
        """Multiply some rows, or all, by what they owe."""
        if name not in self._debtors:
            return
        table = self.parameters[name]
        owed = self._owed[name]
        if rows is None:
            table.mul_(owed.exp()[:, None].to(table.dtype))
            owed.zero_()
            self._debtors.remove(name)
            return
        factors = owed[rows].exp()
        table[rows] *= factors[:, None].to(table.dtype)
        owed[rows] = 0

    def _lr_factor(self, name: str) -> float:
        return self.lr_factors.get(name, 1.0)

    def _update_embeddings(self, name: str, table: TokenEmbeddings) -> None:
        grad = table.weight.grad
        assert grad is not None
        if not kernels_support(grad):
            self._update_touched(name, table.touched, grad)
            grad.zero_()
        elif table.lazy:
            self._update_rows(name, table.touched.nonzero()[:, 0], grad, grad_of_all_rows=True)
        else:
            self._update_rows(name, torch.arange(len(grad)), grad, grad_of_all_rows=True)
        table.touched.zero_()

    def _update_touched(self, name: str, touched: Tensor, grad: Tensor) -> None:
        """Update the touched rows of a table by passing over all rows, so that nobody waits to know which they are."""
        p = self.parameters[name]
        m, v = self.moments[name]
        b1, b2 = self.betas
        lr, root_factor = self._corrected(name)
        counts = touched[:, None].to(grad.dtype)  # 1 for touched rows, and 0 for others, whose gradient is 0

        m.lerp_(grad, counts * (1 - b1))
        v.mul_(1 - counts * (1 - b2)).addcmul_(grad, grad, value=1 - b2)
        p.addcdiv_(m * counts, v.sqrt().mul_(root_factor).add_(self.eps), value=-lr)

    def _corrected(self, name: str) -> tuple[float, float]:
        """Return the learning rate and the factor of the root, which correct the bias of the two moments."""
        b1, b2 = self.betas
        lr = self._lr_factor(name) * self.lr / (1 - b1**self.steps)
        return lr, 1 / math.sqrt(1 - b2**self.steps)

    def _update_rows(self, name: str, rows: Tensor, grad: Tensor, grad_of_all_rows: bool = False) -> None:
        """Update some rows of a table; see the kernel for `grad_of_all_rows`."""
        self._pay(name, rows)
        p = self.parameters[name]
        m, v = self.moments[name]
        b1, b2 = self.betas
        lr, root_factor = self._corrected(name)

        if kernels_support(p, grad):
            self._update_rows_on_kernel(p, m, v, grad, rows, grad_of_all_rows, lr, root_factor)
            return

        # A row that occurs several times has the same gradient each time, and so is given the same values each time.
        m_rows = m[rows].lerp(grad, 1 - b1)
        v_rows = v[rows].mul_(b2).addcmul_(grad, grad, value=1 - b2)
        m[rows] = m_rows
        v[rows] = v_rows
        p[rows] -= lr * m_rows / (v_rows.sqrt() * root_factor + self.eps)

    def _update_rows_on_kernel(
        self,
        p: Tensor,
        m: Tensor,
        v: Tensor,
        grad: Tensor,
        rows: Tensor,
        grad_of_all_rows: bool,
        lr: float,
        root_factor: float,
    ) -> None:
        b1, b2 = self.betas
        P = _as_matrix(p)
        share_rows(
            _adam_rows,
            len(rows),
            len(rows) * P.shape[1],
            P,
            _as_matrix(m),
            _as_matrix(v),
            _as_matrix(grad),
            rows,
            grad_of_all_rows,
            np.float32(b1),
            np.float32(1 - b1),
            np.float32(b2),
            np.float32(1 - b2),
            np.float32(lr),
            np.float32(root_factor),
            np.float32(self.eps),
        )

    def _update_dense(self, names: list[str], lr: float) -> None:
        parameters: list[Tensor] = [self.parameters[name] for name in names]
        adam(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [self.moments[name][0] for name in names],
            [self.moments[name][1] for name in names],
            [],
            [torch.full((), self.steps - 1.0, device=parameter.device) for parameter in parameters],
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=lr,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )
        for parameter in parameters:
            parameter.grad = None


def _has_sparse_updates(table: LabelBank | TokenEmbeddings) -> bool:
    """Whether a step may leave rows of a table as they are, without passing over them."""
    if isinstance(table, LabelBank):
        return True
    return table.lazy and kernels_support(table.weight)


def _rows_read(read: Longs | SparseRows | None, device: torch.device) -> Tensor | None:
    """Return the rows that a table is asked for; None for all."""
    if read is None:
        return None
    if isinstance(read, SparseRows):
        return torch.from_numpy(read.by_column.columns.astype(np.int64))
    rows: Tensor = on_device(read, device)
    return rows


def _as_matrix(tensor: Tensor) -> Floats:
    """Return a view with one row per row of the tensor: a vector becomes a matrix of one column."""
    array: Floats = tensor.detach().numpy()
    return array.reshape(len(array), math.prod(array.shape[1:]))


def _summed_rows(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and values of a sparse gradient. Where a row occurs several times, each time has the whole sum."""
    if grad.device.type == "cpu":
        return _unique_rows(grad)

    # On another device, whether rows repeat is not known without waiting. So a row keeps all its places.
    rows, order = grad._indices()[0].sort()
    values = grad._values()[order]
    is_new = rows != rows.roll(1)
    group = is_new.cumsum(0) - is_new[:1].long()
    sums = torch.zeros_like(values).index_add_(0, group, values)
    return rows, sums[group]


def _unique_rows(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and values of a sparse gradient, in which each row occurs once.

    torch sorts and copies every gradient that is not marked as coalesced, and the mark is lost when gradients are
    accumulated. Our gradients come sorted, so this looks before it sorts.
    """
    rows = grad._indices()[0]
    is_sorted = bool((rows[1:] > rows[:-1]).all())
    if not is_sorted:
        grad = grad.coalesce()
    return grad._indices()[0], grad._values()


@kernel
def _adam_rows(
    first: int,
    last: int,
    p: Floats,
    m: Floats,
    v: Floats,
    grad: Floats,
    rows: Longs,
    grad_of_all_rows: bool,
    b1: np.float32,
    b1_rest: np.float32,
    b2: np.float32,
    b2_rest: np.float32,
    lr: np.float32,
    root_factor: np.float32,
    eps: np.float32,
) -> None:
    """Update rows[first] to rows[last - 1].

    `grad` has one row per updated row; or, with `grad_of_all_rows`, one row per row of the table. The latter is set
    back to zero while it is in cache. 1 - b is passed separately: computed in 32 bits, 1 - 0.999 is wrong in its fifth
    digit.
    """
    for k in range(first, last):
        row = np.uint64(rows[k])
        p_row = p[row]
        m_row = m[row]
        v_row = v[row]
        g_row = grad[row if grad_of_all_rows else np.uint64(k)]
        for j in range(len(p_row)):
            g = g_row[j]
            mean = b1 * m_row[j] + b1_rest * g
            square = b2 * v_row[j] + b2_rest * g * g
            m_row[j] = mean  # `mean` and `square` are used again below: reading them back would cost a third more
            v_row[j] = square
            p_row[j] -= lr * mean / (np.sqrt(square) * root_factor + eps)
            if grad_of_all_rows:
                g_row[j] = np.float32(0)
