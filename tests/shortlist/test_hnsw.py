"""Nearest neighbours: close to exact on small data, votes as written."""

import functools

import faiss
import numpy as np
import pytest
import scipy.sparse as sp

from xcbench.errors import DataError, InputError
from xcbench.shortlist import (
    HNSWShortlister,
    blend,
    build_at_once,
    divide_by_best,
    exact_topk,
    load_shortlister,
    recall_curve,
)
from xcbench.shortlist.contract import load_parts, save_parts


def unit(rng, rows, D=12):
    vectors = rng.standard_normal((rows, D), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_nearly_exact_on_small_data():
    rng = np.random.default_rng(0)
    X, W = unit(rng, 200), unit(rng, 1500)
    exact = exact_topk(X, W, 20)
    found = HNSWShortlister.of(3 * W).shortlist(7 * X, 20)  # lengths do not matter: scores are cosines
    truth = sp.csr_array((np.ones(4000, np.float32), exact.indices.ravel(), np.arange(201) * 20), shape=(200, 1500))
    assert recall_curve(found, truth, [20])[0] > 0.99
    same = found.indices[:, 0] == exact.indices[:, 0]
    np.testing.assert_allclose(found.scores[same, 0], exact.scores[same, 0], rtol=1e-5)


def test_a_graph_built_on_one_thread_is_always_the_same():
    rng = np.random.default_rng(1)
    X, W = unit(rng, 50), unit(rng, 800)
    first, second = (HNSWShortlister.of(W, M=4, ef_construction=8, ef_search=8).shortlist(X, 10) for _ in range(2))
    np.testing.assert_array_equal(first.indices, second.indices)
    np.testing.assert_array_equal(first.scores, second.scores)


def test_a_label_with_several_vectors_counts_by_the_best():
    vectors = np.array([[1, 0], [0, 1], [0.8, 0.6]], np.float32)
    owners = sp.csr_array(np.array([[1, 0], [1, 0], [0, 1]], np.float32))
    found = HNSWShortlister.of(vectors, owners, neighbours=3).shortlist(np.array([[0, 2], [1, 0]], np.float32), 2)
    np.testing.assert_array_equal(found.indices, [[0, 1], [0, 1]])
    np.testing.assert_allclose(found.scores, [[1, 0.6], [1, 0.8]], rtol=1e-6)


def test_training_points_vote_for_their_labels():
    """Astec's second index: similarities summed by label, then scaled by the best and mixed with the first."""
    points = np.array([[1, 0], [0.8, 0.6], [0, 1]], np.float32)
    Y = sp.csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], np.float32))
    votes = HNSWShortlister.of(points, Y, neighbours=2, vote="sum").shortlist(np.array([[1, 0]], np.float32), 3)
    np.testing.assert_array_equal(votes.indices, [[1, 0, -1]])
    np.testing.assert_allclose(votes.scores[0, :2], [1.8, 1], rtol=1e-6)
    mixed = blend([divide_by_best(votes), divide_by_best(votes.cut(1))], 2, weights=(0.25, 0.75))
    np.testing.assert_allclose(mixed.scores, [[1, 0.25 / 1.8]], rtol=1e-6)


def test_fewer_labels_than_wanted_and_no_points():
    shortlister = HNSWShortlister.of(np.eye(2, dtype=np.float32))
    found = shortlister.shortlist(np.array([[1, 0.1]], np.float32), 5)
    np.testing.assert_array_equal(found.indices, [[0, 1, -1, -1, -1]])
    assert shortlister.shortlist(np.empty((0, 2), np.float32), 5).indices.shape == (0, 5)


def test_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(2)
    owners = sp.csr_array(rng.random((90, 40)).round().astype(np.float32))
    shortlister = HNSWShortlister.of(unit(rng, 90), owners, neighbours=7, vote="sum")
    shortlister.save(tmp_path / "index")
    loaded = load_shortlister(tmp_path / "index")
    X = unit(rng, 5)
    assert loaded.label_count == 40
    np.testing.assert_array_equal(loaded.shortlist(X, 9).scores, shortlister.shortlist(X, 9).scores)


def test_owners_must_fit():
    with pytest.raises(InputError, match="3 vectors need owners"):
        HNSWShortlister.of(np.eye(3, dtype=np.float32), sp.csr_array((2, 5), dtype=np.float32))


def test_indices_built_at_once_are_those_built_alone():
    rng = np.random.default_rng(3)
    vectors = [unit(rng, 300), unit(rng, 200)]
    together = build_at_once(*(functools.partial(HNSWShortlister.of, W, M=4) for W in vectors))
    for W, found in zip(vectors, together, strict=True):
        alone = HNSWShortlister.of(W, M=4)
        np.testing.assert_array_equal(faiss.serialize_index(found.index), faiss.serialize_index(alone.index))


def test_an_index_that_older_code_saved_as_an_array_is_read(tmp_path):
    rng = np.random.default_rng(4)
    shortlister = HNSWShortlister.of(unit(rng, 40))
    shortlister.save(tmp_path / "saved")
    settings, arrays = load_parts(tmp_path / "saved", "hnsw")
    arrays["index"] = faiss.serialize_index(shortlister.index)
    save_parts(tmp_path / "older", "hnsw", settings, arrays)
    X = unit(rng, 5)
    again = load_shortlister(tmp_path / "older")
    np.testing.assert_array_equal(again.shortlist(X, 3).indices, shortlister.shortlist(X, 3).indices)


def test_a_damaged_index_is_refused(tmp_path):
    rng = np.random.default_rng(5)
    HNSWShortlister.of(unit(rng, 40)).save(tmp_path / "saved")
    path = tmp_path / "saved" / "index.faiss"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"index\.faiss.*cannot be read as an index of faiss"):
        load_shortlister(tmp_path / "saved")
