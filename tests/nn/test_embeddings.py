"""Token and label tables against dense products; rows of sparse matrices against scipy."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xcbench.kernels.csr import SparseRows
from xcbench.nn import LabelBank, TokenEmbeddings, weighted_sums


def texts(rows, tokens, seed=0, density=0.3):
    return sp.random_array(
        (rows, tokens), density=density, format="csr", dtype=np.float32, rng=np.random.default_rng(seed)
    )


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 99), st.data())
def test_taken_rows_and_columns_are_those_of_the_matrix(rows, columns, seed, data):
    matrix = texts(rows, columns, seed)
    picked = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=10)), np.int64)
    part = SparseRows.of(matrix).take(picked)
    np.testing.assert_array_equal(dense(part), matrix.toarray()[picked])
    by = part.by_column
    again = np.zeros((columns, len(picked)), np.float32)
    for k, column in enumerate(by.columns):
        here = slice(by.indptr[k], by.indptr[k + 1])
        again[column, by.rows[here]] = part.data[by.entries[here]]
    np.testing.assert_array_equal(again, matrix.toarray()[picked].T)
    assert np.all(np.diff(by.indptr) > 0)


def dense(rows):
    return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(len(rows), rows.width)).toarray()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_embeddings_are_weighted_sums_and_their_gradient_adds_up_over_uses(dtype):
    documents = texts(30, 40)
    labels = texts(20, 40, seed=1)
    documents = sp.vstack([documents, sp.csr_array((1, 40), dtype=np.float32)], format="csr")  # a text without tokens
    E = TokenEmbeddings(40, 5).to(dtype)
    weights = torch.randn(31, 5, dtype=dtype), torch.randn(20, 5, dtype=dtype)
    out = E(SparseRows.of(documents)), E(SparseRows.of(labels))
    sum((o * w).sum() for o, w in zip(out, weights, strict=True)).backward()
    X = [torch.from_numpy(m.toarray()).to(dtype) for m in (documents, labels)]
    for o, x in zip(out, X, strict=True):
        torch.testing.assert_close(o, x @ E.weight)
    torch.testing.assert_close(E.weight.grad, sum(x.T @ w for x, w in zip(X, weights, strict=True)))
    assert torch.equal(E.touched, (X[0].abs().sum(0) + X[1].abs().sum(0)) > 0)


def test_a_head_token_of_many_entries_is_summed_right():
    matrix = sp.csr_array(np.hstack([np.ones((3001, 1)), np.eye(3001)[:, :50]]).astype(np.float32))
    E = TokenEmbeddings(51, 30)
    weights = torch.randn(3001, 30)
    (E(SparseRows.of(matrix)) * weights).sum().backward()
    torch.testing.assert_close(E.weight.grad, torch.from_numpy(matrix.toarray().T) @ weights, rtol=1e-4, atol=1e-4)


def test_embeddings_start_in_kaimings_interval():
    weight = TokenEmbeddings(2000, 24).weight
    assert weight.abs().max().item() == pytest.approx(0.5, abs=0.001)  # sqrt(6 / 24)
    assert weight.std().item() == pytest.approx(0.5 / 3**0.5, rel=0.02)


def test_texts_over_more_tokens_than_the_table_are_refused():
    with pytest.raises(ValueError, match="9 tokens met a table of 5"):
        TokenEmbeddings(5, 2)(SparseRows.of(texts(3, 9)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_sums_of_a_table_and_their_gradient(dtype):
    G = texts(15, 12)
    table = torch.randn(12, 4, dtype=dtype, requires_grad=True)
    weights = torch.randn(15, 4, dtype=dtype)
    out = weighted_sums(SparseRows.of(G), table)
    (out * weights).sum().backward()
    dense_G = torch.from_numpy(G.toarray()).to(dtype)
    torch.testing.assert_close(out, dense_G @ table)
    torch.testing.assert_close(table.grad, dense_G.T @ weights)


@pytest.mark.parametrize("dim", [None, 3])
def test_a_bank_hands_out_rows_and_keeps_its_gradient_to_them(dim):
    shape = (10,) if dim is None else (10, dim)
    bank = LabelBank(10, dim, start=torch.randn(shape))
    rows = bank(np.array([1, 4, 7]))
    assert torch.equal(rows, bank.weight[[1, 4, 7]])
    weights = torch.randn_like(rows)
    (rows * weights).sum().backward()
    assert bank.weight.grad.is_sparse
    assert bank.weight.grad._nnz() == 3
    expected = torch.zeros(shape)
    expected[[1, 4, 7]] = weights
    assert torch.equal(bank.weight.grad.to_dense(), expected)


def test_a_bank_asked_for_everything_is_a_dense_parameter():
    bank = LabelBank(4, 2, start=torch.randn(4, 2))
    bank().square().sum().backward()
    assert torch.equal(bank.weight.grad, 2 * bank.weight.detach())


def test_a_bank_refuses_a_start_of_another_shape():
    with pytest.raises(ValueError, match="shape"):
        LabelBank(4, 2, start=torch.zeros(5, 2))
