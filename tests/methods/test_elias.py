"""ELIAS: its loss against a dense slow reference, its stages, data of every awkward kind, and one-vs-all beside it."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from xcbench.methods import elias
from xcbench.methods.elias import Elias, EliasConfig, EliasTask, IndexConfig

from tests.methods.problems import csr, gappy, separable, stages_of, train
from tests.stand_in_device import StandInDevice, on_cpu, train_on_stand_in
from xcbench.data import Dataset, Split
from xcbench.errors import InputError
from xcbench.nn import FreeLabels
from xcbench.plugins.config import build
from xcbench.runner.check import check_method
from xcbench.runner.context import RunContext
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset
from xcbench.shortlist.packing import unpack
from xcbench.train import FREE_COPIES, Group, GroupedTraining, Keeping, Points, Work, estimate_memory
from xcbench.train import train as train_module
from xcbench.train.encoders import EncoderConfig
from xcbench.train.encoders.bag import Bag
from xcbench.train.learned_index import LearnedIndex

STAGES = ("warm_up", "fixed", "learnt")
SMALL = {"encoder.dim": 24, "encoder.start": "random", "index.clusters": 4} | {
    f"{name}.{key}": value for name in STAGES for key, value in (("batch_size", 32), ("epochs", 1), ("min_steps", 100))
}
SMALL |= {f"{name}.groups.{group}.lr": 0.02 for name in STAGES for group in ("encoder", "clusters", "labels")}
TINY = SMALL | {f"{name}.min_steps": 40 for name in STAGES}
OVA = {"encoder.dim": 24, "encoder.start": "random", "training.batch_size": 32, "training.epochs": 1} | {
    "training.min_steps": 200,
    "training.groups.encoder.lr": 0.02,
    "training.groups.labels.lr": 0.02,
}


def precision_at_1(predictor, split):
    best = predictor.predict(split.X, 1).indices[:, 0]
    return np.mean([split.Y[[i], [label]].item() > 0 for i, label in enumerate(best)])


def task_of(data, beta=5.0, beam=2, length=6, weight=0.3):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    L = data.label_count
    edges = (rng.random((4, L)) < 0.5).astype(np.float32)
    edges[0] = 1
    encoder = Bag(EncoderConfig(dim=8, dropout=0.0, start="random"), data.train).start(0)
    index = LearnedIndex(sp.csr_array(edges), 8, 3.0, beta, beam, length)
    return EliasTask(encoder, index, FreeLabels(L, 8), weight)


def test_a_wide_row_of_edges_is_no_long_vector():
    """A step's memory follows from the vectors: one cluster leads to all 50 labels here, and vectors have 8 numbers."""
    data = toy_dataset()
    points = Points(data.train.X, data.train.Y)
    expected = estimate_memory(task_of(data), points, 16)["a step"]
    assert expected == 4 * FREE_COPIES * 8 * (data.label_count + 16)


def dense_loss(task, batch, Y):
    """The paper's equations over explicit loops, in float64."""
    x = task.encoder(batch.X).double()
    paths = task.index(task.encoder(batch.X), batch.targets)
    W, b = task.labels()
    s = x @ W.double().T + b.double()
    n = len(batch.rows)
    classification = 0.0
    shortlist = 0.0
    for i in range(n):
        here = slice(paths.pairs.indptr[i], paths.pairs.indptr[i + 1])
        labels = paths.pairs.indices[here]
        labels = labels if paths.labels is None else paths.labels[labels]
        y = paths.scores[here].double()
        p = y * torch.sigmoid(s[i, torch.from_numpy(labels.astype(np.int64))])
        t = torch.from_numpy(Y[i, labels]).double()
        classification = classification - (t * p.log() + (1 - t) * (1 - p).log()).sum()
        if t.sum() > 0:
            shortlist = shortlist - y[t > 0].log().mean()
    return classification / (n * task.index.length) + task.weight * shortlist / n


def test_the_loss_and_its_gradients_equal_the_equations():
    data = toy_dataset(labels=20, train=30, test=2)
    task = task_of(data)
    points = Points(data.train.X, data.train.Y)
    batch = points.cut(np.arange(30))
    loss = task.loss(batch)
    expected = dense_loss(task, batch, data.train.Y.toarray())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    parameters = [p for name, p in task.named_parameters() if name != "encoder.E.weight"]
    ours = [grad.to_dense() for grad in torch.autograd.grad(loss, parameters)]
    theirs = torch.autograd.grad(expected, parameters)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-3, atol=1e-6)


def test_one_label_per_cluster_and_a_full_beam_is_one_vs_all_times_the_cluster():
    data = separable()
    L = data.label_count
    patch = SMALL | {"index.clusters": L, "index.beam": L, "learn_index": False, "recluster": False}
    predictor = train("elias", data, **patch)
    ranker = predictor.ranker
    x = predictor.first(data.test.X)
    z = np.exp(x @ ranker.shortlister.H.T + ranker.shortlister.bias)
    cluster = np.minimum(1, 10 * z / z.sum(1, keepdims=True))
    of_label = np.empty(L, np.int64)
    of_label[ranker.shortlister.edges.indices] = np.arange(L)
    scores = cluster[:, of_label] / (1 + np.exp(-(x @ ranker.W.T + ranker.bias)))
    found = predictor.predict(data.test.X, L)
    np.testing.assert_allclose(np.take_along_axis(scores, found.indices, 1), found.scores, rtol=1e-4, atol=1e-7)
    assert precision_at_1(predictor, data.test) == 1.0


@pytest.mark.parametrize("patch", [{}, {"exploration": "sampled"}, {"learn_index": False}])
def test_it_learns_with_and_without_label_text(patch):
    data = dataclasses.replace(separable(), Z=None)
    assert precision_at_1(train("elias", data, **SMALL, **patch), data.test) == 1.0


def test_labels_and_points_without_anything_do_no_harm():
    found = train("elias", gappy(), **SMALL).predict(csr([[1, 0, 0.1], [0, 1, 0.1]]), 1)
    assert found.indices.tolist() == [[1], [2]]
    one = Split(csr([[1, 0], [0, 1]]), csr([[1], [1]]))
    assert train("elias", Dataset("one", one, one), **TINY).predict(one.X, 2).indices.tolist() == [[0, -1]] * 2


def test_every_label_can_be_reached_in_stage_2_and_edges_are_counted(tmp_path):
    data = toy_dataset(labels=40, train=120, test=5)
    method = Elias(build(EliasConfig, TINY, {"index.kappa": 4, "index.beam": 1}))
    run = RunContext(0, "cpu", data, StageCache(tmp_path), method)
    stages = stages_of(method, data, run)
    edges = stages["adjacency"]["edges"]
    unreachable = stages["adjacency"]["unreachable"]
    assert edges.shape == (4, 40)
    assert unreachable >= 40 - 4 * 4  # four clusters lead to four labels each
    assert edges.nnz <= 4 * 4 + unreachable
    assert set(edges.indices.tolist()) == set(range(40))
    index = unpack(stages["stage2"]["index"])
    np.testing.assert_array_equal(index.edges.indices, edges.indices)
    assert ((index.edges.data > 0) & (index.edges.data <= 1)).all()


def test_labels_are_added_to_their_best_cluster_or_to_that_of_stage_1():
    edges = sp.csr_array(np.array([[1, 0, 0, 0], [0, 1, 0, 0]], np.float32))
    best = sp.csr_array(np.array([[0, 3], [0, 0]], np.float32))
    cluster_of = np.array([0, 1, 0, 0], np.int32)
    added = elias._with_labels(edges, np.array([2, 3]), best, cluster_of).toarray()
    assert (added > 0).tolist() == [[True, False, False, True], [False, True, True, False]]


def test_sizes_follow_the_number_of_labels():
    c = IndexConfig()
    sizes = [(c.cluster_count(L), c.explored(L), c.listed(L), c.edges_per_cluster(L)) for L in (1, 50, 4390, 131073)]
    assert sizes == [(1, 1, 1, 1), (1, 1, 50, 50), (64, 20, 1097, 686), (2048, 20, 2000, 641)]
    assert c.edge_scale(6400) == 100.0


def test_ablations_share_what_they_do_not_change(tmp_path):
    data = separable()

    def keys(**patch):
        method = Elias(build(EliasConfig, SMALL, patch))
        stages = stages_of(method, data, RunContext(0, "cpu", data, StageCache(tmp_path), method))
        return {name: one.key for name, one in stages.items()}

    first = keys()
    assert keys(learn_index=False) == first
    second = keys(learnt_weight=0.1)
    assert [name for name in first if first[name] != second[name]] == ["stage2"]
    third = keys(**{"index.kappa": 3})
    assert [name for name in first if first[name] != third[name]] == ["adjacency", "stage2"]


def test_a_device_trains_like_the_cpu(monkeypatch):
    train_on_stand_in(monkeypatch)
    data = toy_dataset(labels=20, train=40, test=5)
    points = Points(data.train.X, data.train.Y)
    groups = {"all": Group("*", weight_decay=0.1), "labels": Group("labels.*", weight_decay=0.1, accumulate=2)}
    settings = GroupedTraining(lr=0.01, epochs=3, batch_size=16, groups=groups, keep=Keeping(average_from=0.5))
    task = task_of(data)
    train_module(task, points, settings, Work(0, "cpu", log=lambda line: None))
    there = task_of(data)
    with StandInDevice():
        train_module(there, points, settings, Work(0, "standin", log=lambda line: None))
    for (name, one), other in zip(task.named_parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(on_cpu(other), on_cpu(one), rtol=1e-3, atol=1e-4, msg=name)


def test_one_vs_all_learns():
    assert precision_at_1(train("ova", separable(), **OVA), separable().test) == 1.0
    found = train("ova", gappy(), **OVA).predict(csr([[1, 0, 0.1], [0, 1, 0.1]]), 5)
    assert found.indices[:, 0].tolist() == [1, 2]
    assert ((found.scores[:, :3] > 0) & (found.scores[:, :3] < 1)).all()
    assert (found.indices[:, 3:] == -1).all()


@pytest.mark.parametrize(("name", "patch"), [("elias", TINY), ("ova", OVA)])
def test_the_contract_holds(monkeypatch, name, patch):
    monkeypatch.setattr("xcbench.runner.resolve.build", lambda kind, *p, **o: build(kind, patch, *p, **o))
    broken = [finding for finding in check_method(name) if finding.broken]
    assert not broken, broken


@pytest.mark.parametrize(
    ("key", "value"),
    [("index.beam", 0), ("index.alpha", 0), ("encoder.dropout", 1.0), ("learnt_weight", -1)],
)
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key.rpartition(".")[2]):
        build(EliasConfig, {key: value})
