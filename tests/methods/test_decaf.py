"""DECAF's equations, one step against a slow reference, its ablations, and data of every awkward kind."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from xcbench.methods.decaf import Decaf, DecafConfig, LabelClassifiers, label_classifiers

from tests.methods.problems import csr, gappy, separable, stages_of, train
from xcbench.data import Dataset, Split
from xcbench.errors import InputError
from xcbench.nn import DocumentEncoder, GatedBlock, LabelBank, LabelText, TokenEmbeddings
from xcbench.plugins.config import build, changes
from xcbench.runner.check import check_method
from xcbench.runner.context import RunContext
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset
from xcbench.shortlist import HNSWShortlister, TreeShortlister
from xcbench.shortlist.predictors import BeamPredictor, ShortlistPredictor
from xcbench.shortlist.predictors.cascade import CascadePredictor
from xcbench.train import Candidates, RankAll, RankShortlist, Schedule, Training
from xcbench.train import train as train_module
from xcbench.train.batches import Points

SMALL = {"dim": 24} | {
    f"{module}.training.{key}": value
    for module in ("surrogate", "shortlister", "extreme")
    for key, value in {"min_steps": 80, "batch_size": 32, "epochs": 1}.items()
}
TINY = {key: 8 if key.endswith(("dim", "steps")) else value for key, value in SMALL.items()}


def small(**settings):
    return build(DecafConfig, SMALL, settings)


def staged(config, data, folder):
    method = Decaf(config)
    return stages_of(method, data, RunContext(0, "cpu", data, StageCache(folder), method))


def precision_at_1(predictor, split):
    best = predictor.predict(split.X, 3).indices[:, 0]
    return np.mean([split.Y[[i]].toarray()[0, label] for i, label in enumerate(best)])


def label_side(E, Z, parts="text+free", seed=0):
    torch.manual_seed(seed)
    return label_classifiers(E, Z, Z.shape[0], 0.0, parts)


def test_the_classifier_at_its_start():
    """w_l = 0.5 E z_l + 0.5 E_L(E z_l), and E_L(r) = 0.5 ReLU(r) + 0.5 r."""
    E, Z = TokenEmbeddings(6, 4), csr(np.eye(5, 6) * 0.7 + 0.1)
    labels = label_side(E, Z).eval()
    r = torch.from_numpy(Z.toarray()) @ E.weight
    text = 0.5 * torch.relu(r) + 0.5 * r
    W, bias = labels(None)
    torch.testing.assert_close(W.full(), 0.5 * r + 0.5 * text)
    assert not bias.any()  # until `fit_bias`, which tests/train/test_tasks.py is about
    torch.testing.assert_close(label_side(E, Z, "text").eval()(None)[0].full(), text)
    torch.testing.assert_close(label_side(E, Z, "free").eval()(None)[0], r)


def slow_step(X, U, Y, E0, bias0, lr):
    """One Adam step of the surrogate task in plain dense torch, everything at its start; returns E and the loss."""
    E, bias = torch.tensor(E0, requires_grad=True), torch.tensor(bias0, requires_grad=True)
    gates = torch.zeros(4, E.shape[1], requires_grad=True)  # a and c, of documents and of labels

    def block(r, a, c):
        return torch.sigmoid(a) * torch.relu(r) + torch.sigmoid(c) * r  # R is the identity, and so is R over its norm

    x = torch.relu(block(X @ E, gates[0], gates[1]))
    H = block(U @ E, gates[2], gates[3])
    loss = bce(x @ H.T + bias, Y, reduction="sum") / len(X)
    torch.optim.Adam([E, bias, gates], lr=lr).zero_grad()
    loss.backward()
    moved = E - lr * E.grad / (E.grad.abs() + 1e-8)  # Adam's first step: m / sqrt(v) = g / |g|
    return moved.detach(), loss.item()


def test_one_step_of_the_surrogate_task_against_a_dense_reference():
    torch.manual_seed(1)
    random = np.random.default_rng(1)
    X, U = (sp.random_array((n, 7), density=0.6, format="csr", dtype=np.float32, random_state=random) for n in (5, 3))
    Y = csr(random.integers(0, 2, (5, 3)))
    E = TokenEmbeddings(7, 4)
    bias = LabelBank(3, start=torch.tensor([-1.0, 0.5, 0.0]))
    labels = LabelClassifiers(LabelText(E, U), GatedBlock(4, 0.0), None, bias)
    dense = [torch.from_numpy(M.toarray()) for M in (X, U, Y)]
    want, loss = slow_step(*dense, E.weight.detach().numpy().copy(), bias.weight.detach().numpy().copy(), 0.01)
    task = RankAll(DocumentEncoder(GatedBlock(4, 0.0), E), labels, "batch")
    report = train_module(task, Points(X, Y), Training(lr=0.01, batch_size=8, steps=1, schedule=Schedule("constant")))
    assert report.losses[0] == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(E.weight.detach(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reduction", ["batch", "mean"])
def test_one_step_of_the_extreme_task_against_a_dense_reference(reduction):
    """Rows of different lengths, a label that nobody lists (4), and a positive outside its shortlist (3 of point 1)."""
    torch.manual_seed(2)
    random = np.random.default_rng(2)
    X, Z = (sp.random_array((n, 7), density=0.6, format="csr", dtype=np.float32, random_state=random) for n in (3, 5))
    Y = csr([[1, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 1, 1, 0, 0]])
    listed = np.array([[0, 2, -1], [1, 0, -1], [3, 2, 1]], np.int32)
    E = TokenEmbeddings(7, 4)
    labels = label_classifiers(E, Z, 5, 0.0, "text+free")
    learnt = {"E": E.weight, "z2": labels.z2.weight, "bias": labels.bias.weight}
    learnt |= {"alpha": labels.combine.alpha, "beta": labels.combine.beta}
    slow = {name: torch.tensor(p.detach().numpy().copy(), requires_grad=True) for name, p in learnt.items()}

    def block(r):
        return 0.5 * torch.relu(r) + 0.5 * r

    dense = {name: torch.from_numpy(M.toarray()) for name, M in (("X", X), ("Y", Y), ("Z", Z))}
    text = block(dense["Z"] @ slow["E"])
    W = torch.sigmoid(slow["alpha"]) * slow["z2"] + torch.sigmoid(slow["beta"]) * text
    mask = torch.zeros(3, 5)
    for i, row in enumerate(listed):
        mask[i, row[row >= 0]] = 1
    logits = torch.relu(block(dense["X"] @ slow["E"])) @ W.T + slow["bias"]
    loss = (bce(logits, dense["Y"], reduction="none") * mask).sum() / (3 if reduction == "batch" else mask.sum())
    loss.backward()
    points = Points(X, Y, Candidates.of_labels(listed, 5))
    task = RankShortlist(DocumentEncoder(GatedBlock(4, 0.0), E), labels, reduction)
    report = train_module(task, points, Training(lr=0.01, batch_size=8, steps=1, schedule=Schedule("constant")))
    assert report.losses[0] == pytest.approx(loss.item(), rel=1e-5)
    for name, p in learnt.items():
        start, g = slow[name].detach(), slow[name].grad
        torch.testing.assert_close(p.detach(), start - 0.01 * g / (g.abs() + 1e-8), rtol=1e-4, atol=1e-5, msg=name)
    assert torch.equal(labels.z2.weight[4], slow["z2"][4])


def test_it_overfits_fifty_points(tmp_path):
    data = toy_dataset(labels=20, train=50, test=5)
    settings = {f"{module}.dropout": 0.0 for module in ("surrogate", "shortlister", "extreme")}
    predictor = train("decaf", data, **(SMALL | settings | {"extreme.training.min_steps": 300}))
    assert precision_at_1(predictor, data.train) == 1.0


def test_with_all_clusters_and_one_label_each_the_score_is_a_product():
    data = separable()
    predictor = train("decaf", data, **SMALL, clusters=12, beam=12)
    beam = predictor.ranker
    first, second = predictor.first(data.test.X), predictor.second(data.test.X)
    of_label = beam.shortlister.clustering.cluster_of
    H = (first @ beam.shortlister.H.T + beam.shortlister.bias)[:, of_label]
    order = np.argsort(beam.shortlister.clustering.indices)
    S = second @ beam.W[order].T + beam.bias[order]
    want = 1 / (1 + np.exp(-H)) / (1 + np.exp(-S))
    found = predictor.predict(data.test.X, 12)
    np.testing.assert_allclose(np.take_along_axis(want, found.indices.astype(int), 1), found.scores, rtol=1e-4)


ABLATIONS = {
    "fft": {"embeddings", "freeze"},
    "8k": {"cluster_factor"},
    "noinit": {"free_start"},
    "z1": {"classifier"},
    "z2": {"classifier"},
    "lite": {"freeze"},
    "hnsw": {"shortlist"},
    "parabel": {"shortlist"},
    "positives": {"force_positives"},
}
REUSED = {
    "fft": set(),
    "8k": set(),
    "noinit": {"surrogate", "shortlister"},
    "z1": {"surrogate"},
    "z2": {"surrogate"},
    "lite": {"surrogate"},
    "hnsw": {"surrogate"},
    "parabel": {"surrogate"},
    "positives": {"surrogate", "shortlister"},
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_changes_what_its_name_says_and_recomputes_only_that(name, tmp_path):
    patch = Decaf.ablations[name].patch
    assert {change.key for change in changes(DecafConfig, patch)} == ABLATIONS[name]
    data = separable()
    full, ablated = staged(small(), data, tmp_path), staged(small(**patch), data, tmp_path)
    assert {stage for stage in full if full[stage].key == ablated[stage].key} == REUSED[name]


def test_parts_of_the_classifier():
    E, Z = TokenEmbeddings(6, 4), csr(np.eye(5, 6))
    parts = {kind: {n for n, _ in label_side(E, Z, kind).named_parameters()} for kind in ("text+free", "text", "free")}
    text = {"text.E.weight", "E_L.R.raw", "E_L.bias", "E_L.a", "E_L.c"}
    assert parts["text"] == text | {"bias.weight"}
    assert parts["free"] == {"z2.weight", "bias.weight"}
    assert parts["text+free"] == text | {"z2.weight", "bias.weight", "combine.alpha", "combine.beta"}


def test_what_the_ablations_leave_behind(tmp_path):
    data = toy_dataset(labels=20, train=60, test=5)

    def predictor(name):
        method = Decaf(small(**Decaf.ablations[name].patch if name else {}))
        return method.fit(data, RunContext(0, "cpu", data, StageCache(tmp_path), method))

    full, lite, fft, eighth = (predictor(name) for name in (None, "lite", "fft", "8k"))
    assert full.first.E is not full.second.E
    assert lite.first.E is lite.second.E
    assert fft.first.E is fft.second.E
    assert not np.array_equal(fft.first.E, lite.first.E)
    assert (full.ranker.shortlister.clustering.K, eighth.ranker.shortlister.clustering.K) == (8, 2)
    for name, kind in (("hnsw", HNSWShortlister), ("parabel", TreeShortlister)):
        replaced = predictor(name)
        assert isinstance(replaced.ranker, ShortlistPredictor)
        assert isinstance(replaced.ranker.shortlister, kind)
        assert precision_at_1(replaced, data.train) > 0.8


def test_presets_are_the_papers_settings():
    config = build(DecafConfig, Decaf.presets["LF-AmazonTitles-131K"])
    assert (config.dim, config.clusters, config.beam, config.reduction, config.fitted_bias) == (
        300, 2**15, 200, "mean", False,
    )  # fmt: skip
    first, last = config.surrogate, config.extreme
    assert (first.dropout, first.training.lr, first.training.epochs, first.training.batch_size) == (0.5, 0.01, 20, 255)
    assert (last.dropout, last.training.lr, last.training.epochs) == (0.2, pytest.approx(0.008), 10)
    assert (first.training.schedule.at, last.training.schedule.at) == ((0.5, 0.75), (0.5,))
    assert first.training.min_steps == 0
    assert build(DecafConfig, Decaf.presets["LF-AmazonTitles-1.3M"]).extreme.dropout == 0.5


def test_the_papers_settings_have_no_bias_in_module_one_and_learn(tmp_path):
    settings = {k: v for k, v in SMALL.items() if k != "dim"} | {"fitted_bias": False, "reduction": "mean", "dim": 24}
    predictor = train("decaf", separable(), **settings)
    assert len(predictor.predict(separable().test.X, 2)) == 12


@pytest.mark.parametrize("ablation", [None, "z1", "z2", "noinit", "lite"])
def test_a_dataset_without_label_text(ablation):
    data = dataclasses.replace(separable(), Z=None)
    predictor = train("decaf", data, **SMALL, **(Decaf.ablations[ablation].patch if ablation else {}))
    assert precision_at_1(predictor, data.test) > 0.9


def test_labels_without_text_points_without_words_or_labels(caplog):
    predictor = train("decaf", gappy(), **SMALL)
    assert predictor.predict(csr([[1, 0, 0.1], [0, 1, 0.1]]), 1).indices.tolist() == [[1], [2]]
    data = separable()
    blank = sp.csr_array(sp.diags_array((np.arange(12) % 3 > 0).astype(np.float32)) @ data.Z)
    with caplog.at_level("INFO"):
        predictor = train("decaf", dataclasses.replace(data, Z=blank), **SMALL)
    assert "4 of 12 labels have no text: their free vectors start at zero" in caplog.text
    assert precision_at_1(predictor, data.test) > 0.9


@pytest.mark.parametrize("ablation", [None, "hnsw", "parabel", "8k"])
def test_one_label(ablation):
    one = Split(csr([[1, 0], [0, 1]]), csr([[1], [1]]))
    data = Dataset("one", one, one, Z=csr([[1, 0]]))
    found = train("decaf", data, **SMALL, **(Decaf.ablations[ablation].patch if ablation else {})).predict(one.X, 3)
    assert found.indices.tolist() == [[0, -1, -1]] * 2


def test_a_killed_run_goes_on_to_the_same_end(tmp_path, monkeypatch):
    data = toy_dataset(labels=20, train=60, test=20)
    settings = {f"{module}.training.checkpoint_seconds": 0.0 for module in ("surrogate", "shortlister", "extreme")}
    config = build(DecafConfig, SMALL, settings)
    whole = staged(config, data, tmp_path / "whole")["extreme"]["W"]
    calls = 0
    loss = RankAll.loss

    def dies(self, batch):
        nonlocal calls
        calls += 1
        if calls == 110:
            raise KeyboardInterrupt
        return loss(self, batch)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(RankAll, "loss", dies)
        staged(config, data, tmp_path / "killed")["extreme"].read()
    np.testing.assert_array_equal(staged(config, data, tmp_path / "killed")["extreme"]["W"], whole)


def test_members_of_an_ensemble_share_module_one_only(tmp_path):
    data, method = separable(), Decaf(small())
    run = RunContext(0, "cpu", data, StageCache(tmp_path), method)
    first, second = (stages_of(method, data, run.member(number)) for number in (0, 1))
    assert [name for name in first if first[name].key == second[name].key] == ["surrogate"]


def test_the_beam_is_chosen_after_module_two(tmp_path):
    data = separable()
    narrow, wide = (staged(small(beam=beam), data, tmp_path) for beam in (1, 4))
    assert narrow["shortlister"].key == wide["shortlister"].key
    assert narrow["extreme"].key != wide["extreme"].key


def test_recall_grows_with_the_beam(tmp_path):
    data = toy_dataset(labels=40, train=120, test=5)
    recall = staged(small(), data, tmp_path)["shortlister"]["recall"]
    assert recall["x"] == [1, 2, 5, 10]
    assert recall["y"] == sorted(recall["y"])
    assert recall["y"][-1] <= 100 + 1e-6


def test_the_contract_holds(monkeypatch):
    """The runner's own questions: repeats itself, survives the disk, ignores the test set, every ablation trains..."""
    monkeypatch.setattr("xcbench.runner.resolve.build", lambda kind, *p, **o: build(kind, TINY, *p, **o))
    broken = [finding for finding in check_method("decaf") if finding.broken]
    assert not broken, broken


def test_the_predictor_is_a_cascade(tmp_path):
    data = separable()
    predictor = train("decaf", data, **SMALL)
    assert isinstance(predictor.ranker, BeamPredictor)
    predictor.save(tmp_path)
    again = CascadePredictor.load(tmp_path).predict(data.test.X, 4)
    np.testing.assert_array_equal(again.indices, predictor.predict(data.test.X, 4).indices)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("dim", 0, "dim"),
        ("cluster_factor", 0, "cluster_factor"),
        ("extreme.dropout", 1.0, "dropout is at least 0 and below 1"),
        ("extreme.training.batch_size", 0, "a batch has at least one point"),
        ("surrogate.training.schedule.kind", "step", "expects one of constant, halving, onecycle, linear"),
    ],
)
def test_settings_out_of_range_are_refused_before_anything_is_trained(key, value, words):
    with pytest.raises(InputError, match=words):
        build(DecafConfig, {key: value})


def test_vectors_that_are_not_there_are_refused_at_once(tmp_path):
    settings = {"vectors": str(tmp_path / "no.npy"), "embeddings": "pretrained"}
    with pytest.raises(InputError, match=r"no\.npy: cannot be read"):
        staged(small(**settings), separable(), tmp_path)
