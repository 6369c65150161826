"""Mutual information of labels and points, and how much of it a clustering of the labels loses."""

import numpy as np
import scipy.sparse as sp

from xcbench.kernels.arrays import Doubles
from xcbench.labels.partition import Clustering


def mutual_information(Y: sp.csr_array) -> float:
    """Return I(labels; points) in bits, with p(l, i) = Y_il / sum Y; 0 for an empty matrix.

    Parameters
    ----------
    Y : targets of labels (N x L) or of clusters (N x K).
    """
    joint = Y.astype(np.float64)
    total = joint.sum()
    if total <= 0:
        return 0.0
    of_points = _entropy(joint.sum(axis=1) / total)
    of_labels = _entropy(joint.sum(axis=0) / total)
    of_pairs = _entropy(joint.data / total)
    return max(0.0, of_points + of_labels - of_pairs)


def loss_of_mutual_information(Y: sp.csr_array, clustering: Clustering) -> float:
    """Return I(labels; points) - I(clusters; points) in bits.

    It is 0 if each label is its own cluster, and I(labels; points) if there is only one cluster.

    Parameters
    ----------
    Y : targets (N x L).
    clustering : which label is in which cluster.
    """
    M = clustering.to_csr()
    clusters = (Y.astype(np.float64) @ M).tocsr()
    loss = mutual_information(Y) - mutual_information(clusters)
    return max(0.0, loss)


def information_lost(Y: sp.csr_array, clustering: Clustering) -> float:
    """Return the same loss in percent of I(labels; points), as in ECLARE's Table 7. 0 if there is nothing to lose.

    Parameters
    ----------
    Y : targets (N x L).
    clustering : which label is in which cluster.
    """
    whole = mutual_information(Y)
    if whole == 0:
        return 0.0
    loss = loss_of_mutual_information(Y, clustering)
    return 100 * loss / whole


def _entropy(probabilities: Doubles) -> float:
    p = probabilities[probabilities > 0]
    bits = -(p * np.log2(p)).sum()
    return float(bits)
