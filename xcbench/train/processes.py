"""Data-parallel training: processes that `torchrun` started share every batch and add up their gradients."""

from __future__ import annotations

import atexit
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from xcbench.kernels.parallel import Longs
from xcbench.nn import TokenEmbeddings
from xcbench.ranks import process_count

PATIENCE = timedelta(days=7)
"""While the first process predicts and writes, the others wait. If it dies, `torchrun` ends them; no clock need."""


@dataclass(frozen=True)
class Processes:
    """This process among its equals; alone, every operation here does nothing."""

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls) -> Processes:
        """Meet the others, if `torchrun` (or anybody who sets its variables) started any."""
        if not dist.is_available() or process_count() == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
            # Left to the interpreter's end, the group's threads may still run when they are torn down, and it aborts.
            atexit.register(_leave)
        return cls(dist.get_rank(), dist.get_world_size())

    def share(self, rows: Longs) -> tuple[Longs, int, bool]:
        """This process's part of a batch, where in the batch it begins, and whether it counts.

        A process for which nothing is left works on a point that does not count, so that it has gradients to send.
        """
        bounds = np.linspace(0, len(rows), self.count + 1).astype(np.int64)
        first, last = bounds[self.rank], bounds[self.rank + 1]
        if first == last:
            return rows[:1], 0, False
        return rows[first:last], int(first), True

    def sum_over_ranks(self, number: float | Tensor) -> Tensor:
        """The sum of a number over all processes."""
        total = torch.as_tensor(number, dtype=torch.float64).detach().clone()
        if self.count > 1:
            dist.all_reduce(total)
        return total

    def broadcast(self, word: bool) -> bool:
        """The first process's word, in all of them."""
        said = torch.tensor(word)
        if self.count > 1:
            dist.broadcast(said, 0)
        return bool(said)

    def barrier(self) -> None:
        """Wait until all are here."""
        self.sum_over_ranks(0)

    @torch.no_grad()
    def broadcast_parameters(self, module: nn.Module) -> None:
        """Give every process the parameters and buffers of the first."""
        if self.count > 1:
            for t in (*module.parameters(), *module.buffers()):
                dist.broadcast(t, 0)

    @torch.no_grad()
    def add_gradients(self, module: nn.Module, counts: bool) -> None:
        """Replace every gradient by its sum over all processes. Rows that only a point without weight met are left."""
        if self.count == 1:
            return
        dense: list[Tensor] = []
        for p in module.parameters():
            if p.grad is not None and p.grad.is_sparse:
                p.grad = self._gathered(p.grad, counts)
            elif p.grad is not None:
                dense.append(p.grad)
        if dense:
            flat = torch.cat([g.reshape(-1) for g in dense])
            dist.all_reduce(flat)
            for g, part in zip(dense, torch.split(flat, [g.numel() for g in dense]), strict=True):
                g.copy_(part.view_as(g))
        for m in module.modules():
            if isinstance(m, TokenEmbeddings):
                touched = m.touched.to(torch.uint8) * counts
                dist.all_reduce(touched, dist.ReduceOp.MAX)
                m.touched.copy_(touched)

    def _gathered(self, grad: Tensor, counts: bool) -> Tensor:
        """Rows of all processes one after another; the optimiser adds up those that are the same."""
        ids, values = grad._indices()[0][: None if counts else 0], grad._values()[: None if counts else 0]
        sizes = [ids.new_zeros(1) for _ in range(self.count)]
        dist.all_gather(sizes, ids.new_full((1,), len(ids)))
        most = int(max(sizes))
        all_ids = [ids.new_zeros(most) for _ in range(self.count)]
        all_values = [values.new_zeros(most, *values.shape[1:]) for _ in range(self.count)]
        dist.all_gather(all_ids, torch.cat([ids, ids.new_zeros(most - len(ids))]))
        dist.all_gather(all_values, torch.cat([values, values.new_zeros(most - len(ids), *values.shape[1:])]))
        keep = [int(size) for size in sizes]
        return torch.sparse_coo_tensor(
            torch.cat([t[:n] for t, n in zip(all_ids, keep, strict=True)])[None],
            torch.cat([t[:n] for t, n in zip(all_values, keep, strict=True)]),
            grad.shape,
            check_invariants=False,
        )


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
