"""InceptionXML, + and LF: candidates and classifiers against plain computations, and titles that they must stand."""

import dataclasses
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from xcbench.methods import eclare, inceptionxml
from xcbench.methods.inceptionxml import InceptionConfig, InceptionLFConfig, InceptionPredictor, RankTogether

from tests.methods.problems import csr, train
from tests.stand_in_device import StandInDevice, train_on_stand_in
from xcbench.cli import main
from xcbench.data import TextColumn
from xcbench.errors import DataError, InputError
from xcbench.kernels.csr import SparseRows
from xcbench.labels import Clustering, meta_targets
from xcbench.labels.normalise import two_sided
from xcbench.nn import TokenEmbeddings, inception_size
from xcbench.plugins.config import build
from xcbench.plugins.contract import MovablePredictor, TextPredictor
from xcbench.plugins.registry import get_method
from xcbench.plugins.stages import seed_generators
from xcbench.runner.check import check_method
from xcbench.runner.context import RunContext
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset
from xcbench.train import Batch
from xcbench.train import loop as training_loop

SHORT = {"word_dim": 64, "training.epochs": 1, "training.min_steps": 4, "training.batch_size": 50}
LONGER = {"word_dim": 96, "training.epochs": 1, "training.min_steps": 120, "training.batch_size": 50}
VARIANTS = {
    "plain": ("inceptionxml", {}),
    "plus": ("inceptionxml", {"rank": "clusters"}),
    "lf": ("inceptionxml-lf", {}),
}
variants = pytest.mark.parametrize("variant", VARIANTS)


def fitted(variant, data=None, base=SHORT, **settings):
    name, special = VARIANTS[variant]
    return train(name, data or toy_dataset(), **{**base, **special, **settings})


def first_hits(predictor, data):
    best = predictor.predict_titles(data.test.titles, 1).indices[:, 0]
    return np.mean([label in data.test.Y[[row]].indices for row, label in enumerate(best)])


@variants
def test_it_learns_which_words_name_which_labels(variant):
    data = toy_dataset()
    assert first_hits(fitted(variant, data, LONGER), data) > 0.5


@variants
def test_a_title_is_predicted_alone_as_in_a_batch_and_after_saving(variant, tmp_path):
    data = toy_dataset()
    predictor = fitted(variant, data)
    assert isinstance(predictor, TextPredictor)
    titles = list(data.test.titles)[:20]
    together = predictor.predict_titles(titles, 5)
    for row in (0, 7, 19):
        alone = predictor.predict_titles([titles[row]], 5)
        np.testing.assert_allclose(alone.scores[0], together.scores[row], rtol=1e-4)
    predictor.save(tmp_path)
    again = InceptionPredictor.load(tmp_path).predict_titles(titles, 5)
    np.testing.assert_array_equal(again.indices, together.indices)
    np.testing.assert_array_equal(again.scores, together.scores)


@variants
def test_titles_of_every_length_and_words_never_seen(variant):
    data = toy_dataset()
    titles = list(data.train.titles)
    titles[0] = ""
    titles[1] = "topic1"
    titles[2] = " ".join(titles[3:23])  # 100 words and more
    odd = dataclasses.replace(data, train=dataclasses.replace(data.train, titles=TextColumn.of(titles)))
    predictor = fitted(variant, odd)
    found = predictor.predict_titles(["", "never seen", "topic1", " ".join(titles), "topic1 never"], 5)
    assert np.isfinite(found.scores).all()
    np.testing.assert_allclose(found.scores[0], found.scores[1], rtol=1e-4)
    np.testing.assert_allclose(found.scores[2], found.scores[4], rtol=1e-4)
    assert predictor.predict_titles([], 5).indices.shape == (0, 5)


@variants
@pytest.mark.parametrize("points", [20, 51])
def test_small_data_and_a_last_batch_of_one(variant, points):
    data = toy_dataset(labels=50, train=points, test=3)
    found = fitted(variant, data).predict_titles(data.test.titles, 60)
    assert found.indices.shape == (3, 60)


@variants
def test_a_killed_training_goes_on_to_the_same_end(variant, tmp_path, monkeypatch):
    name, special = VARIANTS[variant]
    method = get_method(name)
    plugin = method(build(method.config_type, SHORT, special, {"training.checkpoint_seconds": 0.0}))
    data = toy_dataset()
    stage = method.stages[-1]

    def classifiers(folder):
        seed_generators(0)
        return RunContext(0, "cpu", data, StageCache(tmp_path / folder), plugin).stage(stage, data)["W"]

    whole = np.array(classifiers("whole"))
    train_step = training_loop._Trainer._train_step

    def dies(self, step, part):
        if step == 3:
            raise KeyboardInterrupt
        return train_step(self, step, part)

    monkeypatch.setattr("xcbench.train.checkpoints.MAX_SHARE_OF_TIME", 1e9)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(training_loop._Trainer, "_train_step", dies)
        classifiers("killed")
    np.testing.assert_array_equal(classifiers("killed"), whole)


def together_task(beam, detached_steps=0, labels=12, K=4):
    """Two heads over 12 labels in 4 clusters, and the targets of 3 points."""
    torch.manual_seed(0)
    c = build(InceptionConfig, {"word_dim": 64, "rank": "clusters", "clusters.beam": beam})
    Y = np.zeros((3, labels), np.float32)
    Y[0, [0, 5]] = 1
    Y[1, 11] = 0.4
    Y[2, 7] = 1
    clustering = Clustering.of(np.arange(labels) % K, K)
    targets = meta_targets(csr(Y), clustering)
    network = inceptionxml.network_of(c, np.random.default_rng(0).normal(size=(9, 64)).astype(np.float32))
    free = inceptionxml.free_labels(c, labels, inception_size(64), 0.1)
    task = RankTogether(network, free, clustering, 0.1, c, detached_steps)
    tokens = SparseRows.of(csr(np.eye(3, 9)))
    return task, Batch(np.arange(3), tokens, SparseRows.of(csr(Y)), None), targets


def test_true_clusters_are_candidates_and_the_likeliest_of_the_others():
    task, _, targets = together_task(beam=2)
    u = torch.eye(3, inception_size(64))
    H = torch.zeros(4, inception_size(64))
    H[:, 0] = torch.tensor([-5.0, -6.0, 9.0, 1.0])
    H[:, 1] = torch.tensor([1.0, 2.0, 3.0, -1.0])
    H[:, 2] = torch.tensor([3.0, 2.0, 1.0, -9.0])
    found = task.likeliest(u, H, torch.zeros(4), SparseRows.of(targets))
    assert [set(row.tolist()) for row in found] == [
        {0, 1},  # both true, although both are unlikely
        {1, 2},  # its target of 0.4 is not yet a true one
        {0, 3},  # the true one, and the likeliest
    ]


def test_with_all_clusters_the_loss_is_that_over_all_labels_and_clusters():
    task, batch, targets = together_task(beam=4)
    task.eval()
    h = task.network.encoder(batch.X)
    s = task.network.label_head(h) @ task.labels.weight.weight.T + task.labels.bias.weight
    t = task.network.cluster_head(h) @ task.clusters.weight.weight.T + task.clusters.bias.weight
    y = torch.from_numpy(sp.csr_array(batch.targets.arrays[::-1], shape=(3, 12)).toarray())
    u = torch.from_numpy(targets.toarray())
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    expected = (bce(s, y, reduction="sum") + bce(t, u, reduction="sum")) / 3
    torch.testing.assert_close(task.loss(batch), expected, rtol=1e-4, atol=1e-5)


def test_labels_do_not_train_the_encoder_at_first():
    task, batch, _ = together_task(beam=4, detached_steps=1)
    task.cluster_weight = 0.0
    for reaches_encoder in (False, True):
        task.zero_grad()
        task.loss(batch).backward()
        moved = task.network.encoder.last.weight.grad
        assert bool(moved.abs().max() > 0) is reaches_encoder
        assert task.network.label_head.b.grad.abs().max() > 0


def test_lf_classifiers_are_eclares_on_equal_inputs():
    dim = 96
    assert inception_size(dim) == dim  # so that the bridge between the dimensions can be the identity
    random = np.random.default_rng(0)
    Z = csr(random.random((5, 7)))
    G = two_sided(csr(random.integers(0, 3, (5, 5)) + np.eye(5)))
    torch.manual_seed(0)
    E = TokenEmbeddings(7, dim)
    theirs = eclare.label_classifiers(build(eclare.EclareConfig, {"dim": dim}), E, Z, G, 0.2).eval()
    ours = inceptionxml.text_labels(build(InceptionLFConfig, {"word_dim": dim}), E, Z, G, 0.1).eval()
    with torch.no_grad():
        for block, bridge in zip(theirs.blocks, ours.blocks, strict=True):
            block.lam.fill_(random.random())
            block.R.raw.add_(torch.randn(dim, dim) / 9)
            bridge.B.copy_(torch.eye(dim))
            bridge.block.load_state_dict(block.state_dict())
        ours.attention.load_state_dict(theirs.attention.state_dict())
        ours.z3.load_state_dict(theirs.z3.state_dict())
        for labels in (None, np.array([1, 3])):
            torch.testing.assert_close(ours(labels)[0], theirs(labels)[0])


def test_words_come_from_training_and_label_text_only(tmp_path):
    data = toy_dataset()
    test = dataclasses.replace(data.test, titles=TextColumn.of([f"{title} onlyintest" for title in data.test.titles]))
    labels = TextColumn.of([f"{title} onlyinlabel" for title in data.label_titles])
    predictor = fitted("plain", dataclasses.replace(data, test=test, label_titles=labels))
    assert "onlyinlabel" in predictor.encoder.vocabulary
    assert "onlyintest" not in predictor.encoder.vocabulary


def start_of_words(data, folder, **settings):
    method = get_method("inceptionxml")
    plugin = method(build(method.config_type, SHORT, settings))
    context = RunContext(0, "cpu", data, StageCache(folder), plugin)
    vocabulary = list(context.stage(inceptionxml.vocabulary, data)["vocabulary"])
    return dict(zip(vocabulary, context.stage(inceptionxml.word_vectors, data)["E"], strict=True))


def test_word_vectors_start_at_those_of_a_file(tmp_path):
    path = tmp_path / "glove.txt"
    numbers = " ".join(["0.5"] * 64)
    path.write_text(f"nosuchword {numbers}\ntopic3 {numbers}\n")
    E = start_of_words(toy_dataset(), tmp_path, vectors=str(path))
    assert (E["topic3"] == 0.5).all()
    assert abs(E["topic4"]).max() <= 0.25
    path.write_text("topic3 1 2 3\n")
    with pytest.raises(DataError, match=r"glove.txt, line 1: expected a word and 64 numbers, got 3"):
        start_of_words(toy_dataset(), tmp_path, vectors=str(path))


def test_learnt_word_vectors_know_which_words_belong_together(tmp_path):
    E = start_of_words(toy_dataset(), tmp_path)
    assert E["topic3"] @ E["group0"] > E["topic3"] @ E["group5"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("word_dim", 62, "steps of 4"),
        ("length", 0, "at least 1"),
        ("dropout", 1.0, "below 1"),
        ("clusters.beam", 0, "at least 1"),
        ("clusters.detached", 2.0, "between 0 and 1"),
        ("stop_words", "englsh", "expects one of none, english"),
    ],
)
def test_settings_out_of_range_are_refused(key, value, message):
    with pytest.raises(InputError, match=message):
        build(InceptionConfig, {key: value})


def test_lf_needs_label_titles():
    data = dataclasses.replace(toy_dataset(), label_titles=None)
    with pytest.raises(InputError, match="needs label titles"):
        fitted("lf", data)
    assert fitted("plus", data) is not None


@variants
def test_predictions_on_a_device_are_those_of_the_cpu(variant, tmp_path):
    data = toy_dataset()
    predictor = fitted(variant, data)
    expected = predictor.predict_titles(data.test.titles, 5)
    assert isinstance(predictor, MovablePredictor)
    with StandInDevice() as device:
        there = predictor.to("standin")
        assert device.count("to device") > 0
        found = there.predict_titles(data.test.titles, 5)
        there.save(tmp_path)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-3)
    assert (tmp_path / "values.json").exists()


@variants
def test_it_learns_on_a_device_what_it_learns_on_the_cpu(variant, monkeypatch):
    train_on_stand_in(monkeypatch)
    name, special = VARIANTS[variant]
    method = get_method(name)
    plugin = method(build(method.config_type, SHORT, special))
    data = toy_dataset()
    scores = []
    with StandInDevice() as device:
        for place in ("cpu", "standin"):
            with tempfile.TemporaryDirectory() as folder:
                seed_generators(0)
                predictor = plugin.fit(data, RunContext(0, place, data, StageCache(Path(folder)), plugin))
            scores.append(predictor.predict_titles(data.test.titles, 50).scores)
    assert device.count("to device") > 0
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-2, atol=1e-4)


def test_a_run_and_a_prediction_of_new_text(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    record = run(RunSpec("inceptionxml", overrides=LONGER), data=toy_dataset(), store=tmp_path / "store")
    capsys.readouterr()
    arguments = ["predict", "--run", str(record.folder), "--text", "topic7 group1 word3", "--k", "3", "--json"]
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert not end.value.code
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["labels"][0]["label"] == 7


@pytest.mark.parametrize("name", ["inceptionxml", "inceptionxml-lf"])
def test_the_contract_holds(name, monkeypatch):
    """The runner's own questions: repeats itself, survives the disk, ignores the test set, every ablation trains..."""
    monkeypatch.setattr("xcbench.runner.resolve.build", lambda kind, *p, **o: build(kind, SHORT, *p, **o))
    broken = [finding for finding in check_method(name) if finding.broken]
    assert not broken, broken
