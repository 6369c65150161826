"""What a task does before it is trained."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tests.train.toys import parameters, toy
from xcbench.train import Points, fit_bias, free_labels


def loss_at(task, points, bias):
    with torch.no_grad():
        task.labels.bias.weight.fill_(bias)
        return float(task.eval().loss(points.cut(np.arange(len(points)))))


@pytest.mark.parametrize("shortlists", [False, True])
def test_biases_of_classifiers_that_say_nothing_start_at_the_log_odds(shortlists):
    task, points = toy(shortlists=shortlists)
    with torch.no_grad():
        task.labels.text.E.weight.zero_()
        task.labels.z2.weight.zero_()
    batch = points.cut(np.arange(len(points)))
    truth = batch.shortlists.entries.data if shortlists else batch.targets.data
    share = truth.sum() / (len(truth) if shortlists else len(points) * points.targets.width)
    fit_bias(task, points)
    assert task.labels.bias.weight.tolist() == pytest.approx([math.log(share / (1 - share))] * 30, abs=0.05)


@pytest.mark.parametrize("shortlists", [False, True])
def test_no_other_start_has_a_smaller_loss_and_nothing_else_moves(shortlists):
    task, points = toy(shortlists=shortlists)
    before = parameters(task)
    fit_bias(task, points)
    after = parameters(task)
    found = after.pop("labels.bias.weight")
    assert found.unique().numel() == 1
    assert all(torch.equal(before[name], after[name]) for name in after)
    least = loss_at(task, points, float(found[0]))
    assert all(least <= loss_at(task, points, float(found[0]) + away) for away in (-2, -0.5, -0.1, 0.1, 0.5, 2))


def test_without_points_or_biases_nothing_happens():
    task, points = toy(shortlists=False)
    fit_bias(task, Points(sp.csr_array((0, 40), dtype=np.float32), sp.csr_array((0, 30), dtype=np.float32)))
    assert not task.labels.bias.weight.any()
    task.labels.bias = None
    fit_bias(task, points)


def test_label_classifiers_start_at_what_is_known_or_at_random():
    targets = sp.csr_array(np.array([[1, 0, 0, 1], [0, 1, 0, 0]], np.float32))
    zero = free_labels(targets, 6, 3, "zero")
    assert not zero.weight.weight.any()
    np.testing.assert_allclose(zero.bias.weight.detach(), np.full(4, np.log(0.5 / 0.5)))
    np.testing.assert_allclose(free_labels(targets, 6, 30, "zero").bias.weight.detach(), np.log(0.05 / 0.95), rtol=1e-6)
    random = free_labels(targets, 6, 3, "random")
    assert not random.bias.weight.any()
    assert 0.1 < random.weight.weight.abs().max() <= 1  # sqrt(6 / 6)
