"""Stored models go on giving the answers that they were stored with."""

import numpy as np
import pytest

from tests.methods.problems import needs
from tests.pinned.models import VERSION, data, names, pinned, version
from xcbench.runner.model import load_model

STORED = pinned()
plugins = pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in names()])


@plugins
def test_a_stored_model_predicts_what_it_did(name):
    assert name in STORED, f"no model is pinned: python -m tests.pinned {name}"
    record = STORED[name]
    assert (record.folder / VERSION).read_text() == version(name), f"a new version: python -m tests.pinned {name}"

    test = data().test
    expected = record.predictions()
    found = load_model(record).predict(test.X, expected.k, test.titles)
    raised = f"{name} answers differently: raise its version, then python -m tests.pinned {name}"
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-6, err_msg=raised)
    differs = found.indices != expected.indices
    assert not differs.any() or is_tied(expected, differs), raised


def is_tied(predictions, places):
    """Whether labels changed places only where scores are equal but for rounding."""
    gaps = np.abs(np.diff(predictions.scores, axis=1))
    near = np.zeros(predictions.scores.shape, bool)
    near[:, 1:] |= gaps < 1e-5
    near[:, :-1] |= gaps < 1e-5
    return near[places].all()


def test_the_store_holds_nothing_else():
    assert set(STORED) <= set(names())
