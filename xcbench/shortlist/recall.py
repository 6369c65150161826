"""How many of the true labels are in a shortlist, by its length: DECAF's Figure 6."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numba import njit

from xcbench.data import TopK
from xcbench.data.matrices import binary_targets
from xcbench.errors import InputError
from xcbench.kernels.arrays import Doubles, Ints, Longs
from xcbench.kernels.csr import arrays_of
from xcbench.labels.partition import Clustering


def recall_curve(shortlist: TopK, truth: sp.csr_array, lengths: Sequence[int]) -> Doubles:
    """Return the recall of the first labels of a shortlist: the mean over points of |first labels ∩ truth| / |truth|.

    Parameters
    ----------
    shortlist
        Labels per point, best first.
    truth
        [n, L] the true labels: targets of at least one half. A point without any has recall 0.
    lengths
        How many labels of the shortlist count. The result has one recall per length.
    """
    if len(shortlist) != truth.shape[0]:
        raise InputError(
            f"a shortlist for {len(shortlist)} points cannot be compared with the truth of {truth.shape[0]} points"
        )
    if min(lengths, default=1) < 1 or max(lengths, default=1) > shortlist.k:
        raise InputError(f"lengths go from 1 to {shortlist.k}, the shortlist's own, got {list(lengths)}")

    true = arrays_of(binary_targets(truth))
    gains = np.zeros(shortlist.k)
    _add_gains(shortlist.indices, true.indptr, true.indices, gains)
    return _mean_until(gains, lengths, len(shortlist))


def beam_recall(
    clusters: TopK,
    clustering: Clustering,
    truth: sp.csr_array,
    beams: Sequence[int],
) -> Doubles:
    """Return the mean over points of the share of true labels that are in the point's first clusters.

    Parameters
    ----------
    clusters
        Clusters per point, best first.
    clustering
        Which labels each cluster has.
    truth
        [n, L] the true labels: targets of at least one half.
    beams
        How many clusters count. The result has one recall per beam.
    """
    if min(beams, default=1) < 1 or max(beams, default=1) > clusters.k:
        raise InputError(f"beams go from 1 to {clusters.k}, the list's own, got {list(beams)}")

    # The share of a point's true labels that each cluster has, [n, K].
    true = binary_targets(truth)
    share_of_label = 1 / np.maximum(np.diff(true.indptr), 1)
    label_shares = sp.diags_array(share_of_label) @ true
    share = (label_shares @ clustering.to_csr()).tocsr()
    share.sort_indices()
    if not share.nnz:
        return np.zeros(len(beams))

    # Point and cluster as one number, ascending, so that all clusters of all points are looked up at once.
    points = np.arange(len(clusters))
    point_of_entry = np.repeat(points, np.diff(share.indptr))
    stored = point_of_entry * clustering.K + share.indices
    wanted = points[:, None] * clustering.K + clusters.indices
    position = np.minimum(np.searchsorted(stored, wanted), len(stored) - 1)
    is_stored = (stored[position] == wanted) & (clusters.indices >= 0)
    gains = np.where(is_stored, share.data[position], 0.0)
    return _mean_until(gains.sum(axis=0), beams, len(clusters))


def _mean_until(gains: Doubles, lengths: Sequence[int], points: int) -> Doubles:
    """Add up the gains of the first places, for each length, and divide by the number of points."""
    totals = np.cumsum(gains)
    last_places = np.asarray(lengths, np.int64) - 1
    return totals[last_places] / max(1, points)


@njit(cache=True)
def _add_gains(shortlist: Ints, indptr: Longs, labels: Ints, gains: Doubles) -> None:
    """Add, for each place, what the labels there contribute to the recall of their points."""
    for i in range(len(shortlist)):
        true = labels[indptr[i] : indptr[i + 1]]
        for place in range(shortlist.shape[1]):
            position = np.searchsorted(true, shortlist[i, place])
            if position < len(true) and true[position] == shortlist[i, place]:
                gains[place] += 1 / len(true)
