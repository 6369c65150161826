"""Gandalf's targets worked out by hand, its rivals, and that all of them compose with every method."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from xcbench.methods.augmentations.gandalf import GandalfConfig, drawn_labels, gandalf_targets
from xcbench.methods.augmentations.glas_targets import glas_targets
from xcbench.methods.augmentations.synonyms import SynonymsConfig, nearest_words, with_synonyms

from tests.methods.problems import csr, separable
from xcbench.data import Dataset, Split
from xcbench.errors import InputError
from xcbench.labels.graph import conditional_probabilities
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_augmentation
from xcbench.runner.context import RunContext
from xcbench.runner.execute import run
from xcbench.runner.resolve import resolve
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset

# Label 0 has three points, 1 and 2 have two, label 3 has none, label 4 has one (shared with label 0).
Y = csr([[1, 1, 0, 0, 0], [1, 0, 0, 0, 1], [1, 0, 1, 0, 0], [0, 1, 1, 0, 0]])
THIRD = np.float32(1) / 3
TARGETS = [
    [1, THIRD, THIRD, 0, THIRD],
    [0.5, 1, 0.5, 0, 0],
    [0.5, 0.5, 1, 0, 0],
    [0, 0, 0, 1, 0],
    [1, 0, 0, 0, 1],
]


def small():
    X = csr(np.eye(4, 6))
    Z = csr([[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]])
    return Dataset("small", Split(X, Y), Split(X, Y), Z=Z)


def augmented(name, data, tmp_path, seed=0, original=None, **settings):
    augmentation = get_augmentation(name)
    plugin = augmentation(build(augmentation.config_type, settings))
    return plugin.apply(data, RunContext(seed, "cpu", original or data, StageCache(tmp_path), plugin))


def targets(**settings):
    return gandalf_targets(Y, GandalfConfig(**settings), 0).toarray()


def test_targets_by_hand():
    """Normalised by the source label; a label with one point gives its companion 1; one without points has itself."""
    np.testing.assert_array_equal(targets(delta=0.1), np.array(TARGETS, np.float32))
    np.testing.assert_array_equal(targets(delta=0.0), np.array(TARGETS, np.float32))


def test_only_targets_above_the_threshold_stay_and_always_a_label_itself():
    np.testing.assert_array_equal(targets(delta=0.4)[0], [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(targets(delta=0.5)[1], [0, 1, 0, 0, 0])
    np.testing.assert_array_equal(targets(delta=1.0), np.eye(5))
    np.testing.assert_array_equal(targets(delta=7.0), np.eye(5))


def test_points_with_many_labels_can_be_left_out_or_weighed_down():
    np.testing.assert_array_equal(targets(most_labels=1), np.eye(5))
    np.testing.assert_array_equal(targets(most_labels=2), np.array(TARGETS, np.float32))
    many = sp.vstack([Y, csr([[1, 1, 1, 1, 1]])], format="csr")
    np.testing.assert_array_equal(gandalf_targets(many, GandalfConfig(most_labels=4), 0).toarray(), targets())
    # Points count 1/2, 1/2, 1/2, 1/2 and 1/5: C_00 = 1.7, C_01 = 0.7, C_03 = 0.2.
    weighed = gandalf_targets(many, GandalfConfig(by_labels=True), 0).toarray()
    np.testing.assert_allclose(weighed[0], [1, 0.7 / 1.7, 0.7 / 1.7, 0.2 / 1.7, 0.7 / 1.7], rtol=1e-6)
    np.testing.assert_allclose(weighed[3], [1, 1, 1, 1, 1])
    assert weighed.diagonal().tolist() == [1] * 5


@pytest.mark.parametrize("weights", [None, np.linspace(0, 2, 300, dtype=np.float32)])
def test_blocks_equal_the_dense_product(weights):
    rng = np.random.default_rng(0)
    Y = sp.csr_array((rng.random((300, 80)) < 0.08).astype(np.float32))
    W = np.diag(np.ones(300) if weights is None else weights)
    C = Y.toarray().T @ W @ Y.toarray()
    P = C / C.diagonal()[:, None]
    P[P <= 0.1] = 0
    found = conditional_probabilities(Y, 0.1, block=16, point_weights=weights)
    np.testing.assert_allclose(found.toarray(), P, rtol=1e-5)


def test_the_whole_co_occurrence_matrix_never_exists():
    """A point with all labels makes C dense: 2000 x 2000, of which only the diagonal is above the threshold."""
    L = 2000
    Y = sp.vstack([sp.eye_array(L).tocsr()] * 12 + [sp.csr_array(np.ones((1, L)))], format="csr").astype(np.float32)
    conditional_probabilities(Y[:, :3], 0.1)
    tracemalloc.start()
    found = conditional_probabilities(Y, 0.1, block=1 << 14)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.nnz == L
    assert peak < 8 * L * L / 4


def test_walks_as_the_graph():
    found = targets(graph="walk", delta=0.0)
    assert found.diagonal().tolist() == [1] * 5
    assert found.max() == 1
    assert (found[3] == [0, 0, 0, 1, 0]).all()
    assert np.count_nonzero(targets(graph="walk", delta=0.4)) < np.count_nonzero(found)


def test_label_titles_become_points_behind_the_others(tmp_path):
    data = small()
    found = augmented("gandalf", data, tmp_path).train
    assert found.X.toarray()[4:].tolist() == data.Z.toarray()[:4].tolist()
    np.testing.assert_array_equal(found.Y.toarray()[4:], np.array(TARGETS, np.float32)[:4])
    assert found.label_of.tolist() == [-1, -1, -1, -1, 0, 1, 2, 3]  # label 4 has no words
    np.testing.assert_array_equal(found.Y.toarray()[:4], Y.toarray())


def test_targets_come_from_the_original_points_whatever_came_before(tmp_path):
    data = small()
    once = augmented("gandalf", data, tmp_path)
    twice = augmented("gandalf", once, tmp_path, original=data)
    np.testing.assert_array_equal(twice.train.Y.toarray()[8:], once.train.Y.toarray()[4:])


def test_only_label_points_and_a_sample_of_both(tmp_path):
    data = toy_dataset()
    alone = augmented("gandalf-only", data, tmp_path).train
    assert alone.label_of.tolist() == list(range(50))
    sample = augmented("gandalf-sample", data, tmp_path).train
    assert len(sample) == len(data.train)
    assert 10 < (sample.label_of >= 0).sum() < 80
    again = augmented("gandalf-sample", data, tmp_path).train
    assert again.label_of.tolist() == sample.label_of.tolist()
    other = augmented("gandalf-sample", data, tmp_path, seed=1).train
    assert other.label_of.tolist() != sample.label_of.tolist()


def test_a_sample_keeps_pairs_with_their_points(tmp_path):
    data = toy_dataset()
    data = dataclasses.replace(data, train=dataclasses.replace(data.train, filter=np.array([[0, 3], [150, 4]])))
    sample = augmented("gandalf-sample", data, tmp_path).train
    for row, label in sample.filter:
        original = {3: 0, 4: 150}[label]
        assert sample.titles[row] == data.train.titles[original]


def test_a_share_of_the_titles_drawn_at_random_or_from_the_tail():
    data = small()
    assert drawn_labels(data, GandalfConfig(share=0.5, drawn="tail"), "gandalf", 0).tolist() == [1, 3]
    at_random = [drawn_labels(data, GandalfConfig(share=0.5), "gandalf", seed).tolist() for seed in range(20)]
    assert {len(drawn) for drawn in at_random} == {2}
    assert len({tuple(drawn) for drawn in at_random}) > 2
    assert drawn_labels(data, GandalfConfig(), "gandalf", 0).tolist() == [0, 1, 2, 3]


def test_glas_targets_by_hand():
    """S_01 = (1/3 + 1/2) / 2; the sigmoid of 0 is no target; a label itself has sigmoid(1)."""
    data = small()
    found = glas_targets(Y, data.label_frequency, 0.1).toarray()
    sigmoid = lambda s: 1 / (1 + np.exp(-s))  # noqa: E731
    np.testing.assert_allclose(found[0], [sigmoid(1), sigmoid(5 / 12), sigmoid(5 / 12), 0, sigmoid(2 / 3)], rtol=1e-6)
    np.testing.assert_allclose(found, found.T)
    np.testing.assert_allclose(found.diagonal(), sigmoid(1), rtol=1e-6)
    np.testing.assert_allclose(glas_targets(Y, data.label_frequency, 2.0).toarray(), sigmoid(1) * np.eye(5), rtol=1e-6)


def test_synonyms_are_words_of_the_same_company(tmp_path):
    """Words 0 and 1 never share a title, but always the same neighbours; words 4 and 5 likewise."""
    X = csr([[1, 0, 1, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0, 0]] * 4 + [[0, 0, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 1, 1]] * 4)
    c = SynonymsConfig(rate=1.0, dim=4)
    nearest = nearest_words(X, c, 0)
    assert nearest[[0, 1, 4, 5]].tolist() == [1, 0, 5, 4]
    replaced = with_synonyms(X, nearest, 1.0, 0)
    assert replaced.indices[0] == 1
    assert (with_synonyms(X, nearest, 0.0, 0).toarray() > 0).tolist() == (X.toarray() > 0).tolist()
    data = Dataset("words", Split(X, Y[[0] * 16]), Split(X[:1], Y[:1]))
    bags = augmented("synonyms", data, tmp_path, rate=1.0, dim=4).train.X.toarray()[16:]
    np.testing.assert_allclose(np.linalg.norm(bags, axis=1), 1, rtol=1e-6)
    assert bags[0, 1] > 0


def test_synonyms_add_a_copy_of_every_point(tmp_path):
    data = toy_dataset()
    found = augmented("synonyms", data, tmp_path, rate=0.3).train
    assert len(found) == 2 * len(data.train)
    np.testing.assert_array_equal(found.Y.toarray()[200:], data.train.Y.toarray())
    pairs = [(old.split(), new.split()) for old, new in zip(data.train.titles, found.titles[200:], strict=True)]
    assert all(len(old) == len(new) for old, new in pairs)
    words = [(a, b) for old, new in pairs for a, b in zip(old, new, strict=True)]
    assert 0.2 < np.mean([a != b for a, b in words]) < 0.4
    np.testing.assert_array_equal(found.X[200:].toarray(), data.encoder.encode(found.titles[200:]).toarray())


NAMES = ["gandalf", "gandalf-only", "gandalf-sample", "glas-targets", "label-mixup", "metadata"]


@pytest.mark.parametrize("name", NAMES)
def test_without_label_text_they_say_so(name, tmp_path):
    with pytest.raises(InputError, match=f"{name} needs label text"):
        augmented(name, dataclasses.replace(separable(), Z=None), tmp_path)


@pytest.mark.parametrize("name", [*NAMES, "mixup", "synonyms"])
def test_the_same_seed_gives_the_same_points_and_labels_and_test_points_stay(name, tmp_path):
    data = toy_dataset()
    first = augmented(name, data, tmp_path)
    assert first.fingerprint == augmented(name, data, tmp_path).fingerprint
    assert first.fingerprint != data.fingerprint
    assert first.test is data.test
    assert first.Z is data.Z


@pytest.mark.parametrize(("first", "second"), [("gandalf", "mixup"), ("mixup", "gandalf"), ("synonyms", "gandalf")])
def test_they_compose(first, second, tmp_path):
    data = toy_dataset()
    one = augmented(first, data, tmp_path)
    both = augmented(second, one, tmp_path, original=data).train
    assert (both.label_of >= 0).sum() == 50
    assert (both.mixing is not None) == ("mixup" in (first, second))


@pytest.mark.parametrize("bad", [{"delta": -1}, {"share": 0}, {"most_labels": 0}, {"graph": "walk", "by_labels": True}])
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(InputError):
        build(GandalfConfig, bad)


def test_the_method_gandalf_is_its_base_with_the_augmentation(tmp_path):
    data = toy_dataset()
    resolved = resolve(RunSpec("gandalf", overrides={"augment.gandalf.delta": 0.3}), data)
    assert [plugin.name for plugin in resolved.augmentations] == ["gandalf"]
    assert resolved.config["augment"]["gandalf"]["delta"] == 0.3
    assert resolve(RunSpec("gandalf", augment=("gandalf",)), data).id == resolve(RunSpec("gandalf"), data).id


def test_methods_that_cut_no_batches_refuse_to_mix():
    with pytest.raises(InputError, match="mixup needs a method that can mix points"):
        resolve(RunSpec("knn", augment=("mixup",)), toy_dataset())


def test_a_label_s_own_title_gains_nothing_where_the_pair_is_filtered(tmp_path):
    """The test point is the title of label 0 itself: the filter takes label 0 out of truth and predictions."""
    data = separable()
    points = Split(data.Z[:1], csr([[1, 1] + [0] * 10]), filter=np.array([[0, 0]]))
    data = dataclasses.replace(data, test=points)
    found = run(RunSpec("knn", augment=("gandalf",)), data=data, store=tmp_path / "s", cache=tmp_path / "c")
    assert found.predictions().indices[0, 0] == 0
    assert found.metrics["P@1"].value == 0
