"""Row-sparse Adam against torch's dense Adam, torch's SparseAdam, and a few lines of numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from xcbench.kernels.csr import SparseRows
from xcbench.nn import Adam, LabelBank, TokenEmbeddings


def bank_gradient(bank, rows, values):
    bank.weight.grad = torch.sparse_coo_tensor(
        torch.tensor(rows)[None], values, bank.weight.shape, is_coalesced=True, check_invariants=False
    )


@pytest.mark.parametrize("dim", [None, 300])
@pytest.mark.parametrize("scale", [1.0, 1e-8])  # the small one shows where epsilon is added
def test_touching_all_rows_equals_dense_adam(dim, scale):
    torch.manual_seed(0)
    start = torch.randn((50,) if dim is None else (50, dim))
    bank = LabelBank(50, dim, start)
    dense = nn.Parameter(start.clone())
    ours = Adam(bank, lr=0.01)
    theirs = torch.optim.Adam([dense], lr=0.01)
    for _ in range(4):
        grad = torch.randn_like(start) * scale
        bank_gradient(bank, list(range(50)), grad)
        dense.grad = grad.clone()
        ours.step()
        theirs.step()
        torch.testing.assert_close(bank.weight.detach(), dense.detach(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_some_rows_equal_torch_sparse_adam(dtype):
    torch.manual_seed(0)
    start = torch.randn(60, 7, dtype=dtype)
    rng = np.random.default_rng(0)
    bank = LabelBank(60, 7, start)
    sparse = nn.Parameter(start.clone())
    ours = Adam(bank, lr=0.01)
    theirs = torch.optim.SparseAdam([sparse], lr=0.01)
    for _ in range(6):
        rows = np.sort(rng.choice(60, 20, replace=False)).tolist()
        grad = torch.randn(20, 7, dtype=dtype)
        bank_gradient(bank, rows, grad)
        sparse.grad = torch.sparse_coo_tensor(torch.tensor(rows)[None], grad, start.shape, check_invariants=False)
        before = bank.weight.detach().clone()
        ours.step()
        theirs.step()
        torch.testing.assert_close(bank.weight.detach(), sparse.detach(), rtol=1e-5, atol=1e-6)
        rest = np.setdiff1d(np.arange(60), rows)
        assert torch.equal(bank.weight.detach()[rest], before[rest])


def test_rows_that_come_twice_are_added_up():
    first = LabelBank(5, 2, torch.ones(5, 2))
    second = LabelBank(5, 2, torch.ones(5, 2))
    first.weight.grad = torch.sparse_coo_tensor([[3, 1, 3]], torch.ones(3, 2), (5, 2), check_invariants=False)
    bank_gradient(second, [1, 3], torch.tensor([[1.0, 1.0], [2.0, 2.0]]))
    Adam(first).step()
    Adam(second).step()
    assert torch.equal(first.weight, second.weight)


def test_lazy_embeddings_update_touched_rows_and_dense_ones_all():
    X = [SparseRows.of(sp.csr_array(([1.0], [t], [0, 1]), shape=(1, 4), dtype=np.float32)) for t in (0, 2)]
    torch.manual_seed(0)
    start = torch.randn(4, 3)
    moved = {}
    for lazy in (False, True):
        E = TokenEmbeddings(4, 3, lazy)
        E.weight.data.copy_(start)
        optimiser = Adam(E, lr=0.1)
        for texts in X:
            E(texts).sum().backward()
            before = E.weight.detach().clone()
            optimiser.step()
            moved[lazy] = (E.weight.detach() != before).any(1).tolist()
            assert E.weight.grad.abs().sum() == 0
            assert not E.touched.any()
    assert moved == {False: [True, False, True, False], True: [False, False, True, False]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dense_embeddings_and_plain_parameters_equal_torch_adam(dtype):
    torch.manual_seed(0)
    matrix = sp.random_array((9, 12), density=0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    net = nn.Sequential(TokenEmbeddings(12, 4), nn.Linear(4, 2)).to(dtype)
    E = nn.Parameter(net[0].weight.detach().clone())
    linear = nn.Linear(4, 2).to(dtype)
    linear.load_state_dict(net[1].state_dict())
    X = torch.from_numpy(matrix.toarray()).to(dtype)
    ours = Adam(net, lr=0.01)
    theirs = torch.optim.Adam([E, *linear.parameters()], lr=0.01)
    for _ in range(5):
        net(SparseRows.of(matrix)).square().mean().backward()
        ours.step()
        theirs.zero_grad()
        linear(X @ E).square().mean().backward()
        theirs.step()
    torch.testing.assert_close(net[0].weight, E, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(net[1].weight, linear.weight, rtol=1e-4, atol=1e-6)


def test_a_loaded_state_continues_the_same():
    torch.manual_seed(0)
    runs = []
    for interrupted in (False, True):
        bank = LabelBank(8, 3, torch.ones(8, 3))
        optimiser = Adam(bank)
        for step in range(6):
            if interrupted and step == 3:
                state = {name: t.clone() for name, t in optimiser.state().items()}
                steps = optimiser.steps
                optimiser = Adam(bank)
                optimiser.load_state(state, steps)
            bank_gradient(bank, [step % 4, 5], torch.full((2, 3), 0.1 * (step + 1)))
            optimiser.step()
        runs.append(bank.weight.detach().clone())
    assert torch.equal(*runs)


def test_frozen_parameters_are_left_alone():
    net = nn.Linear(2, 2)
    net.weight.requires_grad_(False)
    assert list(Adam(net).parameters) == ["bias"]
