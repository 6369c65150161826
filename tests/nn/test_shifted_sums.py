"""Shifted sums by hand, and the kernels against plain torch."""

import torch

from xcbench.nn.shifted_sums import shifted_sums

BRANCHES = [0, 1, 1]
SHIFTS = [1, 0, 2]


def test_sums_by_hand():
    products = torch.arange(12.0).view(1, 4, 3, 1)  # block i, piece s: 3 i + s
    found = shifted_sums(products, BRANCHES, SHIFTS)
    assert found.tolist() == [[[3, 1 + 8], [6, 4 + 11]]]


def test_kernels_equal_plain_torch_and_so_do_their_gradients():
    torch.manual_seed(0)
    products = torch.randn(5, 7, 3, 4, requires_grad=True)
    double = products.detach().double().requires_grad_()
    ours = shifted_sums(products, BRANCHES, SHIFTS)
    plain = shifted_sums(double, BRANCHES, SHIFTS)
    assert ours.shape == plain.shape == (5, 5, 8)
    torch.testing.assert_close(ours.double(), plain, rtol=1e-6, atol=1e-6)
    direction = torch.randn(5, 5, 8)
    ours.backward(direction)
    plain.backward(direction.double())
    torch.testing.assert_close(products.grad.double(), double.grad, rtol=1e-6, atol=1e-6)
