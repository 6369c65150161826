"""AttentionXML: attention against a slow reference, candidates and scores by hand, and what it learns."""

import dataclasses

import numpy as np
import pytest
import torch
from xcbench.methods.baselines.attentionxml import AttentionNetwork, likeliest, padded_candidates

from tests.methods.problems import csr, train
from xcbench.data import Dataset, Split, TextColumn
from xcbench.errors import InputError
from xcbench.kernels.csr import SparseRows
from xcbench.nn import TokenEmbeddings
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.check import check_method
from xcbench.runner.toy import toy_dataset
from xcbench.train import Candidates, Points

SIZES = {"hidden": 3, "inner": 4, "word_dropout": 0.0, "dropout": 0.0}
SMALL = {"word_dim": 16, "hidden": 16, "inner": 16, "word_dropout": 0.0, "dropout": 0.0, "cluster_labels": 5}
LONG = {
    f"{level}.{key}": value
    for level in ("clusters", "labels")
    for key, value in {"epochs": 0, "min_steps": 400, "batch_size": 64, "lr": 0.01}.items()
}
SHORT = {
    f"{level}.{key}": value
    for level in ("clusters", "labels")
    for key, value in {"epochs": 0, "min_steps": 5, "batch_size": 32}.items()
}


def network(labels=6, vocabulary=9):
    torch.manual_seed(0)
    return AttentionNetwork(TokenEmbeddings(vocabulary, 5), labels, SIZES).eval()


def titles_of(words, vocabulary=9):
    """Titles as words in their order."""
    lengths = [len(title) for title in words]
    indices = np.array([word for title in words for word in title], np.int32)
    return SparseRows(np.cumsum([0, *lengths]), indices, np.ones(len(indices), np.float32), vocabulary)


def slow_logit(net, words, q):
    """One title, one label, word by word."""
    with torch.no_grad():
        vectors = net.E.weight[words][None]
        H = net.lstm(vectors)[0][0]
        weights = torch.softmax(H @ q, 0)
        v = sum(weight * h for weight, h in zip(weights, H, strict=True))
        return net.f2(torch.relu(net.f1(v))).item()


def test_scores_are_those_of_a_slow_reference():
    net = network()
    words = [[3, 1, 4], [1, 5], [2, 6, 5, 3, 5], [8]]
    with torch.no_grad():
        H, is_word = net.read(titles_of(words))
        found = net.scores(H, is_word, net.q(None)).numpy()
    expected = [[slow_logit(net, title, q) for q in net.q.weight] for title in words]
    assert found == pytest.approx(np.array(expected), abs=1e-5)


def test_own_labels_of_each_point_get_the_same_scores():
    net = network()
    words = [[3, 1, 4], [1, 5]]
    own = torch.tensor([[4, 0, 2], [1, 1, 5]])
    with torch.no_grad():
        H, is_word = net.read(titles_of(words))
        everything = net.scores(H, is_word, net.q(None))
        found = net.scores(H, is_word, net.q.weight[own])
    assert found.numpy() == pytest.approx(everything.gather(1, own).numpy(), abs=1e-6)


def test_what_a_title_gets_depends_neither_on_longer_ones_nor_on_having_words():
    net = network()
    with torch.no_grad():
        alone = net.scores(*net.read(titles_of([[3, 1]])), net.q(None))
        among = net.scores(*net.read(titles_of([[], [3, 1], [2, 6, 5, 3, 5, 7]])), net.q(None))
    assert among[1].numpy() == pytest.approx(alone[0].numpy(), abs=1e-6)
    assert torch.isfinite(among).all()


def test_the_loss_is_over_each_point_s_candidates():
    net = network()
    words = titles_of([[3, 1, 4], [1, 5]])
    X = csr(np.zeros((2, 9)))
    X.indices = words.indices
    X.indptr = words.indptr
    X.data = words.data
    Y = csr([[1, 0, 0, 0, 0, 0], [0, 0, 0, np.nan, 0, 1]])
    listed = np.array([[2, 4], [3, -1]], np.int32)
    batch = Points(X, Y, Candidates.of_labels(listed, 6, with_positives=True)).cut(np.arange(2))
    with torch.no_grad():
        logits = net.scores(*net.read(words), net.q(None)).numpy()
    # Point 0 has candidates 0, 2 and 4, and label 0; point 1 has label 5, and its pair with label 3 is ignored.
    expected = sum(np.logaddexp(0, z) for z in (-logits[0, 0], logits[0, 2], logits[0, 4], -logits[1, 5]))
    assert net.loss(batch).item() == pytest.approx(expected / 2, rel=1e-5)

    everything = Points(X, Y).cut(np.arange(2))
    sign = np.array([[-1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 1, -1]])
    losses = np.where(sign == 0, 0, np.logaddexp(0, sign * logits))
    assert net.loss(everything).item() == pytest.approx(losses.sum() / 2, rel=1e-5)


def test_candidates_are_padded():
    places, targets = padded_candidates(SparseRows.of(csr([[1, 0.5, 0], [0, 0, 2], [0, 0, 0]])))
    assert places.tolist() == [[0, 1], [2, -1], [-1, -1]]
    assert targets.tolist() == [[1, 0.5], [2, 0], [0, 0]]


def test_labels_score_the_product_of_their_cluster_s_probability_and_their_own():
    data = toy_dataset()
    model = train("attentionxml", data, **SMALL, **SHORT, beam=4)
    titles = list(data.test.titles)
    rows = model.encoder.sequences(titles, 32)
    K = len(model.clusters["q.weight"])
    P = likeliest(model.first, rows, K).to_csr(K).toarray()
    with torch.no_grad():
        words = SparseRows.of(rows)
        Q = torch.sigmoid(model.second.scores(*model.second.read(words), model.second.q(None))).numpy()
    in_beam = np.sort(P, axis=1)[:, [-4]] <= P
    expected = np.where(in_beam, P, 0)[:, model.cluster_of] * Q
    found = model.predict_titles(titles, 20)
    assert (found.indices >= 0).all()
    assert found.scores == pytest.approx(-np.sort(-expected, axis=1)[:, :20], rel=1e-4)
    assert found.scores == pytest.approx(np.take_along_axis(expected, found.indices, axis=1), rel=1e-4)


def separable_titles(labels=12, points_each=6):
    """Every label has a word that its titles have and no others do, beside one word that all have."""
    own = np.arange(labels * points_each) % labels
    titles = [f"common topic{label}" for label in own]
    Y = np.eye(labels, dtype=np.float32)[own]
    X = csr(np.hstack([Y, np.ones((len(own), 1), np.float32)]))
    names = TextColumn.of([f"topic{label}" for label in range(labels)])
    every = Split(X, csr(Y), TextColumn.of(titles))
    some = Split(X[:labels], csr(Y[:labels]), TextColumn.of(titles[:labels]))
    return Dataset("separable", every, some, label_titles=names)


def test_learns_a_separable_problem_perfectly():
    data = separable_titles()
    found = train("attentionxml", data, **SMALL, **LONG).predict_titles(list(data.test.titles), 3)
    assert found.indices[:, 0].tolist() == list(range(12))


def test_the_order_of_words_counts():
    """'a b' is label 0 and 'b a' is label 1: no bag of words can tell them apart."""
    titles = ["alpha beta", "beta alpha"] * 20
    Y = csr(np.eye(2)[np.arange(40) % 2])
    split = Split(csr(np.ones((40, 2))), Y, TextColumn.of(titles))
    data = Dataset("order", split, split)
    settings = SMALL | LONG | {"cluster_labels": 1, "labels.min_steps": 10, "clusters.min_steps": 200}
    found = train("attentionxml", data, **settings).predict_titles(titles[:2], 1)
    assert found.indices[:, 0].tolist() == [0, 1]


def test_survives_labels_without_points_and_titles_without_words():
    data = separable_titles()
    Y = data.train.Y.toarray()
    Y[Y[:, 0] > 0] = 0  # label 0 loses its points, which lose their label
    titles = ["", *list(data.train.titles)[1:]]
    kept = dataclasses.replace(data.train, Y=csr(Y), titles=TextColumn.of(titles))
    model = train("attentionxml", dataclasses.replace(data, train=kept), **SMALL, **LONG)
    found = model.predict_titles([*list(data.test.titles)[1:], "", "unknown"], 3)
    assert found.indices[:11, 0].tolist() == list(range(1, 12))
    assert model.predict_titles([], 3).indices.shape == (0, 3)


def test_one_label():
    titles = TextColumn.of(["one", "two", "three"])
    split = Split(csr(np.eye(3)), csr(np.ones((3, 1))), titles)
    found = train("attentionxml", Dataset("one", split, split), **SMALL, **SHORT).predict_titles(list(titles), 2)
    assert found.indices.tolist() == [[0, -1]] * 3


@pytest.mark.slow
def test_keeps_the_contract():
    assert {f.question: f.problem for f in check_method("attentionxml") if f.broken} == {}


def test_the_same_seed_gives_the_same_model_also_when_saved(tmp_path):
    data = toy_dataset()
    titles = list(data.test.titles)
    first = train("attentionxml", data, **SMALL, **SHORT)
    again = train("attentionxml", data, **SMALL, **SHORT)
    other = train("attentionxml", data, seed=1, **SMALL, **SHORT)
    expected = first.predict_titles(titles, 5)
    assert np.array_equal(again.predict_titles(titles, 5).scores, expected.scores)
    assert not np.array_equal(other.predict_titles(titles, 5).scores, expected.scores)
    first.save(tmp_path)
    assert np.array_equal(type(first).load(tmp_path).predict_titles(titles, 5).scores, expected.scores)


def test_rows_of_words_without_order_are_refused():
    model = train("attentionxml", separable_titles(), **SMALL, **SHORT)
    with pytest.raises(InputError, match="in their order"):
        model.predict(separable_titles().test.X, 1)


@pytest.mark.parametrize(("key", "value"), [("hidden", 0), ("length", 0), ("beam", 0), ("dropout", 1)])
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("attentionxml").config_type, {key: value})
