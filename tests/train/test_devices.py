"""One function chooses the device, for runs and for bare training alike."""

import pytest
import torch
import torch.distributed as dist

from xcbench.errors import InputError
from xcbench.runner.environment import choose_device
from xcbench.train import resolve_device
from xcbench.train.processes import Processes


@pytest.fixture
def gpus(monkeypatch):
    """Let torch find so many GPUs; those that were made current are in `gpus.used`."""

    def find(count):
        monkeypatch.delenv("LOCAL_RANK", raising=False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    find.used = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: find.used.append(str(device)))
    return find


def test_auto_is_the_gpu_if_there_is_one(gpus):
    gpus(0)
    assert resolve_device() == resolve_device("auto") == torch.device("cpu")
    gpus(2)
    assert resolve_device("auto") == torch.device("cuda", 0)


def test_a_run_uses_the_same_device_by_name(gpus):
    gpus(2)
    assert [choose_device(name) for name in ("auto", "cpu", "cuda", "cuda:1")] == ["cuda:0", "cpu", "cuda:0", "cuda:1"]


def test_a_run_makes_its_gpu_the_current_one(gpus, monkeypatch):
    gpus(2)
    choose_device("cpu")
    resolve_device("cuda:1")
    assert gpus.used == []
    choose_device("cuda:1")
    choose_device("auto")
    monkeypatch.setenv("LOCAL_RANK", "1")
    choose_device("cuda")
    assert gpus.used == ["cuda:1", "cuda:0", "cuda:1"]


def test_a_rank_has_its_own_gpu_before_it_joins(gpus, monkeypatch):
    joined = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **_: joined.append((backend, list(gpus.used))))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr("atexit.register", lambda _: None)
    for count in (2, 1, 0):  # with one GPU for two ranks, they must be meant for the CPU
        gpus(count)
        gpus.used.clear()
        monkeypatch.setenv("LOCAL_RANK", "1")
        Processes.join()
    assert joined == [("cpu:gloo,cuda:nccl", ["cuda:1"]), ("cpu:gloo,cuda:nccl", []), ("gloo", [])]


def test_ranks_of_one_machine_do_not_share_a_gpu(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(
        InputError, match="device 'cuda:0': under torchrun each process has a GPU of its own; write cuda"
    ):
        resolve_device("cuda:0")


def test_each_rank_takes_the_gpu_of_its_local_rank(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cuda:0") == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(InputError, match="there is no GPU 2, torch finds 2"):
        resolve_device("auto")


@pytest.mark.parametrize(
    ("requested", "count", "message"),
    [
        ("gpu", 0, "unknown device 'gpu'; expected auto, cpu, cuda or cuda:N"),
        ("", 0, "unknown device ''"),
        ("meta", 0, "cannot train on meta"),
        ("cuda", 0, "torch finds no GPU on this machine"),
        ("cuda:0", 0, "torch finds no GPU on this machine"),
        ("cuda:2", 2, "device 'cuda:2': there is no GPU 2, torch finds 2"),
    ],
)
def test_a_device_that_cannot_be_used_is_refused(gpus, requested, count, message):
    gpus(count)
    for choose in (resolve_device, choose_device):
        with pytest.raises(InputError, match=message):
            choose(requested)
