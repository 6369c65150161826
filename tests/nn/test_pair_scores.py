"""Scores of listed pairs and their gradients, against products of all pairs in float64."""

import numpy as np
import pytest
import torch

from tests.train.toys import random_matrix
from xcbench.kernels.csr import SparseRows
from xcbench.nn import pair_scores


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_and_gradients_are_those_of_all_pairs(share, with_bias, dtype):
    torch.manual_seed(0)
    listed = random_matrix(13, 40, share, 1)
    x, W, bias = (torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((13, 9), (40, 9), (40,)))
    scores = pair_scores(x, W, SparseRows.of(listed), bias if with_bias else None)
    weights = torch.randn(listed.nnz, dtype=dtype)
    (scores * weights).sum().backward()
    ours = [scores, x.grad, W.grad] + [bias.grad] * with_bias

    x2, W2, bias2 = (tensor.detach().double().requires_grad_() for tensor in (x, W, bias))
    everything = x2 @ W2.T + (bias2 if with_bias else 0)
    rows = torch.from_numpy(np.repeat(np.arange(13), np.diff(listed.indptr)))
    expected = everything[rows, torch.from_numpy(listed.indices.astype(np.int64))]
    (expected * weights.double()).sum().backward()
    theirs = [expected, x2.grad, W2.grad] + [bias2.grad] * with_bias
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.detach().double(), other.detach(), rtol=1e-4, atol=1e-5)
