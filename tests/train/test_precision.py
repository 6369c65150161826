"""`precision: bfloat16` on another device: products are short, losses and softmax are not, and results stay near."""

from collections import defaultdict

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.stand_in_device import DEVICE, StandInDevice, on_cpu, train_on_stand_in
from tests.train.test_on_device import PROBLEMS, SHORT, work
from xcbench.train import Training, train

BFLOAT16 = Training(**{**vars(SHORT), "precision": "bfloat16"})
aten = torch.ops.aten


class Types(TorchDispatchMode):
    """Notes the types of the first tensor that each operation is given."""

    def __init__(self):
        super().__init__()
        self.seen = defaultdict(set)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if args and isinstance(args[0], torch.Tensor) and args[0].device == DEVICE:
            self.seen[func.overloadpacket].add(args[0].dtype)
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def device(monkeypatch):
    train_on_stand_in(monkeypatch)
    with StandInDevice() as device:
        yield device


@pytest.mark.parametrize("name", ["decaf, all labels, learning", "eclare, shortlists, frozen"])
def test_products_are_short_and_losses_are_not(name):
    task, points = PROBLEMS[name]()
    with Types() as types:
        train(task, points, BFLOAT16, work("standin"))
    products = types.seen[aten.mm] | types.seen[aten.addmm]
    assert torch.bfloat16 in products
    assert types.seen[aten.softplus] == {torch.float32}
    if "eclare" in name:
        assert types.seen[aten._softmax] == {torch.float32}
    assert {p.dtype for p in task.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    "name",
    ["lazy, shortlists", "decaf, all labels, learning", "eclare, all labels, frozen", "eclare, shortlists, learning"],
)
def test_losses_stay_near_those_of_float32(name):
    expected, points = PROBLEMS[name]()
    task, same_points = PROBLEMS[name]()
    report = train(expected, points, SHORT, work("standin"))
    short = train(task, same_points, BFLOAT16, work("standin"))
    assert short.losses == pytest.approx(report.losses, rel=0.005)
    assert short.losses != report.losses
    assert all(on_cpu(p).isfinite().all() for p in task.parameters())
