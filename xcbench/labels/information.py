"""How much a clustering knows: mutual information of labels and points, and what merging labels loses of it."""

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.labels.partition import Clustering


def mutual_information(Y: sp.csr_array) -> float:
    """I(labels; points) in bits, with p(l, i) = Y_il / sum Y; 0 for an empty matrix. Works for clusters as well."""
    joint = Y.astype(np.float64)
    total = joint.sum()
    if total <= 0:
        return 0.0
    of_points, of_labels = _entropy(joint.sum(axis=1) / total), _entropy(joint.sum(axis=0) / total)
    return max(0.0, of_points + of_labels - _entropy(joint.data / total))


def loss_of_mutual_information(Y: sp.csr_array, clustering: Clustering) -> float:
    """I(labels; points) - I(clusters; points) in bits: 0 if each label is its own cluster, all of it if there is one.

    Divide by `mutual_information(Y)` for the share that is lost.
    """
    clusters = (Y.astype(np.float64) @ clustering.to_csr()).tocsr()
    return max(0.0, mutual_information(Y) - mutual_information(clusters))


def information_lost(Y: sp.csr_array, clustering: Clustering) -> float:
    """The same as a percentage of I(labels; points): ECLARE's Table 7. 0 where there is nothing to lose."""
    whole = mutual_information(Y)
    return 100 * loss_of_mutual_information(Y, clustering) / whole if whole else 0.0


def _entropy(probabilities: npt.NDArray[np.float64]) -> float:
    p = probabilities[probabilities > 0]
    return float(-(p * np.log2(p)).sum())
