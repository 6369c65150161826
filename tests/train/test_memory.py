"""Free memory: what a GPU's driver has left and what torch keeps for later; features that are copied to a device."""

import pytest
import torch

from tests.stand_in_device import DEVICE
from tests.train.test_on_device import decaf_toy
from xcbench.errors import XCBenchError
from xcbench.kernels.memory import MemoryEstimate
from xcbench.train import estimate_memory
from xcbench.train.memory import check_fits, free_memory

GPU = torch.device("cuda", 0)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of 100 bytes: 20 are free for the driver, 70 are reserved by torch, and 40 of these are in use."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 70)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 40)


def test_blocks_that_torch_keeps_are_free(gpu):
    assert free_memory(GPU) == 50
    check_fits(MemoryEstimate({"parameters": 50, "data": 1000}), "extreme", GPU)
    with pytest.raises(XCBenchError, match=r"extreme needs about .* more memory on cuda:0"):
        check_fits(MemoryEstimate({"parameters": 51, "data": 1000}), "extreme", GPU)


def test_dense_features_count_on_a_device():
    task, points = decaf_toy(shortlists=True, frozen=True)
    on_cpu = estimate_memory(task, points, 16)
    there = estimate_memory(task, points, 16, DEVICE)
    assert there.total - on_cpu.total == points.X.nbytes
    task, points = decaf_toy(shortlists=True, frozen=False)
    assert estimate_memory(task, points, 16, DEVICE).total == estimate_memory(task, points, 16).total
