"""Linear SVMs of some labels by liblinear: what DiSMEC is made of. Not a method.

Worker processes import this file, so it imports little.
"""

import itertools

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import sklearn
from sklearn.svm import LinearSVC


def fit_labels(
    X: sp.csr_array,
    points_of_label: sp.csr_array,
    *,
    C: float,
    prune: float,
    bias: float,
    tolerance: float,
) -> sp.csr_array:
    """Train one SVM per label, and return one row of weights per label; the last column weighs the bias.

    Parameters
    ----------
    X
        The points.
    points_of_label
        One row per label, with an entry for each point that has it.
    C, bias, tolerance
        liblinear's: weight of the losses, value of the constant feature (0: none), and when to stop.
    prune
        Weights nearer to zero than this are dropped.
    """
    X64 = sp.csr_matrix(X.astype(np.float64))
    svm = LinearSVC(
        C=C,
        dual=True,
        tol=tolerance,
        fit_intercept=bias > 0,
        intercept_scaling=bias or 1.0,
        random_state=0,
    )
    rows = []
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
        for first, last in itertools.pairwise(points_of_label.indptr):
            positive = points_of_label.indices[first:last]
            w = _weights(svm, X64, positive, bias)
            pruned = np.where(np.abs(w) >= prune, w, 0)
            rows.append(sp.csr_array(pruned[None]))
    W: sp.csr_array = sp.vstack(rows, format="csr", dtype=np.float32)
    return W


def _weights(
    svm: LinearSVC,
    X: sp.csr_matrix,
    positive: npt.NDArray[np.integer],
    bias: float,
) -> npt.NDArray[np.float64]:
    """Weights of one label, and behind them that of the constant feature."""
    point_count, feature_count = X.shape
    if len(positive) == point_count:
        # liblinear wants two classes. A label that every point has needs the constant feature alone.
        return np.append(np.zeros(feature_count), 1.0)

    sign = np.full(point_count, -1)
    sign[positive] = 1
    svm.fit(X, sign)
    if not bias:
        return np.append(svm.coef_[0], 0.0)
    # scikit-learn's intercept is the weight of the constant feature times its value.
    return np.append(svm.coef_[0], svm.intercept_ / bias)
