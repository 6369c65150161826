"""Losses against torch's BCE on dense matrices, gradients included."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from xcbench.kernels.csr import SparseRows
from xcbench.nn import Factored, Shortlists, bce_kernels, bce_over_all, bce_over_shortlists, losses
from xcbench.nn.dropout import DropoutMask


def problem(points, labels, dim, density, seed=0):
    """Tensors x, H, bias, P, W and a sparse matrix of real-valued targets (listed zeros among them)."""
    rng = np.random.default_rng(seed)
    listed = sp.random_array((points, labels), density=density, format="csr", dtype=np.float32, rng=rng)
    listed.data[::3] = 0
    torch.manual_seed(seed)
    tensors = (
        torch.randn(points, dim),
        torch.randn(labels, dim),
        torch.randn(labels),
        torch.rand(labels, dim),
        torch.randn(dim, dim),
    )
    return tensors, listed


def dense_loss(tensors, listed, listed_only, factored, reduction):
    x, H, bias, P, W = tensors
    scores = x @ (P @ W.T + H if factored else H).T + bias
    terms = binary_cross_entropy_with_logits(scores, torch.from_numpy(listed.toarray()).to(x), reduction="none")
    mask = torch.ones_like(terms)
    if listed_only:
        coo = listed.tocoo()
        mask = torch.zeros_like(terms)
        mask[coo.row, coo.col] = 1
    return (terms * mask).sum() / (mask.sum() if reduction == "mean" else len(x))


def factors(P, W, H):
    """W P + H, in the form that the blocks return."""
    nothing = torch.zeros_like(W[0])
    D = len(W)
    return Factored(P, W, nothing, nothing, DropoutMask.of(0, 0, 0, D), torch.ones_like(nothing), H)


def with_gradients(loss_of, tensors, dtype):
    leaves = [t.to(dtype).clone().requires_grad_() for t in tensors]
    loss = loss_of(*leaves)
    (2 * loss).backward()
    return [loss.detach(), *(torch.zeros_like(t) if t.grad is None else t.grad for t in leaves)]


# Points, labels, dimension, share of pairs listed. The first two fit no block size, the third has more points than
# dimensions (a factored table is then multiplied out), the fourth far fewer, the last is the smallest there is.
SHAPES = [(20, 333, 12, 0.3), (7, 1, 5, 1.0), (40, 33, 4, 0.5), (6, 35, 14, 0.3), (1, 1, 1, 1.0)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factored", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "batch"])
@pytest.mark.parametrize("form", ["all", "listed in pieces", "listed one by one"])
def test_losses_and_gradients_equal_dense_bce(shape, dtype, factored, reduction, form, monkeypatch):
    tensors, listed = problem(*shape)
    entries = SparseRows.of(listed)
    monkeypatch.setattr(losses, "SCORES_AT_ONCE", 100)
    monkeypatch.setattr(losses, "DENSE_ABOVE", -1 if form == "listed in pieces" else 2)

    def ours(x, H, bias, P, W):
        table = factors(P, W, H) if factored else H
        if form == "all":
            return bce_over_all(x, table, entries, bias, reduction)
        return bce_over_shortlists(x, table, Shortlists(np.arange(shape[1]), entries), bias, reduction)

    reference = with_gradients(
        lambda *t: dense_loss(t, listed, form != "all", factored, reduction), tensors, torch.float64
    )
    for a, b in zip(with_gradients(ours, tensors, dtype), reference, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("learns", [[0], [1], [2], [3], [4], [0, 3], [1, 4]])
@pytest.mark.parametrize("points", [10, 40])  # the table is used in its two parts, or multiplied out
def test_what_is_constant_gets_no_gradient_and_changes_no_other(learns, points):
    tensors, listed = problem(points, 33, 25, 0.3)

    def gradients(which):
        leaves = [t.clone().requires_grad_(i in which) for i, t in enumerate(tensors)]
        x, H, bias, P, W = leaves
        bce_over_all(x, factors(P, W, H), SparseRows.of(listed), bias).backward()
        return [t.grad for t in leaves]

    everything = gradients(range(5))
    for i, grad in enumerate(gradients(learns)):
        assert (grad is None) == (i not in learns)
        assert grad is None or torch.equal(grad, everything[i])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # our kernel, and plain torch
@pytest.mark.parametrize("at_once", [losses.SCORES_AT_ONCE, 1])  # in one piece, and label by label
def test_ignored_pairs_have_no_loss(dtype, at_once, monkeypatch):
    monkeypatch.setattr(losses, "SCORES_AT_ONCE", at_once)
    (x, H, bias, *_), listed = problem(9, 21, 5, 0.3)
    listed.data[::4] = np.nan
    targets = torch.from_numpy(listed.toarray())
    counts = torch.from_numpy(~np.isnan(listed.toarray()))

    def slow(x, H, bias):
        terms = binary_cross_entropy_with_logits(x @ H.T + bias, targets.nan_to_num().to(x), reduction="none")
        return (terms * counts).sum() / len(x)

    def fast(x, H, bias):
        return bce_over_all(x, H, SparseRows.of(listed), bias, "batch")

    found, expected = (with_gradients(loss, (x, H, bias), dtype) for loss in (fast, slow))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.to(theirs), theirs, rtol=1e-4, atol=1e-5)


def test_labels_that_are_no_candidates_get_no_gradient(monkeypatch):
    monkeypatch.setattr(losses, "DENSE_ABOVE", 2)
    entries = SparseRows.of(sp.csr_array(([1.0, 0.0], [2, 2], [0, 1, 2]), shape=(2, 4), dtype=np.float32))
    x = torch.randn(2, 3)
    W = torch.randn(4, 3, requires_grad=True)
    bce_over_shortlists(x, W, Shortlists(np.arange(4), entries)).backward()
    assert W.grad[2].abs().sum() > 0
    assert torch.equal(W.grad[[0, 1, 3]], torch.zeros(3, 3))


def test_a_batch_without_any_candidate_costs_nothing():
    entries = SparseRows.of(sp.csr_array((2, 0), dtype=np.float32))
    W = torch.zeros(0, 3, requires_grad=True)
    loss = bce_over_shortlists(torch.ones(2, 3), W, Shortlists(np.arange(0), entries))
    loss.backward()
    assert loss.item() == 0
    assert W.grad.shape == (0, 3)


def test_vectorised_sigmoid_and_softplus_are_accurate_everywhere():
    s = torch.cat([torch.linspace(-86, 86, 5000), torch.tensor([0.0, -0.0, 1e-9, 200.0, -200.0])])
    starts = np.zeros(2, np.int64)
    nothing = (np.zeros(0, np.int32), np.zeros(0, np.float32))
    scores = s[None].numpy().copy()
    total = np.zeros(1)
    bce_kernels.bce_of_all(0, 1, scores, 0, starts, *nothing, np.float32(1), total)
    expected = torch.sigmoid(s.double())
    inside = s.abs() <= 86
    torch.testing.assert_close(torch.from_numpy(scores[0]).double()[inside], expected[inside], rtol=4e-6, atol=0)
    torch.testing.assert_close(torch.from_numpy(scores[0]).double(), expected, rtol=0, atol=1e-6)
    assert total[0] == pytest.approx(softplus(s.double()).sum().item(), rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_that_are_not_numbers_reach_the_loss(bad):
    x = torch.tensor([[1.0]])
    H = torch.tensor([[0.0], [bad]])
    nothing = SparseRows.of(sp.csr_array((1, 2), dtype=np.float32))
    assert not np.isfinite(bce_over_all(x, H, nothing).item())


@pytest.mark.parametrize("shortlists", [False, True])
def test_under_bfloat16_only_products_are_short(shortlists):
    """Biases, the loss and the gradients of scores are in float32: they would lose three of their digits."""
    torch.manual_seed(0)
    x = torch.randn(12, 16)
    W = torch.randn(20, 16)
    bias = torch.randn(20).requires_grad_()
    Y = sp.random_array((12, 20), density=0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    entries = SparseRows.of(Y)
    with torch.autocast("cpu", torch.bfloat16):
        if shortlists:
            loss = bce_over_shortlists(x, W, Shortlists(np.arange(20), entries), bias)
        else:
            loss = bce_over_all(x, W, entries, bias)
    loss.backward()

    expected_bias = bias.detach().clone().requires_grad_()
    scores = (x.bfloat16() @ W.bfloat16().T).float() + expected_bias
    terms = torch.nn.functional.binary_cross_entropy_with_logits(
        scores, torch.from_numpy(Y.toarray()), reduction="none"
    )
    expected = terms[torch.from_numpy(Y.toarray() > 0)].mean() if shortlists else terms.mean()
    expected.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(bias.grad, expected_bias.grad, rtol=1e-5, atol=1e-7)
