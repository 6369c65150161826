import time
from collections import namedtuple

import numpy as np
import pytest
import torch

from xcbench.runner import meter as meter_module
from xcbench.runner.meter import Meter

CpuTimes = namedtuple("CpuTimes", ["user", "system", "idle", "iowait", "guest"])


class FakeGPU:
    """torch's account of a GPU's memory."""

    def __init__(self):
        self.allocated = 0
        self.peak = 0

    def allocate(self, count):
        self.allocated += count
        self.peak = max(self.peak, self.allocated)

    def free(self, count):
        self.allocated -= count

    def reset_peak(self):
        self.peak = self.allocated


@pytest.fixture
def gpu(monkeypatch):
    fake = FakeGPU()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: fake.peak)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", fake.reset_peak)
    return fake


def test_a_peak_inside_the_block_is_seen_although_it_is_gone_at_the_end():
    with Meter() as quiet:
        time.sleep(0.05)
    size = quiet.peak_memory + (1 << 28)  # beyond whatever this process reached before
    with Meter() as meter:
        block = np.ones(size, np.uint8)
        del block
    assert meter.peak_memory > size
    assert meter.seconds > 0
    assert quiet.seconds >= 0.05
    assert quiet.peak_memory < size


def test_a_block_never_needs_less_than_a_block_within_it(monkeypatch):
    with Meter() as outer:
        with Meter() as middle, Meter() as inner:
            monkeypatch.setattr(inner, "peak_memory", 1 << 50)  # a moment that only the inner sampler saw
        with Meter() as later:
            pass
    assert outer.peak_memory == middle.peak_memory == inner.peak_memory == 1 << 50
    assert later.peak_memory < 1 << 50


def test_each_block_has_its_own_peak_of_device_memory(gpu):
    gpu.allocate(1000)
    gpu.free(900)  # before any block, so it counts in none
    with Meter() as outer:
        gpu.allocate(300)
        gpu.free(300)
        with Meter() as first:
            gpu.allocate(50)
            gpu.free(50)
        with Meter() as second:
            gpu.allocate(200)
            gpu.free(200)
        gpu.allocate(10)
    assert first.peak_device_memory == 150
    assert second.peak_device_memory == 300
    assert outer.peak_device_memory == 400


def test_without_a_gpu_there_is_no_device_memory():
    with Meter() as meter:
        pass
    assert meter.peak_device_memory == 0


def test_other_load_is_what_the_machine_did_less_what_this_process_did(monkeypatch):
    """In two seconds on the clock the machine was busy for five, of which this process and its children took two."""
    machine = iter([cpu_times(100.0), cpu_times(105.0)])
    monkeypatch.setattr(meter_module.psutil, "cpu_times", lambda: next(machine))
    own = iter([(10.0, 1.0, 3.0, 0.0, 50.0), (10.5, 1.5, 4.0, 0.0, 52.0)])
    monkeypatch.setattr(meter_module.os, "times", lambda: next(own))
    clock = iter([50.0, 52.0])
    monkeypatch.setattr(meter_module.time, "perf_counter", lambda: next(clock))
    with Meter() as meter:
        pass
    assert meter.other_load == pytest.approx(1.5)


def cpu_times(busy):
    """A guest's seconds stand in the user's, too."""
    return CpuTimes(user=busy - 10, guest=7.0, system=10.0, idle=1000.0 + busy, iowait=3.0)
