"""Training points in the place of test points: nothing is lost, filters follow, features without text stay."""

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset, Split
from xcbench.data.holdout import hold_out


def test_rows_change_sides_with_their_features_targets_and_filters():
    X = sp.eye_array(5, dtype=np.float32, format="csr")
    Y = sp.csr_array(np.tri(5, 3, dtype=np.float32))
    Z = sp.csr_array(np.ones((3, 5), np.float32))
    train = Split(X, Y, filter=np.array([[0, 1], [3, 0], [4, 2]]))
    data = Dataset("d", train, test=Split(X[:1], Y[:1]), Z=Z)

    part = hold_out(data, np.array([3, 0]))
    assert part.train.X.toarray().tolist() == X.toarray()[[1, 2, 4]].tolist()
    assert part.test.X.toarray().tolist() == X.toarray()[[0, 3]].tolist()
    assert part.test.Y.toarray().tolist() == Y.toarray()[[0, 3]].tolist()
    assert part.train.filter.tolist() == [[2, 2]]
    assert part.test.filter.tolist() == [[0, 1], [1, 0]]
    assert part.Z is data.Z
    assert part.fingerprint != data.fingerprint
