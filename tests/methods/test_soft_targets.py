"""The rule of docs/guides/soft-targets.md wherever targets are read: losses, true and false, and what is counted."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from xcbench.methods.baselines import mach, siamese
from xcbench.methods.baselines import slice as slice_method
from xcbench.methods.rerankers import sparse as sparse_ranker

from tests.methods.problems import csr
from xcbench.data import Dataset, Split, TopK
from xcbench.data.matrices import binary_targets, weak_targets
from xcbench.plugins.config import build, leaves
from xcbench.plugins.registry import get_augmentation, get_method, get_reranker
from xcbench.plugins.stages import seed_generators
from xcbench.runner.context import RunContext
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset
from xcbench.shortlist import HNSWShortlister, TreeShortlister
from xcbench.train import RankAll, RankShortlist, learnable

QUICK = {"dim": 8, "epochs": 1, "rounds": 1, "min_steps": 4, "batch_size": 64, "hidden": 8, "repetitions": 2}
BASES = ["astec", "decaf", "eclare", "mach", "siamese"]


def configured(name, **settings):
    method = get_method(name)
    quick = {
        key: QUICK[key.rpartition(".")[2]] for key in leaves(method.config_type()) if key.rpartition(".")[2] in QUICK
    }
    return method(build(method.config_type, quick, settings))


def soft_data(data, tmp_path):
    augmentation = get_augmentation("gandalf")
    plugin = augmentation(augmentation.config_type())
    return plugin.apply(data, RunContext(0, "cpu", data, StageCache(tmp_path), plugin))


def fitted(name, data, original, folder, **settings):
    plugin = configured(name, **settings)
    run = RunContext(0, "cpu", original, StageCache(folder), plugin)
    seed_generators(0)
    return plugin.fit(data, run), run, plugin


def test_one_half_is_true_less_is_neither_and_nothing_is_false():
    Y = csr([[0.5, 0.49, 0, 1], [0, 0.2, 0.7, 0]])
    assert binary_targets(Y).toarray().tolist() == [[1, 0, 0, 1], [0, 0, 1, 0]]
    assert weak_targets(Y).toarray().tolist() == [[0, 1, 0, 0], [0, 1, 0, 0]]
    assert Y.data.tolist() == csr([[0.5, 0.49, 0, 1], [0, 0.2, 0.7, 0]]).data.tolist()


def test_frequencies_count_true_labels_only():
    Y = csr([[1, 0.4, 0.5], [1, 0.1, 0]])
    data = Dataset("soft", Split(csr(np.eye(2)), Y), Split(csr(np.eye(2)), Y))
    assert data.label_frequency.tolist() == [2, 0, 1]


@pytest.mark.parametrize("name", BASES)
def test_losses_see_soft_targets_as_they_are(name, tmp_path, monkeypatch):
    """A spy on the loss: every label title in a batch has its own targets, not ones in their place."""
    data = toy_dataset()
    soft = soft_data(data, tmp_path)
    seen = []

    def spy_on(module):
        original = module.loss

        def loss(self, batch):
            seen.append(batch)
            return original(self, batch)

        monkeypatch.setattr(module, "loss", loss)

    for module in (RankAll, RankShortlist, mach.Networks, siamese.Towers):
        spy_on(module)
    fitted(name, soft, data, tmp_path / "cache")

    expected = soft.train.Y.toarray()
    compared = 0
    for batch in seen:
        if batch.shortlists is not None:
            entries = batch.shortlists.entries
            labels = batch.shortlists.labels[entries.indices]
            rows = batch.rows[np.repeat(np.arange(len(entries)), np.diff(entries.indptr))]
            np.testing.assert_array_equal(entries.data, expected[rows, labels])
            compared += ((entries.data > 0) & (entries.data < 1)).sum()
        else:
            # Clusters have the largest target of their labels, MACH's buckets shares of it: no row is all ones.
            is_title = soft.train.label_of[batch.rows] >= 0
            values = batch.targets.to_scipy()[np.flatnonzero(is_title)].data
            compared += ((values > 0) & (values < 1)).sum()
    assert compared > 0


@pytest.mark.parametrize("name", ["decaf", "eclare"])
@pytest.mark.parametrize("settings", [{}, {"freeze": True}])
def test_a_label_title_is_always_ranked_against_its_own_label(name, settings, tmp_path, monkeypatch):
    data = toy_dataset()
    soft = soft_data(data, tmp_path)
    seen = []
    original = RankShortlist.loss

    def loss(self, batch):
        seen.append(batch)
        return original(self, batch)

    monkeypatch.setattr(RankShortlist, "loss", loss)
    # A beam of one cluster leaves most labels out.
    fitted(name, soft, data, tmp_path / "cache", beam=1, clusters=32, **settings)
    titles = 0
    for batch in seen:
        candidates = batch.shortlists.entries.to_scipy()
        for place, row in enumerate(batch.rows):
            own = soft.train.label_of[row]
            if own >= 0:
                listed = candidates.indices[candidates.indptr[place] : candidates.indptr[place + 1]]
                assert own in batch.shortlists.labels[listed]
                titles += 1
    assert titles > 0


def test_what_astec_counts_comes_from_the_original_points(tmp_path, monkeypatch):
    """Its indices have no title in them, and its biases start at the share of pairs that are true in the original."""
    data = toy_dataset()
    soft = soft_data(data, tmp_path)
    shares = []
    indexed = []
    original = HNSWShortlister.of.__func__

    def of(cls, vectors, *rest, **settings):
        owners = rest[:1]
        indexed.append((len(vectors), *(labels.nnz for labels in owners)))
        return original(cls, vectors, *rest, **settings)

    monkeypatch.setattr("xcbench.methods.astec.log_odds", lambda share: shares.append(share) or -1.0)
    monkeypatch.setattr(HNSWShortlister, "of", classmethod(of))
    fitted("astec", soft, data, tmp_path / "soft")
    fitted("astec", data, data, tmp_path / "plain")
    assert shares[:2] == shares[2:]
    assert shares[1] == data.train.Y.nnz / (200 * 50)
    # The two indices of a training are built at once, in any order.
    in_order = [sorted(indexed[:2]), sorted(indexed[2:])]
    assert in_order == [[(50,), (200, data.train.Y.nnz)]] * 2


@pytest.mark.parametrize("kind", ["hnsw", "parabel"])
def test_decaf_s_other_shortlists_learn_from_the_original_points(kind, tmp_path, monkeypatch):
    data = toy_dataset()
    soft = soft_data(data, tmp_path)
    seen = []
    original = TreeShortlister.fit.__func__

    def fit(cls, X, Y, **settings):
        seen.append(Y)
        return original(cls, X, Y, **settings)

    monkeypatch.setattr(TreeShortlister, "fit", classmethod(fit))

    def centroids(Y, x):
        seen.append(Y)
        return np.eye(50, x.shape[1], dtype=np.float32)

    monkeypatch.setattr("xcbench.methods.decaf.dense_centroids", centroids)
    fitted("decaf", soft, data, tmp_path / "cache", shortlist=kind)
    assert [Y.shape[0] for Y in seen] == [len(data.train)]


class Lists:
    """A method that lists all labels."""

    def predict(self, X, k, titles=None):
        labels = np.tile(np.arange(k), (X.shape[0], 1))
        return TopK.of(labels, np.full(labels.shape, 0.5) / (1 + np.arange(k)))


def ranker_examples(data, original, folder, monkeypatch):
    seen = {}

    def keep(X, examples, seed, **settings):
        seen["costs"] = examples.T.toarray()
        return sp.csr_array((examples.shape[0], X.shape[1]), dtype=np.float32)

    monkeypatch.setattr(sparse_ranker, "fit_sparse_classifiers", keep)
    reranker = get_reranker("sparse")
    plugin = reranker(reranker.config_type())
    plugin.fit(data, RunContext(0, "cpu", original, StageCache(folder), plugin), Lists())
    return seen["costs"]


def test_the_sparse_ranker_takes_weak_targets_neither_way(tmp_path, monkeypatch):
    Y = csr([[1, 0.4, 0], [0, 0.6, 1]])
    data = Dataset("soft", Split(csr(np.eye(2)), Y), Split(csr(np.eye(2)), Y))
    assert ranker_examples(data, data, tmp_path, monkeypatch).tolist() == [[1, 0, -1], [-1, 1, 1]]


def test_the_sparse_ranker_has_every_title_once(tmp_path, monkeypatch):
    data = toy_dataset()
    soft = soft_data(data, tmp_path)
    plain = ranker_examples(data, data, tmp_path, monkeypatch)
    with_titles = ranker_examples(soft, data, tmp_path, monkeypatch)
    np.testing.assert_array_equal(with_titles, plain)


def test_slice_takes_weak_targets_neither_way_and_centroids_from_the_original_points():
    Y = csr([[1, 0.4, 0], [0, 0.6, 1]])
    shortlists = TopK.of(np.array([[0, 1, 2], [0, 1, 2]]), np.array([[3.0, 2, 1], [3, 2, 1]]))
    examples = slice_method._examples(Y, shortlists)
    assert (examples.points.toarray() > 0).tolist() == [[True, True], [False, True], [True, True]]
    assert examples.positive.toarray().tolist() == [[1, 0], [0, 1], [0, 1]]


def test_popularity_counts_the_original_points(tmp_path):
    data = toy_dataset()
    predictor, _, _ = fitted("popularity", soft_data(data, tmp_path), data, tmp_path)
    np.testing.assert_allclose(predictor.share, data.label_frequency / len(data.train), rtol=1e-6)


def test_eclare_reports_by_the_frequency_of_the_original_points(tmp_path, monkeypatch):
    data = toy_dataset()
    seen = []
    monkeypatch.setattr("xcbench.methods.eclare.mean_by_frequency", lambda strengths, frequency: seen.append(frequency))
    fitted("eclare", soft_data(data, tmp_path), data, tmp_path / "cache")
    np.testing.assert_array_equal(seen[0], data.label_frequency)


def test_titles_are_still_titles_when_points_without_words_are_left_out(tmp_path):
    train = soft_data(toy_dataset(), tmp_path).train
    X = train.X.copy()
    X.data[X.indptr[0] : X.indptr[1]] = 0
    X.eliminate_zeros()
    kept = learnable(dataclasses.replace(train, X=X))
    assert len(kept) == len(train) - 1
    np.testing.assert_array_equal(kept.label_of, train.label_of[1:])
