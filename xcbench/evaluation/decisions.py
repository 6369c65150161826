"""How good decisions are: F1, precision and recall of the labels that reach their thresholds.

Micro, macro and instance averages are those of scikit-learn (`average="micro"`, `"macro"`, `"samples"`, with
`zero_division=0`). docs/guides/thresholds.md has the definitions.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.evaluation.arrays import BoolArray, FloatArray
from xcbench.evaluation.hits import find_hits
from xcbench.evaluation.thresholds import Thresholds
from xcbench.evaluation.truth import Truth, without_pairs


def evaluate_decisions(predictions: TopK, target: Dataset | Truth, thresholds: Thresholds) -> dict[str, float]:
    """Score the labels that reach their thresholds.

    Filtered pairs count neither as truth nor as predictions, as in `evaluate`.

    Parameters
    ----------
    predictions
        The ranked labels of each test point. A label that is not among them is not predicted.
    target
        The dataset, or the truth of its test points.
    thresholds
        From which score a label is predicted.

    Returns
    -------
    dict
        `micro-`, `macro-` and `instance-` `F1`, `P` and `R`; `coverage`, the share of labels with a test positive that
        are found at some point; `answered`, the share of points with a predicted label; all in percent. And
        `labels-per-point`, a number.
    """
    truth = target if isinstance(target, Truth) else Truth.of(target)
    find_hits(predictions, truth)  # refuses what is no ranking of these points
    predicted = without_pairs(thresholds.apply(predictions).to_csr(truth.label_count), truth.filter)
    predicted = _ones(predicted)
    true = _ones(truth.positives)
    hits = sp.csr_array(predicted.multiply(true))

    values = _figures("micro", np.array([hits.nnz]), np.array([predicted.nnz]), np.array([true.nnz]))
    values |= _figures("macro", _per_label(hits), _per_label(predicted), _per_label(true))
    values |= _figures("instance", _per_point(hits), _per_point(predicted), _per_point(true))

    is_in_test = _per_label(true) > 0
    values["coverage"] = 100 * _mean(_per_label(hits)[is_in_test] > 0)
    values["answered"] = 100 * _mean(_per_point(predicted) > 0)
    values["labels-per-point"] = _mean(_per_point(predicted))
    return values


def _figures(average: str, hits: FloatArray, predicted: FloatArray, true: FloatArray) -> dict[str, float]:
    """Return the means of F1, precision and recall over units: labels, points, or one unit of everything."""
    return {
        f"{average}-F1": 100 * _mean(_ratio(2 * hits, predicted + true)),
        f"{average}-P": 100 * _mean(_ratio(hits, predicted)),
        f"{average}-R": 100 * _mean(_ratio(hits, true)),
    }


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Return quotients; 0 where there is nothing to divide by."""
    return numerator / np.maximum(denominator, 1)


def _mean(values: FloatArray | BoolArray) -> float:
    if len(values) == 0:
        return 0.0
    return float(np.mean(values))


def _ones(matrix: sp.csr_array) -> sp.csr_array:
    return sp.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)


def _per_label(matrix: sp.csr_array) -> FloatArray:
    return np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.float64)


def _per_point(matrix: sp.csr_array) -> FloatArray:
    return np.diff(matrix.indptr).astype(np.float64)
