"""Row-sparse Adam against torch's, on a table of which a step touches one row in twenty."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.figure import Figure, grown_bytes, seconds
from xcbench.nn import Adam, LabelBank
from xcbench.threads import set_threads

L = 100_000
D = 300
TOUCHED = 5_000


def measure() -> Iterator[Figure]:
    set_threads(2)
    generator = np.random.default_rng(0)
    rows = torch.from_numpy(np.sort(generator.choice(L, TOUCHED, replace=False)))
    values = torch.randn(TOUCHED, D)

    bank = LabelBank(L, D, torch.randn(L, D))
    table = nn.Parameter(torch.randn(L, D))
    our_step = stepper(bank.weight, Adam(bank).step, rows, values)
    torch_step = stepper(table, torch.optim.SparseAdam([table]).step, rows, values)
    our_step()
    torch_step()

    gradient_bytes = values.nbytes + rows.nbytes
    our_growth = grown_bytes(our_step) / gradient_bytes
    torch_growth = grown_bytes(torch_step) / gradient_bytes

    our_times = []
    torch_times = []
    for _ in range(5):  # in turn: what disturbs one disturbs the other
        our_times.append(seconds(our_step, 3))
        torch_times.append(seconds(torch_step, 3))
    ours = min(our_times) * 1e3

    moved = 7 * 4 * TOUCHED * D  # weights and moments read and written, gradients read
    yield Figure(
        what=f"Adam step on {TOUCHED:,} of {L:,} rows x {D}",
        ours=ours,
        reference=min(torch_times) * 1e3,
        unit="ms",
        reference_name="torch.optim.SparseAdam",
        at_least=5.0,
        note=f"{moved / ours / 1e6:.1f} GB/s; memory grows by {our_growth:.1f}x the gradient in a step, "
        f"where torch's copies of its rows take {torch_growth:.1f}x",
    )


def stepper(
    parameter: nn.Parameter,
    step: Callable[[], object],
    rows: Tensor,
    values: Tensor,
) -> Callable[[], None]:
    """A step on a gradient that is marked as coalesced, which is fastest for both sides."""

    def work() -> None:
        parameter.grad = torch.sparse_coo_tensor(
            rows[None],
            values,
            parameter.shape,
            is_coalesced=True,
            check_invariants=False,
        )
        step()

    return work
