import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xcbench.data import TopK
from xcbench.shortlist.sparse_topk import best_of_product


def random_csr(rng, rows, columns, density):
    return sp.random_array((rows, columns), density=density, format="csr", dtype=np.float32, rng=rng)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 30),
    st.integers(1, 20),
    st.integers(1, 40),
    st.floats(0, 1),
    st.integers(1, 50),
)
def test_it_is_the_top_of_the_product(seed, rows, inner, columns, density, k):
    rng = np.random.default_rng(seed)
    A, B = random_csr(rng, rows, inner, density), random_csr(rng, inner, columns, density)
    # Small integers: sums are exact whatever their order, and ties are common.
    A.data, B.data = rng.integers(-2, 3, A.nnz).astype(np.float32), rng.integers(-2, 3, B.nnz).astype(np.float32)
    found = best_of_product(A, B, k)
    touched = (abs(A).astype(bool).astype(int) @ abs(B).astype(bool).astype(int)).toarray()
    stored = (_ones(A) @ _ones(B)).toarray() > 0
    assert ((touched > 0) <= stored).all()
    dense = (A @ B).toarray()
    ids = np.where(stored, np.arange(columns), -1)
    expected = TopK.of(ids, dense).cut(k)
    expected = expected.padded(k) if expected.k < k else expected
    assert np.array_equal(found.indices, expected.indices)
    assert np.array_equal(found.scores, expected.scores)


def _ones(M):
    return sp.csr_array((np.ones(M.nnz, np.int64), M.indices, M.indptr), shape=M.shape)


def test_the_number_of_threads_changes_nothing():
    rng = np.random.default_rng(0)
    A, B = random_csr(rng, 300, 80, 0.1), random_csr(rng, 80, 500, 0.1)
    before = numba.get_num_threads()
    try:
        found = []
        for threads in (1, numba.config.NUMBA_NUM_THREADS):
            numba.set_num_threads(threads)
            found.append(best_of_product(A, B, 20))
    finally:
        numba.set_num_threads(before)
    assert np.array_equal(found[0].indices, found[1].indices)
    assert np.array_equal(found[0].scores, found[1].scores)


def test_shapes_must_fit():
    with pytest.raises(ValueError, match="do not fit"):
        best_of_product(sp.csr_array((2, 3)), sp.csr_array((4, 2)), 1)
