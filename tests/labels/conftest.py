"""Threads go back to what they were, whatever a test sets."""

import numba
import pytest


@pytest.fixture(autouse=True)
def _same_threads_afterwards():
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)
