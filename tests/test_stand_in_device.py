"""The stand-in device: it refuses what a GPU refuses, and records what a GPU would copy or wait for."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.stand_in_device import DEVICE, MEMORY, StandInDevice, on_cpu


@pytest.fixture
def device():
    with StandInDevice() as device:
        yield device


def kinds(device):
    return [event.kind for event in device.events]


def test_tensors_say_where_they_are_and_stay_there(device):
    x = torch.arange(6.0).view(2, 3).to(DEVICE)
    y = torch.ones(2, 3, device=DEVICE)
    total = (x * 2 + y).T
    assert total.device == DEVICE
    assert total.shape == (3, 2)
    assert kinds(device) == ["to device"]
    torch.testing.assert_close(on_cpu(total), torch.tensor([[1.0, 7.0], [3.0, 9.0], [5.0, 11.0]]))
    assert torch.arange(2).device.type == "cpu"


def test_copies_are_recorded_with_shape_and_size(device):
    x = torch.zeros(4, 2).to(DEVICE, torch.float64)
    x.to(torch.float32)
    back = x.cpu()
    assert back.device.type == "cpu"
    assert kinds(device) == ["to device", "to host"]
    assert device.events[0].shape == (4, 2)
    assert device.events[0].size == 32
    x.copy_(torch.ones(4, 2))
    torch.zeros(4, 2).copy_(x)
    assert kinds(device)[2:] == ["to device", "to host"]


def test_two_devices_do_not_mix(device):
    x = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError, match="two devices"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="two devices"):
        torch.ones(3).add_(x)
    with pytest.raises(RuntimeError):
        x.numpy()
    with pytest.raises(RuntimeError):
        np.asarray(x)
    assert (x + torch.tensor(2.0)).device == DEVICE  # a number is passed along with the operation


def test_an_index_on_the_cpu_is_copied(device):
    table = torch.arange(8.0, device=DEVICE)
    rows = torch.tensor([1, 5])
    torch.testing.assert_close(on_cpu(table[rows]), torch.tensor([1.0, 5.0]))
    assert kinds(device) == ["to device"]
    with pytest.raises(RuntimeError, match="two devices"):
        table.index_select(0, rows)


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: float(x[0]),
        lambda x: bool((x > 1).all()),
        lambda x: x.nonzero(),
        lambda x: x[x > 1],
        lambda x: x.masked_select(x > 1),
        lambda x: x.unique(),
        lambda x: torch.repeat_interleave(x, x.long()),
        lambda x: x.__setitem__(x > 1, torch.ones(3, device=DEVICE)),
    ],
)
def test_waits_are_recorded(device, wait):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).to(DEVICE)
    with device.recording() as events:
        wait(x)
    assert "wait" in {event.kind for event in events}
    assert {event.kind for event in events} <= {"wait"}


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.sum() * 3,
        lambda x: x[x.long() - 1],
        lambda x: x.__setitem__(x > 1, 0.0),
        lambda x: torch.where(x > 1, x, 0),
        lambda x: x.zero_().add_(1),
        lambda x: torch.repeat_interleave(x, x.long(), output_size=10),
        lambda x: torch.full((), 2.0, device=DEVICE),
    ],
)
def test_other_operations_neither_copy_nor_wait(device, operation):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).to(DEVICE)
    with device.recording() as events:
        operation(x)
    assert events == []


def test_a_module_learns_as_on_the_cpu(device):
    torch.manual_seed(0)
    here = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    there = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    there.load_state_dict(here.state_dict())
    there.to(DEVICE)
    assert {p.device for p in there.parameters()} == {DEVICE}
    x = torch.randn(5, 3)
    for module, data in ((here, x), (there, x.to(DEVICE))):
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            module(data).square().sum().backward()
            optimiser.step()
    for p, q in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(p.detach(), on_cpu(q.detach()))


def test_a_sparse_gradient_stays_on_the_device(device):
    table = nn.Embedding(5, 2, sparse=True).to(DEVICE)
    table(torch.tensor([3, 1]).to(DEVICE)).sum().backward()
    grad = table.weight.grad
    assert grad.is_sparse
    assert grad.device == DEVICE
    assert on_cpu(grad._indices()).tolist() == [[3, 1]]


def test_an_event_names_the_line_of_ours(device):
    from xcbench.nn import LabelBank

    bank = LabelBank(4, 2).to(DEVICE)
    device.events.clear()
    bank(np.array([0, 2]))
    (event,) = device.events
    assert event.line.startswith("xcbench/nn/embeddings.py:")


def test_memory_counts_once_and_until_it_is_freed(device):
    before = MEMORY.start_of_peak()
    x = torch.zeros(10, 4).to(DEVICE)
    part = x[2:4].T
    y = x * 2
    assert MEMORY.living - before == 2 * 160
    x += 1  # in place
    del y
    assert MEMORY.living - before == 160
    del x
    assert MEMORY.living - before == 160  # `part` still needs it
    del part
    assert MEMORY.living == before
    assert MEMORY.peak - before == 2 * 160
    assert MEMORY.start_of_peak() == MEMORY.peak == before


def test_what_a_backward_pass_needs_is_memory(device):
    before = MEMORY.start_of_peak()
    x = torch.ones(8, 8).to(DEVICE).requires_grad_()
    y = x.sigmoid().sum()
    assert MEMORY.living - before == 2 * 256 + 4  # x, its sigmoid, which the gradient is made of, and the sum
    y.backward()
    assert MEMORY.living - before >= 2 * 256 + 4
    del x, y
    assert MEMORY.living == before


def test_autocast_multiplies_in_short_numbers(device):
    x = torch.ones(3, 3).to(DEVICE)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        product = x @ x
        assert product.dtype == torch.bfloat16
        assert torch.softmax(product, 1).dtype == torch.float32
        assert (x + x).dtype == torch.float32
    assert (x @ x).dtype == torch.float32
