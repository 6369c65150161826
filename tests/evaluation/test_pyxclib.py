"""pyxclib as a witness: our metrics equal its own, on a stored case always, and on random ones where it is installed.

It is on no registry: `pip install git+https://github.com/kunaldahiya/pyxclib`. Its nDCG and PSnDCG are float32.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.evaluation.reference import random_case
from xcbench.data import Propensity, TopK
from xcbench.evaluation import Truth, evaluate, inverse_propensity

CASE = Path(__file__).with_name("pyxclib_case")
PLACES = range(1, 21)
TOLERANCE = {"P": 1e-12, "nDCG": 1e-6, "PSP": 1e-12, "PSnDCG": 1e-6, "R": 1e-12, "PSR": 1e-12}


@pytest.fixture(scope="module")
def expected():
    return json.loads((CASE / "expected.json").read_text())


def labels(name: str) -> sp.csr_array:
    return sp.csr_array(sp.load_npz(CASE / f"{name}_labels.npz"))


def predictions() -> TopK:
    with np.load(CASE / "predictions.npz", allow_pickle=False) as arrays:
        return TopK.of(arrays["indices"], arrays["scores"].astype(np.float32))


def test_inverse_propensities(expected):
    frequency = np.bincount(labels("train").indices, minlength=labels("train").shape[1])
    ours = inverse_propensity(frequency, labels("train").shape[0], Propensity(expected["A"], expected["B"]))
    np.testing.assert_allclose(ours, expected["inverse_propensity"], rtol=1e-12)


@pytest.mark.parametrize("family", list(TOLERANCE))
@pytest.mark.parametrize("kind", ["plain", "filtered"])
def test_the_stored_case(expected, kind, family):
    filtered = np.zeros((0, 2), np.int64)
    if kind == "filtered":
        filtered = np.loadtxt(CASE / "filter.txt", dtype=np.int64)
    truth = Truth.of_matrix(labels("test"), filtered, np.array(expected["inverse_propensity"]))
    ours = evaluate(predictions(), truth, [f"{family}@{k}" for k in PLACES]).values()
    shares = np.array(list(ours.values())) / 100
    np.testing.assert_allclose(shares, expected[kind][family], atol=TOLERANCE[family])


@pytest.mark.parametrize("seed", range(5))
def test_random_cases(seed):
    theirs = pytest.importorskip("xclib.evaluation.xc_metrics", reason="pyxclib is on no registry")
    case = random_case(np.random.default_rng(seed), points=60, labels=40, k=20, tied=False)
    case.filtered.clear()
    truth = case.judge()
    scored = sp.csr_matrix(case.top_k().to_csr(40))
    Y = sp.csr_matrix(truth.positives)
    weights = np.array(case.weights)
    expected = {
        "P": theirs.precision(scored, Y, k=20),
        "nDCG": theirs.ndcg(scored, Y, k=20),
        "PSP": theirs.psprecision(scored, Y, weights, k=20),
        "PSnDCG": theirs.psndcg(scored, Y, weights, k=20),
        "R": theirs.recall(scored, Y, k=20),
        "PSR": theirs.psrecall(scored, Y, weights, k=20),
    }
    for family, values in expected.items():
        ours = evaluate(case.top_k(), truth, [f"{family}@{k}" for k in PLACES]).values()
        np.testing.assert_allclose(np.array(list(ours.values())) / 100, values, atol=max(1e-9, TOLERANCE[family]))
