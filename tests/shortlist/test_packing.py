"""A packed shortlister finds what it found before, whichever kind it is; recall by beam, counted by hand."""

import numpy as np
import pytest
import scipy.sparse as sp

from xcbench.data import TopK
from xcbench.errors import InputError, XCBenchError
from xcbench.labels import Clustering
from xcbench.shortlist import BeamShortlister, ExactShortlister, HNSWShortlister, TreeShortlister
from xcbench.shortlist.packing import pack, unpack
from xcbench.shortlist.recall import beam_recall

random = np.random.default_rng(2)
W = random.normal(size=(12, 4)).astype(np.float32)
X = random.normal(size=(6, 4)).astype(np.float32)
Y = sp.csr_array((np.ones(6, np.float32), np.arange(6), np.arange(7)), shape=(6, 12))


@pytest.mark.parametrize(
    "shortlister",
    [
        ExactShortlister.of(W),
        BeamShortlister.of(W[:4], Clustering.of(np.arange(12) % 4, 4), 2),
        HNSWShortlister.of(W),
        TreeShortlister.fit(X, Y, trees=2, leaf=4),
    ],
    ids=["exact", "beam", "hnsw", "tree"],
)
def test_packing_changes_nothing(shortlister):
    again = unpack(pack(shortlister))
    assert type(again) is type(shortlister)
    np.testing.assert_array_equal(again.shortlist(X, 5).indices, shortlister.shortlist(X, 5).indices)
    with pytest.raises(XCBenchError, match=r"needs .* of memory are free"):
        shortlister.shortlist(X, 10**13)


def test_recall_by_beam_counted_by_hand():
    clustering = Clustering.of(np.array([0, 0, 1, 1, 2]), 3)
    truth = sp.csr_array(np.array([[1, 1, 1, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], np.float32))
    clusters = TopK(np.array([[1, 0], [0, -1], [2, 1]], np.int32), np.zeros((3, 2), np.float32))
    # Point 0 has a third of its labels in cluster 1 and the rest in cluster 0; point 1 misses; point 2 has none.
    np.testing.assert_allclose(beam_recall(clusters, clustering, truth, [1, 2]), [(1 / 3) / 3, 1 / 3])
    with pytest.raises(InputError, match="from 1 to 2"):
        beam_recall(clusters, clustering, truth, [3])


def test_recall_of_nothing():
    clusters = TopK(np.array([[0]], np.int32), np.zeros((1, 1), np.float32))
    assert beam_recall(clusters, Clustering.of(np.array([0]), 1), sp.csr_array((1, 1)), [1]) == 0
