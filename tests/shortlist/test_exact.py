"""Exact search: brute force, ties, odd sizes, threads."""

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tests.shortlist.reference import assert_same, best
from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.kernels.running_topk import RunningTopK
from xcbench.shortlist import ExactShortlister, exact_topk, load_shortlister


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(0, 5),
    L=st.integers(1, 400),
    k=st.integers(1, 40),
    levels=st.integers(1, 50),
    widths=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
)
def test_running_top_k_is_brute_force_with_ties(n, L, k, levels, widths, seed):
    """Few distinct scores make many ties; any cut into blocks of columns must give the same."""
    rng = np.random.default_rng(seed)
    S = (rng.integers(-levels, levels + 1, (n, L)) / 4).astype(np.float32)
    S[rng.random(S.shape) < 0.1] = -np.inf
    S[rng.random(S.shape) < 0.1] = -0.0
    bias = rng.integers(-2, 3, L).astype(np.float32)
    running, first = RunningTopK(n, min(k, L)), 0
    while first < L:
        for width in widths:
            part = slice(first, min(first + width, L))
            running.offer(S[:, part].copy(), bias[part], first)
            first = part.stop
    found = TopK(*running.result())
    expected = best(S + bias, min(k, L))
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.scores, expected.scores)


@pytest.mark.parametrize(("n", "L", "k"), [(1, 1, 1), (3, 5000, 7), (2100, 30, 30), (37, 4100, 200), (0, 10, 3)])
def test_search_equals_the_full_product(n, L, k):
    rng = np.random.default_rng(n + L)
    X, W, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((n, 9), (L, 9), (L,)))
    assert_same(exact_topk(X, W, k, bias), best(X @ W.T + bias, k), tolerance=1e-5)


def test_more_labels_wanted_than_there_are():
    found = exact_topk(np.ones((2, 1), np.float32), np.array([[1.0], [3.0]], np.float32), 4)
    np.testing.assert_array_equal(found.indices, [[1, 0, -1, -1]] * 2)
    np.testing.assert_array_equal(found.scores, [[3, 1, -np.inf, -np.inf]] * 2)


def test_equal_labels_come_in_the_order_of_their_ids():
    found = exact_topk(np.ones((3, 4), np.float32), np.ones((5000, 4), np.float32), 100)
    np.testing.assert_array_equal(found.indices, np.tile(np.arange(100), (3, 1)))


def test_a_score_that_is_not_a_number_is_never_chosen():
    W = np.arange(1, 5001, dtype=np.float32)[:, None]
    W[::3] = np.nan
    found = exact_topk(np.ones((1, 1), np.float32), W, 3)
    np.testing.assert_array_equal(found.indices, [[4999, 4997, 4996]])


def test_the_number_of_threads_changes_nothing():
    rng = np.random.default_rng(0)
    X, W = (rng.standard_normal(shape, dtype=np.float32) for shape in ((300, 16), (3000, 16)))
    before = numba.get_num_threads()
    try:
        found = []
        for count in (1, before):
            numba.set_num_threads(count)
            found.append(exact_topk(X, W, 50))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(found[0].indices, found[1].indices)
    np.testing.assert_allclose(found[0].scores, found[1].scores, rtol=1e-6)


def test_tensors_and_arrays_are_the_same_to_it():
    X, W = torch.randn(4, 3, dtype=torch.float64, requires_grad=True), torch.randn(6, 3)
    found = ExactShortlister.of(W).shortlist(X, 2)
    assert_same(found, best(X.detach().float().numpy() @ W.numpy().T, 2))


def test_vectors_of_another_width_are_refused():
    with pytest.raises(InputError, match=r"expected vectors \[n, 3\], got \[4, 2\]"):
        exact_topk(np.ones((4, 2), np.float32), np.ones((5, 3), np.float32), 1)


def test_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(1)
    X, W, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((4, 3), (8, 3), (8,)))
    shortlister = ExactShortlister.of(W, bias)
    shortlister.save(tmp_path / "exact")
    loaded = load_shortlister(tmp_path / "exact")
    assert loaded.label_count == 8
    np.testing.assert_array_equal(loaded.shortlist(X, 5).scores, shortlister.shortlist(X, 5).scores)


def test_a_folder_that_holds_no_shortlister(tmp_path):
    with pytest.raises(InputError, match="expected a saved shortlister"):
        load_shortlister(tmp_path)
    (tmp_path / "shortlister.json").write_text('{"kind": "exakt"}')
    with pytest.raises(InputError, match="did you mean exact"):
        load_shortlister(tmp_path)
    (tmp_path / "shortlister.json").write_text('{"kind": "exact"}')
    with pytest.raises(InputError, match="cannot be read as a saved shortlister"):
        load_shortlister(tmp_path)
    save_file({"V": np.zeros(1)}, tmp_path / "arrays.safetensors")
    with pytest.raises(InputError, match="expected 'W', found V"):
        load_shortlister(tmp_path)
