"""Dropout masks are functions of (seed, step, call, row, column), the same wherever they are computed."""

import numpy as np
import pytest
import torch

from xcbench.nn import relu_dropout
from xcbench.nn.dropout import DropoutMask, dropout, first_key, kept_entries, start_step
from xcbench.threads import set_threads


def dropped(x, seed=1, step=2, first_point=0, **kwargs):
    start_step(seed, step)
    return relu_dropout(x, 0.3, training=True, first_row=first_point, **kwargs)


def test_kernel_and_torch_drop_the_same_entries():
    x = torch.randn(50, 17)
    torch.testing.assert_close(dropped(x).double(), dropped(x.double()))


def test_gradient_passes_exactly_where_entries_survive():
    x = torch.randn(50, 17, requires_grad=True)
    out = dropped(x)
    out.backward(torch.full_like(out, 3.0))
    torch.testing.assert_close(x.grad, (out > 0) * 3.0 / 0.7, rtol=1e-4, atol=0)


def test_masks_follow_seed_step_and_call():
    ones = torch.ones(40, 30)
    same = dropped(ones)
    assert torch.equal(same, dropped(ones))
    again = relu_dropout(ones, 0.3, training=True)
    for other in (again, dropped(ones, seed=2), dropped(ones, step=3)):
        assert 0.3 < (other != same).double().mean() < 0.55  # 2 x 0.3 x 0.7 of independent masks differ


def test_a_part_of_a_batch_is_dropped_as_in_the_whole():
    x = torch.randn(50, 17)
    torch.testing.assert_close(dropped(x[20:], first_point=20), dropped(x)[20:])


def test_share_of_survivors_and_their_scale():
    kept = dropped(torch.ones(2000, 100))
    assert (kept > 0).double().mean() == pytest.approx(0.7, abs=0.005)
    assert kept.mean().item() == pytest.approx(1.0, abs=0.01)
    columns = (kept > 0).double().mean(0)
    assert columns.std().item() == pytest.approx(np.sqrt(0.21 / 2000), rel=0.4)


def test_neighbouring_entries_are_dropped_independently():
    mask = DropoutMask.of(0.5, key=12345, first_row=0, width=300)
    sign = kept_entries(mask, torch.arange(400), 300).double() - 0.5
    for shifted in (sign[1:, :] * sign[:-1, :], sign[:, 1:] * sign[:, :-1]):
        assert abs(shifted.mean()) < 4 * 0.25 / np.sqrt(shifted.numel())


def test_nothing_is_dropped_outside_of_training():
    x = torch.randn(5, 4)
    torch.testing.assert_close(relu_dropout(x, 0.5, training=False), torch.relu(x))


def test_plain_dropout_keeps_the_entries_of_the_mask_and_passes_gradients_through_it():
    x = torch.randn(6, 5, 40, requires_grad=True)
    start_step(3, 7)
    y = dropout(x, 0.25, training=True)
    mask = DropoutMask.of(0.25, first_key(3, 7), 0, 40)
    expected = kept_entries(mask, torch.arange(30), 40).view(6, 5, 40) * float(mask.scale)
    torch.testing.assert_close(y, x * expected)
    y.sum().backward()
    torch.testing.assert_close(x.grad, expected)
    start_step(3, 7)
    torch.testing.assert_close(dropout(x.double(), 0.25, training=True), (x * expected).double())
    assert dropout(x, 0.25, training=False) is x


def test_thread_count_changes_nothing():
    x = torch.randn(1000, 100)
    threads = torch.get_num_threads()
    try:
        set_threads(1)
        alone = dropped(x)
        torch.set_num_threads(3)
        assert torch.equal(alone, dropped(x))
    finally:
        torch.set_num_threads(threads)


def test_rates_and_widths_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="below 1, got 1"):
        relu_dropout(torch.ones(1, 1), 1.0, training=True)
    with pytest.raises(ValueError, match="rows of less than"):
        relu_dropout(torch.ones(1, 1 << 17), 0.5, training=True)
