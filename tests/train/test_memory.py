"""Free memory: what a GPU's driver has left and what torch keeps for later. What a training needs, and where."""

import pytest
import torch
from torch import nn

from tests.stand_in_device import DEVICE
from tests.train.test_on_device import decaf_toy
from tests.train.toys import parameters, same
from xcbench.errors import XCBenchError
from xcbench.kernels.allocations import MetaAllocations
from xcbench.kernels.memory import MemoryEstimate, free_memory
from xcbench.nn.dropout import POOL
from xcbench.train import estimate_memory
from xcbench.train.memory import check_fits

GPU = torch.device("cuda", 0)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of 100 bytes: 20 are free for the driver, 70 are reserved by torch, and 40 of these are in use."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 70)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 40)


def test_blocks_that_torch_keeps_are_free(gpu):
    assert free_memory(GPU) == 50


def test_each_memory_is_compared_with_its_own(gpu):
    there = MemoryEstimate({"data": 1000, "batches": 1000}, "cuda:0", {"parameters": 50})
    check_fits(there, "extreme", GPU)
    too_much = MemoryEstimate({"data": 0, "batches": 0}, "cuda:0", {"parameters": 30, "a step": 21})
    with pytest.raises(XCBenchError, match=r"extreme needs about .* more memory on cuda:0, and .* are free"):
        check_fits(too_much, "extreme", GPU)
    batches = MemoryEstimate({"data": 0, "batches": 1 << 60}, "cuda:0", {"parameters": 1})
    with pytest.raises(XCBenchError, match=r"extreme needs about .* more memory on cpu"):
        check_fits(batches, "extreme", GPU)


def test_both_memories_are_named():
    estimate = MemoryEstimate({"data": 3 << 20}, "cuda:0", {"parameters": 2 << 30, "a step": 1 << 30})
    assert str(estimate) == (
        "3.0 GiB (parameters 2.0 GiB, a step 1.0 GiB) on cuda:0 and 3 MiB (data 3 MiB) in main memory"
    )
    assert estimate.on_device == 3 << 30
    assert estimate.in_main_memory == 3 << 20


@pytest.mark.parametrize("frozen", [True, False])
def test_what_stays_on_a_device_counts(frozen):
    task, points = decaf_toy(shortlists=True, frozen=frozen)
    there = estimate_memory(task, points, 16, DEVICE)
    trained = sum(p.nbytes for p in task.parameters())
    assert there["Adam"] == 2 * trained
    assert there["parameters"] == trained + sum(b.nbytes for b in task.buffers())
    if frozen:
        constant = points.X.nbytes
    else:
        Z = task.labels.text.Z
        constant = Z.indptr.nbytes + 8 * len(Z.indices) + Z.data.nbytes  # columns as int64
    pool = 2 * len(POOL)
    assert there["tables"] in (constant, constant + pool)  # the pool of dropout comes once for all modules
    assert all(p.device.type == "cpu" for p in (*task.parameters(), *task.buffers()))


def test_batches_count_in_main_memory():
    task, points = decaf_toy(shortlists=True, frozen=True)
    small = estimate_memory(task, points, 16, DEVICE)
    large = estimate_memory(task, points, 32, DEVICE)
    assert small["data"] == large["data"] == estimate_memory(task, points, 16)["data"]
    assert 1.5 < large["batches"] / small["batches"] < 2.5


def test_estimating_changes_no_parameter_and_no_mask():
    task, points = decaf_toy(shortlists=True, frozen=False)
    before = parameters(task)
    buffers = [buffer.clone() for buffer in task.buffers()]
    estimate_memory(task, points, 16, DEVICE)
    assert same(parameters(task), before)
    assert all(torch.equal(a, b) for a, b in zip(task.buffers(), buffers, strict=True))
    assert all(p.grad is None for p in task.parameters())


class ValueLoss(nn.Module):
    """A loss that reads a value, which tensors without content do not have."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(40, 8))

    def loss(self, batch):
        return self.w.sum() * float(self.w.detach().sum())


def test_a_loss_that_reads_values_is_estimated_from_shapes():
    _, points = decaf_toy(shortlists=True, frozen=True)
    there = estimate_memory(ValueLoss(), points, 16, DEVICE)
    assert there["Adam"] == 2 * 4 * 40 * 8
    assert there["gradients"] == 4 * 40 * 8
    assert there["tables"] == points.X.nbytes


def test_allocations_count_memory_once_and_until_it_is_freed():
    with MetaAllocations() as allocations:
        x = torch.empty(10, 4, device="meta")
        part = x[:2].T
        y = x + 1
        assert allocations.living == 320
        del y
        assert allocations.living == 160
        del x
        assert allocations.living == 160  # `part` still needs it
        del part
    assert allocations.living == 0
    assert allocations.peak == 320
