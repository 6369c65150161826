"""How much of the truth a shortlist holds, by its length: DECAF's Figure 6."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import njit

from xcbench.data import TopK
from xcbench.data.matrices import pattern
from xcbench.errors import InputError
from xcbench.labels.partition import Clustering


def recall_curve(shortlist: TopK, truth: sp.csr_array, lengths: Sequence[int]) -> npt.NDArray[np.float64]:
    """R@length for each length: the mean over points of |first `length` labels ∩ truth| / max(1, |truth|)."""
    if len(shortlist) != truth.shape[0]:
        raise InputError(f"a shortlist for {len(shortlist)} points cannot be held against {truth.shape[0]} points")
    if min(lengths, default=1) < 1 or max(lengths, default=1) > shortlist.k:
        raise InputError(f"lengths go from 1 to {shortlist.k}, the shortlist's own, got {list(lengths)}")
    true = pattern(truth)
    gains = np.zeros(shortlist.k)
    _add_gains(shortlist.indices, true.indptr.astype(np.int64), true.indices.astype(np.int32), gains)
    return np.cumsum(gains)[np.asarray(lengths, np.int64) - 1] / max(1, len(shortlist))


@njit(cache=True)
def _add_gains(
    found: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int32],
    gains: npt.NDArray[np.float64],
) -> None:
    """What the label at each place adds to the recall of its point, summed over points."""
    for i in range(len(found)):
        true = labels[indptr[i] : indptr[i + 1]]
        for place in range(found.shape[1]):
            at = np.searchsorted(true, found[i, place])
            if at < len(true) and true[at] == found[i, place]:
                gains[place] += 1 / len(true)


def beam_recall(
    clusters: TopK, clustering: Clustering, truth: sp.csr_array, beams: Sequence[int]
) -> npt.NDArray[np.float64]:
    """For each beam: the mean over points of the share of true labels that lie in the first `beam` clusters."""
    if min(beams, default=1) < 1 or max(beams, default=1) > clusters.k:
        raise InputError(f"beams go from 1 to {clusters.k}, the list's own, got {list(beams)}")
    true = pattern(truth)
    sizes = np.diff(true.indptr)
    share = (sp.diags_array(1 / np.maximum(sizes, 1)) @ true @ clustering.to_csr()).tocsr()
    share.sort_indices()
    keys = np.repeat(np.arange(len(clusters)), np.diff(share.indptr)) * clustering.K + share.indices
    wanted = np.arange(len(clusters))[:, None] * clustering.K + clusters.indices
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    found = (keys[at] == wanted) & (clusters.indices >= 0) if len(keys) else np.zeros(wanted.shape, bool)
    gains = np.where(found, share.data[at] if len(keys) else 0.0, 0.0).sum(axis=0)
    return np.cumsum(gains)[np.asarray(beams, np.int64) - 1] / max(1, len(clusters))
