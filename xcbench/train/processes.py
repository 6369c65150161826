"""The processes that `torchrun` started: they split every batch, and sum the gradients of what they share."""

from __future__ import annotations

import atexit
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from xcbench.kernels.arrays import Longs
from xcbench.nn import TokenEmbeddings
from xcbench.ranks import process_count
from xcbench.train.devices import use_gpu_of_local_rank

TIMEOUT = timedelta(days=7)
"""How long an operation waits for the other ranks.

While rank 0 predicts and writes, the others wait, and that may take long. If it dies, `torchrun` ends the others, so no
short timeout is needed.
"""


@dataclass(frozen=True)
class Processes:
    """This process within the process group. With a single process, every operation here does nothing."""

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls) -> Processes:
        """Join the process group if `torchrun` (or whoever sets its variables) started several processes."""
        if not dist.is_available() or process_count() == 1:
            return cls()

        if not dist.is_initialized():
            backend = "gloo"
            if torch.cuda.is_available():
                backend = "cpu:gloo,cuda:nccl"
                use_gpu_of_local_rank()
            dist.init_process_group(backend, timeout=TIMEOUT)
            # Left to the interpreter's end, the group's threads may still run when they are torn down, and it aborts.
            atexit.register(_destroy_process_group)

        return cls(dist.get_rank(), dist.get_world_size())

    def shard(self, rows: Longs) -> tuple[Longs, int, bool]:
        """Return this rank's shard of a batch, its offset within the batch, and whether it counts.

        Where a batch has fewer points than there are ranks, some ranks get no shard. Such a rank works on the first
        point, so that it has gradients to send, but its result does not count.
        """
        own = self.part(len(rows))
        if own.start == own.stop:
            return rows[:1], 0, False
        return rows[own], own.start, True

    def part(self, count: int, rank: int | None = None) -> slice:
        """Return which of so many things are a rank's; by default this one's. It may be none."""
        if rank is None:
            rank = self.rank
        return slice(count * rank // self.count, count * (rank + 1) // self.count)

    def sum_over_ranks(self, number: float | Tensor) -> Tensor:
        """Return the sum of a number over all ranks."""
        total = torch.as_tensor(number, dtype=torch.float64).detach().clone()
        if self.count > 1:
            dist.all_reduce(total)
        return total

    def broadcast(self, flag: bool) -> bool:
        """Return the flag of rank 0 on all ranks."""
        flag_of_rank_0 = torch.tensor(flag)
        if self.count > 1:
            dist.broadcast(flag_of_rank_0, 0)
        return bool(flag_of_rank_0)

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.sum_over_ranks(0)

    @torch.no_grad()
    def broadcast_parameters(self, module: nn.Module) -> None:
        """Copy the parameters and buffers of rank 0 to all ranks."""
        if self.count == 1:
            return

        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor, 0)

    @torch.no_grad()
    def all_reduce_gradients(self, module: nn.Module, counts: bool, own: Collection[int] = ()) -> None:
        """Replace every gradient by its sum over all ranks.

        Parameters
        ----------
        module
            The module whose parameters have gradients.
        counts
            What `shard` returned. Rows that were touched only by ranks without a shard are left out.
        own
            The ids of parameters that are not shared: each rank has other rows of them.
        """
        if self.count == 1:
            return

        dense: list[Tensor] = []
        for parameter in module.parameters():
            if parameter.grad is None or id(parameter) in own:
                continue
            if parameter.grad.is_sparse:
                parameter.grad = self._gather_sparse(parameter.grad, counts)
            else:
                dense.append(parameter.grad)

        if dense:
            _all_reduce_dense(dense)
        _all_reduce_touched(module, counts)

    def _gather_sparse(self, gradient: Tensor, counts: bool) -> Tensor:
        """Return the rows of all ranks one after another; the optimiser adds up the rows that occur several times."""
        ids = gradient._indices()[0]
        values = gradient._values()
        if not counts:
            ids = ids[:0]
            values = values[:0]

        sizes = self._gather_sizes(ids)
        ids_by_rank = self._gather_padded(ids, sizes)
        values_by_rank = self._gather_padded(values, sizes)

        return torch.sparse_coo_tensor(
            torch.cat(ids_by_rank)[None],
            torch.cat(values_by_rank),
            gradient.shape,
            check_invariants=False,
        )

    def _gather_sizes(self, ids: Tensor) -> list[int]:
        """Return how many rows each rank has."""
        sizes = [ids.new_zeros(1) for _ in range(self.count)]
        dist.all_gather(sizes, ids.new_full((1,), len(ids)))
        return [int(size) for size in sizes]

    def _gather_padded(self, rows: Tensor, sizes: list[int]) -> list[Tensor]:
        """Return the rows of each rank. `all_gather` needs equal shapes, so they are padded to the largest number."""
        largest = max(sizes)
        row_shape = rows.shape[1:]

        padding = rows.new_zeros(largest - len(rows), *row_shape)
        gathered = [rows.new_zeros(largest, *row_shape) for _ in range(self.count)]
        dist.all_gather(gathered, torch.cat([rows, padding]))

        return [part[:size] for part, size in zip(gathered, sizes, strict=True)]


@torch.compiler.disable
def differentiable_sum(x: Tensor) -> Tensor:
    """Return the sum of x over all ranks, in float32 at least. The gradient of x is the sum of all ranks' gradients."""
    in_full_precision = x.to(torch.promote_types(x.dtype, torch.float32))
    return _Sum.apply(in_full_precision)  # type: ignore[no-untyped-call, no-any-return]


class _Sum(torch.autograd.Function):
    """torch's own form of this was deprecated in favour of one that is private."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _all_reduced(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _all_reduced(grads[0])


def _all_reduced(x: Tensor) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    if not total.is_meta:  # tensors without content, which estimates of memory use
        dist.all_reduce(total)
    return total


def _all_reduce_dense(gradients: list[Tensor]) -> None:
    """Sum dense gradients over all ranks in place, in one message."""
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)

    sizes = [gradient.numel() for gradient in gradients]
    for gradient, part in zip(gradients, torch.split(flat, sizes), strict=True):
        gradient.copy_(part.view_as(gradient))


def _all_reduce_touched(module: nn.Module, counts: bool) -> None:
    """Mark the embedding rows that any rank has touched in this step as touched on all ranks, where Adam asks."""
    for part in module.modules():
        if isinstance(part, TokenEmbeddings) and part.lazy:
            touched = part.touched.to(torch.uint8) * counts
            dist.all_reduce(touched, dist.ReduceOp.MAX)
            part.touched.copy_(touched)


def _destroy_process_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
