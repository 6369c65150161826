"""Schedules by hand, and OneCycle against torch's."""

import pytest
import torch

from xcbench.errors import InputError
from xcbench.train import Schedule, halving_after


def factors(schedule, total):
    return [schedule.factor(step, total) for step in range(total)]


def test_decaf_halves_as_its_code_does():
    assert halving_after(10, epochs=20).at == (0.5, 0.75)  # after epochs 10 and 15
    assert halving_after(5, epochs=10).at == (0.5,)  # the next would be at the end
    assert halving_after(14, epochs=20).at == (0.7,)  # then 7 more would be beyond it
    assert factors(halving_after(10, 20), 8) == [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25]


def test_halving_fits_any_number_of_steps():
    schedule = Schedule("halving", at=(0.5,))
    assert factors(schedule, 1) == [1 if round(0.5) > 0 else 0.5]
    assert factors(schedule, 3) == [1, 1, 0.5]


def test_linear_rises_and_falls():
    assert factors(Schedule("linear", warmup=0.4), 10) == pytest.approx(
        [1 / 4, 2 / 4, 3 / 4, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    )
    assert factors(Schedule("linear", warmup=0.1), 2) == [1, 0.5]
    assert factors(Schedule("linear", warmup=1.0), 1) == [1]


@pytest.mark.parametrize("total", [10, 97])
def test_onecycle_equals_torch(total):
    optimiser = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=1.0, total_steps=total, pct_start=0.3, div_factor=10, final_div_factor=1e4
    )
    expected = []
    betas = []
    for _ in range(total):
        expected.append(optimiser.param_groups[0]["lr"])
        betas.append(optimiser.param_groups[0]["betas"][0])
        optimiser.step()
        theirs.step() if len(expected) < total else None
    ours = Schedule("onecycle", warmup=0.3, div=10, final_div=1e4)
    assert factors(ours, total) == pytest.approx(expected)
    assert [ours.beta1(step, total, 0.9) for step in range(total)] == pytest.approx(betas)


def test_only_onecycle_moves_beta1():
    for kind in ("constant", "halving", "linear"):
        assert Schedule(kind).beta1(3, 10, 0.9) == 0.9
    for setting in (0.0, 0.98):
        assert all(0 <= Schedule("onecycle").beta1(step, 10, setting) < 1 for step in range(10))


@pytest.mark.parametrize("total", [1, 2, 3])
def test_every_schedule_stands_tiny_trainings(total):
    for kind in ("constant", "halving", "onecycle", "linear"):
        assert all(0 < f <= 1 for f in factors(Schedule(kind), total))


def test_impossible_schedules_are_refused():
    with pytest.raises(InputError, match="did you mean onecycle"):
        Schedule("one-cycle")
    for wrong in ({"warmup": 1.5}, {"at": (0.5, 7)}, {"div": 0.5}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Schedule(**wrong)
