"""Row-sparse Adam against torch's, on a table of which a step touches one row in twenty."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.figure import Figure, grown_bytes, seconds
from xcbench.nn import Adam, LabelBank
from xcbench.threads import set_threads

L, D, TOUCHED = 100_000, 300, 5_000


def measure() -> Iterator[Figure]:
    set_threads(2)
    rows = torch.from_numpy(np.sort(np.random.default_rng(0).choice(L, TOUCHED, replace=False)))
    values = torch.randn(TOUCHED, D)
    bank, table = LabelBank(L, D, torch.randn(L, D)), nn.Parameter(torch.randn(L, D))
    ours = stepper(bank.weight, Adam(bank).step, rows, values)
    theirs = stepper(table, torch.optim.SparseAdam([table]).step, rows, values)
    ours(), theirs()
    grown = [grown_bytes(work) / (values.nbytes + rows.nbytes) for work in (ours, theirs)]
    both = [(seconds(ours, 3), seconds(theirs, 3)) for _ in range(5)]
    mine, reference = (min(times) * 1e3 for times in zip(*both, strict=True))
    moved = 7 * 4 * TOUCHED * D  # weights and moments read and written, gradients read
    note = (
        f"{moved / mine / 1e6:.1f} GB/s; memory grows by {grown[0]:.1f}x the gradient in a step, "
        f"where torch's copies of its rows take {grown[1]:.1f}x"
    )
    yield Figure(
        f"Adam step on {TOUCHED:,} of {L:,} rows x {D}", mine, reference, "ms", "torch.optim.SparseAdam", 5.0, note
    )


def stepper(p: nn.Parameter, step: Callable[[], object], rows: Tensor, values: Tensor) -> Callable[[], None]:
    """A step on a gradient that says of itself that its rows are unique, as both sides like it best."""

    def work() -> None:
        p.grad = torch.sparse_coo_tensor(rows[None], values, p.shape, is_coalesced=True, check_invariants=False)
        step()

    return work
