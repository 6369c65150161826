"""ECLARE: its equations against plain numpy, its ablations against what they say, and toys it must learn."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit
from torch.nn.functional import binary_cross_entropy_with_logits
from xcbench.methods.eclare import label_classifiers, label_clusters, training_candidates

from tests.methods.problems import csr, gappy, separable, stages_of, train
from xcbench.data import Dataset, Split
from xcbench.labels.normalise import two_sided
from xcbench.labels.walk import random_walk_graph
from xcbench.nn import DocumentEncoder, NeighbourText, ResidualBlock, TokenEmbeddings
from xcbench.plugins.config import build, changes
from xcbench.plugins.registry import get_method
from xcbench.runner.check import check_method
from xcbench.runner.context import RunContext
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset
from xcbench.train import Candidates, Points, RankShortlist, Schedule, Training, learnable
from xcbench.train import train as train_module

SMALL = {"dim": 12} | {f"{module}.training.{key}": value for module in ("surrogate", "shortlister", "extreme")
                       for key, value in {"epochs": 2, "min_steps": 0, "batch_size": 50}.items()}  # fmt: skip
LONGER = {"dim": 32} | {f"{module}.training.min_steps": 150 for module in ("surrogate", "shortlister", "extreme")}
METHOD = get_method("eclare")


def eclare(**settings):
    return METHOD(build(METHOD.config_type, SMALL, settings))


def context(method, data, folder, seed=0):
    return RunContext(seed, "cpu", data, StageCache(folder), method)


def stages(folder, data=None, **settings):
    method, data = eclare(**settings), data or toy_dataset()
    return stages_of(method, data, context(method, data, folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One cache for all, as runs of one user would have."""
    return tmp_path_factory.mktemp("stages")


@pytest.fixture
def labels():
    """Five labels of which the last is alone: E, Z, the graph, and a way to make their classifiers."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    E, Z = TokenEmbeddings(7, 12), csr(rng.random((5, 7)))
    Y = csr([[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 1], [1, 0, 0, 1, 0]])
    G = two_sided(random_walk_graph(Y, seed=3))
    return E, Z, G, lambda **settings: label_classifiers(eclare(**settings).config, E, Z, G, 0.0)


def plain_block(r):
    return r + np.maximum(r, 0)


def test_components_start_as_text_neighbourhood_and_refinement(labels):
    E, Z, G, make = labels
    Ez = Z @ E.weight.detach().numpy()
    z1, z2, z3 = (z.detach().numpy() for z in make().eval().components(None))
    assert z1 == pytest.approx(plain_block(Ez), abs=1e-5)
    assert z2 == pytest.approx(plain_block(G.toarray() @ Ez), abs=1e-5)
    assert z3 == pytest.approx(G.toarray() @ Ez, abs=1e-5)


def test_a_label_without_neighbours_is_its_own_neighbourhood(labels):
    _, _, G, make = labels
    assert G.toarray()[4] == pytest.approx([0, 0, 0, 0, 1])
    z1, z2, _ = make().eval().components(None)
    assert z2[4].tolist() == pytest.approx(z1[4].tolist(), abs=1e-6)
    assert (G.diagonal() > 0).all()


def test_classifiers_are_mixtures_whose_weights_add_up_to_one(labels):
    classifiers = labels[3]().eval()
    z = classifiers.components(None)
    alpha = classifiers.attention.weights(*z)
    assert alpha.sum(1).tolist() == pytest.approx([1] * 5, abs=1e-6)
    w, bias = classifiers(None)
    assert w.detach().numpy() == pytest.approx(sum(alpha[:, [j]] * z[j] for j in range(3)).detach().numpy(), abs=1e-5)
    assert not bias.any()  # until `fit_bias`, which tests/train/test_tasks.py is about
    for j, strength in enumerate(classifiers.strengths(5, block=2).values()):
        assert strength[2] == pytest.approx(float(alpha[2, j] * z[j][2].detach().norm()), abs=1e-5)


def test_some_labels_get_the_classifiers_they_have_among_all(labels):
    classifiers = labels[3]().eval()
    some = np.array([1, 4])
    assert torch.allclose(classifiers(some)[0], classifiers(None)[0][some], atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, ["LTE", "GALE", "refinement"]),
        ({"classifier.hops": 2}, ["LTE", "GALE", "GALE, 2 hops", "refinement"]),
        ({"classifier.text": False}, ["GALE", "refinement"]),
        ({"classifier.refinement": False}, ["LTE", "GALE"]),
    ],
)
def test_which_components_there_are(labels, settings, names):
    classifiers = labels[3](**settings)
    assert list(classifiers.strengths(5)) == names
    assert len(classifiers.components(None)) == classifiers.attention.components == len(names)


def test_two_hops_reach_the_neighbours_of_neighbours(labels):
    E, Z, G, make = labels
    G = G.toarray()
    far = make(**{"classifier.hops": 2}).eval().components(None)[2].detach().numpy()
    assert far == pytest.approx(plain_block(G @ G @ Z.toarray() @ E.weight.detach().numpy()), abs=1e-5)


def test_gcn_is_kipf_and_welling_s_layer_and_keeps_the_text_block(labels):
    E, Z, G, make = labels
    classifiers = make(**{"classifier.layer": "gcn"}).eval()
    layer = classifiers.blocks[1]
    with torch.no_grad():
        layer.W.uniform_(-1, 1)
        layer.bias.uniform_(-1, 1)
    W, b = layer.W.detach().numpy(), layer.bias.detach().numpy()
    Ez = Z @ E.weight.detach().numpy()
    z1, z2, _ = (z.detach().numpy() for z in classifiers.components(None))
    assert z1 == pytest.approx(plain_block(Ez), abs=1e-5)
    assert z2 == pytest.approx(np.maximum(G.toarray() @ Ez @ W.T + b, 0), abs=1e-5)


def test_lightgcn_is_linear_in_both_orders(labels):
    E, Z, G, make = labels
    Ez = Z @ E.weight.detach().numpy()
    z1, z2, _ = (z.detach().numpy() for z in make(**{"classifier.layer": "lightgcn"}).eval().components(None))
    assert z1 == pytest.approx(Ez, abs=1e-5)
    assert z2 == pytest.approx(G.toarray() @ Ez, abs=1e-5)


def test_sum_adds_components_without_weights(labels):
    classifiers = labels[3](**{"classifier.mixture": "sum"}).eval()
    assert classifiers.attention is None
    total = sum(classifiers.components(None))
    assert torch.allclose(classifiers(None)[0], total)


def test_one_step_of_the_extreme_task_against_a_dense_reference(labels):
    """Without attention, which has its own reference in tests/nn; label 3 stands in nobody's shortlist."""
    E, Z, G, make = labels
    classifiers = make(**{"classifier.mixture": "sum"})
    X = csr(np.random.default_rng(1).random((3, 7)))
    Y = csr([[1, 0, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1]])
    listed = np.array([[0, 2, -1], [1, 0, 2], [4, -1, -1]], np.int32)
    learnt = {"E": E.weight, "z3": classifiers.z3.weight, "bias": classifiers.bias.weight}
    slow = {name: torch.tensor(p.detach().numpy().copy(), requires_grad=True) for name, p in learnt.items()}

    def block(r):
        return r + torch.relu(r)

    x, y, z, g = (torch.from_numpy(M.toarray()) for M in (X, Y, Z, G))
    r = z @ slow["E"]
    W = block(r) + block(g @ r) + slow["z3"]
    logits = torch.relu(block(x @ slow["E"])) @ W.T + slow["bias"]
    mask = torch.zeros(3, 5)
    for i, row in enumerate(listed):
        mask[i, row[row >= 0]] = 1
    loss = (binary_cross_entropy_with_logits(logits, y, reduction="none") * mask).sum() / mask.sum()
    loss.backward()
    task = RankShortlist(DocumentEncoder(ResidualBlock(12, 0.0), E), classifiers, "mean")
    once = Training(lr=0.01, batch_size=8, steps=1, schedule=Schedule("constant"))
    report = train_module(task, Points(X, Y, Candidates.of_labels(listed, 5)), once)
    assert report.losses[0] == pytest.approx(loss.item(), rel=1e-5)
    for name, p in learnt.items():
        start, d = slow[name].detach(), slow[name].grad
        torch.testing.assert_close(p.detach(), start - 0.01 * d / (d.abs() + 1e-8), rtol=1e-4, atol=1e-5, msg=name)
    assert torch.equal(classifiers.z3.weight[3], slow["z3"][3])


def test_refinement_may_start_at_the_text(labels):
    E, Z, _, make = labels
    z3 = make(**{"classifier.start": "text"}).z3.weight.detach().numpy()
    assert z3 == pytest.approx(Z @ E.weight.detach().numpy(), abs=1e-6)


def test_text_of_neighbours_is_the_same_for_some_labels_and_all_frozen_or_not(labels):
    E, Z, G, _ = labels
    r = Z @ E.weight.detach().numpy()
    expected = [r, G @ r, G @ (G @ r)]
    some = np.array([0, 3])
    for frozen in (True, False):
        text = NeighbourText(E, Z, G, range(3), frozen)
        for of_all, of_some, right in zip(text(None), text(some), expected, strict=True):
            assert of_all.detach().numpy() == pytest.approx(right, abs=1e-5)
            assert of_some.detach().numpy() == pytest.approx(right[some], abs=1e-5)


def test_without_fitted_bias_there_is_no_bias(labels):
    assert labels[3](**{"classifier.fitted_bias": False})(None)[1] is None


SHARED = {
    "gcn": {"graph"},
    "lightgcn": {"graph"},
    "cooc": set(),
    "pn": {"graph"},
    "ppr": {"graph", "surrogate", "shortlister"},
    "nograph": {"graph"},
    "nolte": {"graph"},
    "norefine": {"graph", "surrogate"},
    "sum": {"graph"},
    "k2": {"graph"},
    "8k": {"graph"},
    "4x": {"graph"},
    "nogame": {"graph", "surrogate", "shortlister"},
    "papergame": {"graph", "surrogate", "shortlister"},
    "plainclusters": {"graph"},
    "randomclusters": {"graph"},
}


@pytest.mark.parametrize("name", METHOD.ablations)
def test_an_ablation_computes_only_what_it_changes_anew(name, folder):
    full, ablated = stages(folder), stages(folder, **METHOD.ablations[name].patch)
    assert {stage for stage in full if full[stage].key == ablated[stage].key} == SHARED[name]


@pytest.mark.parametrize("name", METHOD.ablations)
def test_every_ablation_trains_and_predicts_otherwise_than_the_full_method(name, folder):
    data = toy_dataset()
    full, ablated = eclare(beam=8), eclare(beam=8, **METHOD.ablations[name].patch)
    scores = [m.fit(data, context(m, data, folder)).predict(data.test.X, 5).scores for m in (full, ablated)]
    assert np.isfinite(scores).all()
    assert not np.array_equal(*scores)


def test_ablations_change_what_they_say_and_nothing_else():
    changed = {name: [c.key for c in changes(METHOD.config_type, a.patch)] for name, a in METHOD.ablations.items()}
    assert changed.pop("nograph") == ["clusters_by", "expand", "game.mode", "classifier.start"]
    assert {name: keys for name, keys in changed.items() if len(keys) != 1} == {}


def test_presets_are_the_papers_settings():
    small = build(METHOD.config_type, METHOD.presets["LF-AmazonTitles-131K"])
    assert (small.dim, small.clusters, small.beam, small.reduction) == (300, 2**15, 50, "mean")
    assert small.surrogate.training.schedule.at == (0.5, 0.75)
    assert small.extreme.training.schedule.at == (0.5,)
    assert (small.surrogate.training.lr, small.extreme.training.lr) == (0.005, 0.004)
    assert {m.dropout for m in (small.surrogate, small.shortlister, small.extreme)} == {0.2}
    assert small.freeze
    assert not small.classifier.fitted_bias


def test_token_embeddings_stay_frozen_after_the_first_module(folder):
    data, found = toy_dataset(), stages(folder, freeze=True)
    E = found["surrogate"]["E"].copy()
    method = eclare(freeze=True)
    model = method.fit(data, context(method, data, folder))
    assert np.array_equal(model.first.E, E)
    assert model.second.E is model.first.E
    assert found["shortlister"]["E"] is found["extreme"]["E"] is None


def test_token_embeddings_may_go_on_learning(folder):
    data, method = toy_dataset(), eclare(freeze=False)
    found = stages(folder, data, freeze=False)
    model = method.fit(data, context(method, data, folder))
    assert not np.array_equal(model.first.E, found["surrogate"]["E"])
    assert not np.array_equal(model.second.E, model.first.E)


@pytest.mark.parametrize(("labels", "heads", "K"), [(50, 0, 16), (50, 3, 16), (50, 49, 4), (7, 7, 2), (1, 1, 1)])
def test_no_label_is_lost_where_head_labels_are_clustered_apart(labels, heads, K):
    frequency = np.where(np.arange(labels) < heads, 9, 2)
    Y = csr([[i < n for n in frequency] for i in range(9)])
    X = csr(np.random.default_rng(0).random((9, 4)))
    data = Dataset("heads", Split(X, Y), Split(X, Y), csr(np.ones((labels, 4))))
    method = eclare(**{"graph.head_threshold": 5, "clusters": K})
    clustering = label_clusters(method.config, (Y.T @ X).tocsr(), data, seed=0)
    assert sorted(clustering.indices.tolist()) == list(range(labels))
    assert clustering.sizes.min() >= 1
    assert not set(clustering.cluster_of[:heads]) & set(clustering.cluster_of[heads:])


def candidates(found, data, method):
    """The shortlists of the first points, label by label."""
    points = learnable(data.train)
    E = found["shortlister"]["E"]
    E = TokenEmbeddings.of(found["surrogate"]["E"] if E is None else E)
    G = method.config.graph.normalise(found["shortlister"]["graph"])
    listed = training_candidates(method.config, E, points, found["shortlister"].read(), G)
    return Points(points.X, points.Y, listed).cut(np.arange(20)).shortlists, listed, G


def test_padding_never_becomes_a_negative(folder):
    # The official code counts the padding of short rows as the smallest label of the batch, with target 0.
    data, method = toy_dataset(), eclare(beam=3)
    found = stages(folder, data, beam=3)
    listed, groups, _ = candidates(found, data, method)
    assert (groups.groups[:20] == -1).any(), "no row is short: the test would show nothing"
    members = [set(row) for row in np.split(groups.members.indices, groups.members.indptr[1:-1])]
    for i in range(20):
        own = listed.entries.indices[listed.entries.indptr[i] : listed.entries.indptr[i + 1]]
        wanted = set().union(*(members[g] for g in groups.groups[i] if g >= 0))
        assert sorted(listed.labels[own]) == sorted(wanted)
    truth = data.train.Y[:20].toarray()
    rows = np.repeat(np.arange(20), np.diff(listed.entries.indptr))
    assert np.array_equal(truth[rows, listed.labels[listed.entries.indices]], listed.entries.data)


def test_candidates_grow_along_the_graph(folder):
    data = toy_dataset()
    found = stages(folder, data)
    _, plain, _ = candidates(found, data, eclare(expand=False))
    _, grown, G = candidates(found, data, eclare())
    before, after = (np.split(c.members.indices, c.members.indptr[1:-1]) for c in (plain, grown))
    for members, more in zip(before, after, strict=True):
        assert set(more) == set(G[members].indices) >= set(members)


def test_pagerank_negatives_surround_the_true_labels(folder):
    data = toy_dataset()
    found = stages(folder, data)
    listed, _, _ = candidates(found, data, eclare(negatives="pagerank", shortlist_length=8))
    assert (listed.entries.data.reshape(-1) > 0).sum() == data.train.Y[:20].nnz
    assert np.diff(listed.entries.indptr).max() <= 8


def test_learns_a_toy_by_heart_and_says_what_it_measured(tmp_path):
    data = toy_dataset(train=50, labels=20)
    undisturbed = {f"{module}.dropout": 0.0 for module in ("surrogate", "shortlister", "extreme")}
    method = METHOD(build(METHOD.config_type, LONGER, undisturbed))
    run = context(method, data, tmp_path)
    found = method.fit(data, run).predict(data.train.X, 3)
    Y = data.train.Y.toarray()
    assert Y[np.arange(50), found.indices[:, 0]].mean() > 0.95
    reported = run.journal.reported
    assert 0 <= reported["LMI"] <= 100
    curve = reported["component_weight"]
    assert set(curve["y"]) == {"LTE", "GALE", "refinement"}
    assert all(len(line) == len(curve["x"]) for line in curve["y"].values())


@pytest.mark.parametrize("data", [gappy(), dataclasses.replace(separable(), Z=None)], ids=["gaps", "no text"])
def test_learns_although_text_or_points_are_missing(data):
    found = train("eclare", data, **LONGER).predict(data.train.X[2:], 1)
    assert data.train.Y.toarray()[2:][np.arange(len(found)), found.indices[:, 0]].mean() > 0.9


def test_one_label():
    data = Dataset("one", *[Split(csr([[1, 0], [0, 1]]), csr([[1], [1]]))] * 2, Z=csr([[1, 1]]))
    assert train("eclare", data, **SMALL).predict(data.test.X, 2).indices.tolist() == [[0, -1]] * 2


def test_the_same_seed_gives_the_same_model_and_another_seed_another(tmp_path):
    data, method = toy_dataset(), eclare()
    scores = [
        method.fit(data, context(method, data, tmp_path / str(i), seed)).predict(data.test.X, 5).scores
        for i, seed in enumerate((0, 0, 1))
    ]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_a_killed_run_ends_like_an_unbroken_one(tmp_path, monkeypatch):
    data = toy_dataset()
    settings = {f"{module}.training.checkpoint_seconds": 0 for module in ("surrogate", "shortlister", "extreme")}
    method = eclare(**settings)
    whole = method.fit(data, context(method, data, tmp_path / "whole")).predict(data.test.X, 5)
    prepare, steps = Points.prepare, 0

    def killed(self, *arguments, **options):
        nonlocal steps
        steps += 1
        if steps in (5, 14, 23):
            raise KeyboardInterrupt
        return prepare(self, *arguments, **options)

    monkeypatch.setattr(Points, "prepare", killed)
    kills = 0
    while kills < 4:
        try:
            found = method.fit(data, context(method, data, tmp_path / "killed")).predict(data.test.X, 5)
            break
        except KeyboardInterrupt:
            kills += 1
    assert kills == 3
    assert np.array_equal(found.scores, whole.scores)


def test_save_and_load_change_nothing(tmp_path, folder):
    data, method = toy_dataset(), eclare()
    model = method.fit(data, context(method, data, folder))
    model.save(tmp_path)
    found = METHOD.predictor_type.load(tmp_path).predict(data.test.X, 5)
    assert np.array_equal(found.scores, model.predict(data.test.X, 5).scores)


def test_members_of_an_ensemble_share_graph_and_surrogate_only(folder):
    data, method = toy_dataset(), eclare()
    run = context(method, data, folder)
    first, second = (stages_of(method, data, run.member(number)) for number in (0, 1))
    assert [name for name in first if first[name].key == second[name].key] == ["graph", "surrogate"]


@pytest.mark.parametrize("mode", ["code", "paper", "off"])
def test_prediction_is_the_dense_formula(mode, folder):
    """With a beam over all clusters GAME can be written down in a line a level."""
    data, method = toy_dataset(), eclare(beam=1000, expand=False, **{"game.mode": mode})
    run = context(method, data, folder)
    model, found = method.fit(data, run), stages_of(method, data, run)
    predictor = model.ranker
    p = expit(model.first(data.test.X) @ predictor.shortlister.H.T + predictor.shortlister.bias)
    r = expit(model.second(data.test.X) @ found["extreme"]["W"].T + found["extreme"]["bias"])
    G, G_M = predictor.game.graph.toarray(), predictor.shortlister.game.graph.toarray()
    M, t = predictor.shortlister.clustering.cluster_of, method.config.game.power
    if mode == "code":
        s = (p / 2 + p @ G_M / 2)[:, M] * r
        s = _only_best(s, predictor.game.beam)
        s = (s**t / 2 + _only_best(s**t @ G, predictor.game.beam) / 2) ** (1 / t)
    elif mode == "paper":
        s = (p @ G_M.T)[:, M] * (r**t @ G.T) ** (1 / t)
    else:
        s = p[:, M] * r
    found = model.predict(data.test.X, 10)
    assert found.scores == pytest.approx(-np.sort(-s, axis=1)[:, :10], abs=1e-5)


def _only_best(s, k):
    return np.where(s >= -np.sort(-s, axis=1)[:, [min(k, s.shape[1]) - 1]], s, 0)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("dim", 0, "dim"), ("cluster_factor", 0, "cluster_factor"), ("classifier.hops", 0, "hops"), ("beam", 0, "beam")],
)
def test_settings_out_of_range_are_refused(key, value, words):
    with pytest.raises(Exception, match=words):
        eclare(**{key: value})


def test_the_graph_of_labels_is_sparse(folder):
    counts = stages(folder)["graph"]["graph"]
    assert isinstance(counts, sp.csr_array)
    assert np.diff(counts.indptr).max() <= 11


def test_the_contract_holds(monkeypatch):
    monkeypatch.setattr("xcbench.runner.resolve.build", lambda kind, *p, **o: build(kind, SMALL, *p, **o))
    broken = [finding for finding in check_method("eclare") if finding.broken]
    assert not broken, broken
