"""PLT against napkinXC called by hand."""

import ctypes

import numpy as np
import pytest
import scipy.sparse as sp

from tests.methods.problems import needs, train
from xcbench.errors import InputError
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.plugins.stages import derive_seed
from xcbench.runner.toy import toy_dataset

pytestmark = needs("plt")


def test_agrees_with_the_library_called_directly(tmp_path):
    from napkinxc.models import PLT

    data = toy_dataset()
    model = PLT(str(tmp_path), seed=derive_seed(0, "tree"), threads=1)
    ctypes.CDLL(None).srand(derive_seed(0, "tree"))
    model.fit(sp.csr_matrix(data.train.X), [np.flatnonzero(row).tolist() for row in data.train.Y.toarray()])
    model.load()
    expected = model.predict_proba(sp.csr_matrix(data.test.X), top_k=5)
    found = train("plt", data).predict(data.test.X, 5)
    assert found.indices.tolist() == [[label for label, _ in row] for row in expected]
    assert found.scores == pytest.approx(np.array([[score for _, score in row] for row in expected]))


def test_another_seed_is_another_tree():
    data = toy_dataset()
    first, second = (train("plt", data, seed=seed, max_leaves=5).predict(data.test.X, 5) for seed in (0, 1))
    assert not np.array_equal(first.scores, second.scores)


@pytest.mark.parametrize(("key", "value"), [("arity", 1), ("max_leaves", 0), ("liblinear_c", 0), ("loss", "hinge")])
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("plt").config_type, {key: value})
