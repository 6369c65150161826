"""Linear SVMs of some labels by liblinear. Worker processes import this, so it imports little.

Not a method; what DiSMEC is made of.
"""

import itertools

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import sklearn
from sklearn.svm import LinearSVC


def fit_labels(
    X: sp.csr_array, points_of: sp.csr_array, *, C: float, prune: float, bias: float, tolerance: float
) -> sp.csr_array:
    """A row of weights for each row of `points_of`, which names a label's points; the last column weighs the bias."""
    X64 = sp.csr_matrix(X.astype(np.float64))
    svm = LinearSVC(
        C=C, dual=True, tol=tolerance, fit_intercept=bias > 0, intercept_scaling=bias or 1.0, random_state=0
    )
    rows = []
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
        for first, last in itertools.pairwise(points_of.indptr):
            w = _weights(svm, X64, points_of.indices[first:last], bias)
            rows.append(sp.csr_array(np.where(np.abs(w) >= prune, w, 0)[None]))
    W: sp.csr_array = sp.vstack(rows, format="csr", dtype=np.float32)
    return W


def _weights(
    svm: LinearSVC, X: sp.csr_matrix, positive: npt.NDArray[np.integer], bias: float
) -> npt.NDArray[np.float64]:
    if len(positive) == X.shape[0]:
        # liblinear wants two classes; a label that every point has is told by the constant feature alone.
        return np.append(np.zeros(X.shape[1]), 1.0)
    sign = np.full(X.shape[0], -1)
    sign[positive] = 1
    svm.fit(X, sign)
    # scikit-learn's intercept is the weight of the constant feature times its value.
    return np.append(svm.coef_[0], svm.intercept_ / bias if bias else 0.0)
