"""Labels split over processes, as in Renee: each process has the tables of its own labels, and scores all points.

In a step, each process encodes its share of the points. The vectors of all points are gathered. Each process scores
them against its own labels, and its loss is that of its own (point, label) pairs. So the loss of the batch is a sum
over processes. Gradients of what they share (embeddings, blocks) are summed up; those of label tables stay where they
are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from xcbench.kernels.arrays import Longs
from xcbench.nn.label_parts import LabelPart, LabelRange
from xcbench.train.batches import Points, PreparedBatch
from xcbench.train.processes import Processes

BLOCK_BYTES = 64 << 20
"""Rows of other processes come in messages of at most this size."""

Loss = TypeVar("Loss", bound=Callable[..., Tensor])


def splits_labels(loss: Loss) -> Loss:
    """Mark a method `loss(batch)` as one that can do with a share of a batch; see `Share`.

    It must be a sum over (point, label) pairs, and ask its label side for the labels of the batch only.
    """
    loss.splits_labels = True  # type: ignore[attr-defined]
    return loss


class LabelShards:
    """How the label tables of a module are split over processes.

    Parameters
    ----------
    module
        The module, with the label side `labels`. Its tables are split while it is trained: `split` before, `join`
        afterwards.
    label_count
        The number of all labels.
    processes
        The processes.
    """

    def __init__(self, module: nn.Module, label_count: int, processes: Processes) -> None:
        self.module = module
        self.label_count = label_count
        self.processes = processes
        own = processes.part(label_count)
        self.own = LabelRange(own.start, own.stop)
        self._parts = [
            part
            for part in cast("nn.Module", module.labels).modules()
            if isinstance(part, LabelPart) and part.row_count == label_count
        ]

    @classmethod
    def of(cls, module: nn.Module, label_count: int, processes: Processes) -> LabelShards | None:
        """Return how a module's labels are split; None for a single process, or if its loss needs all labels."""
        if processes.count == 1 or not getattr(module.loss, "splits_labels", False):
            return None
        return cls(module, label_count, processes)

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that are split, by their names in the module."""
        tables = {id(table) for part in self._parts for table in part.label_tables()}
        return {name: p for name, p in self.module.named_parameters() if id(p) in tables}

    def split(self) -> None:
        """Keep the rows of this process's labels only."""
        for part in self._parts:
            for table in part.label_tables():
                table.data = table.data[self.own.first : self.own.last].clone()
            part.keep(self.own)

    @torch.no_grad()
    def join(self) -> None:
        """Give every process the tables of all labels, in main memory, where all of the module goes."""
        self.module.cpu()
        for part in self._parts:
            for table in part.label_tables():
                table.data = self._rows_of_all(table.data)
            part.keep(None)

    def prepare(self, points: Points, rows: Longs, key: int) -> PreparedBatch:
        """Return this process's share of a batch; see `Points.prepare`."""
        return points.prepare_share(rows, key, self.processes.part(len(rows)), self.own)

    def _rows_of_all(self, rows: Tensor) -> Tensor:
        whole = rows.new_empty(self.label_count, *rows.shape[1:])
        whole[self.own.first : self.own.last] = rows
        for rank in range(self.processes.count):
            for block in self._blocks(whole[self.processes.part(self.label_count, rank)]):
                dist.broadcast(block, rank)
        return whole

    @torch.no_grad()
    def collect(self, rows: Tensor, folder: Path) -> Tensor | None:
        """Return the rows of all processes on rank 0, and None on other ranks.

        They are in a nameless file in a folder, mapped to memory, since rank 0 may not have as much memory.
        """
        if self.processes.rank > 0:
            for block in self._blocks(rows):
                dist.send(block.cpu(), 0)
            return None

        shape = (self.label_count, *rows.shape[1:])
        whole = _table_in_file(shape, rows.dtype, folder)
        whole[self.own.first : self.own.last] = rows
        for rank in range(1, self.processes.count):
            for block in self._blocks(whole[self.processes.part(self.label_count, rank)]):
                dist.recv(block, rank)
        return whole

    def _blocks(self, rows: Tensor) -> Sequence[Tensor]:
        if len(rows) == 0:
            return ()
        bytes_per_row = rows[:1].nbytes
        return torch.split(rows, max(1, BLOCK_BYTES // bytes_per_row))


def _table_in_file(shape: tuple[int, ...], dtype: torch.dtype, folder: Path) -> Tensor:
    """Return a table of zeros whose memory is a file. The file has no name, and ends with the table."""
    array_dtype = torch.empty(0, dtype=dtype).numpy().dtype
    with tempfile.TemporaryFile(dir=folder) as file:
        return torch.from_numpy(np.memmap(file, array_dtype, "w+", shape=shape))
