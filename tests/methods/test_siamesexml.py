"""SiameseXML: its classifiers start at the titles, its loss and its scores against brute force."""

import dataclasses

import numpy as np
import pytest
import torch
from xcbench.methods.baselines.siamesexml import Classifiers, unit_embeddings

from tests.methods.problems import csr, separable, train
from xcbench.errors import InputError
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.toy import toy_dataset
from xcbench.train import Candidates, Points

QUICK = {"dim": 16, "epochs": 2, "extreme_epochs": 3, "batch_size": 32}


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_classifiers_start_at_the_titles():
    model = train("siamesexml", separable(), **QUICK | {"extreme_epochs": 0})
    w, titles = np.split(model.labels, 2, axis=1)
    beta = get_method("siamesexml").config_type().beta
    assert w / beta == pytest.approx(titles / (1 - beta), abs=1e-6)
    assert pytest.approx(np.eye(16)) == model.R


def test_the_loss_is_that_of_unit_vectors_on_the_shortlists():
    random = np.random.default_rng(0)
    titles = unit(random.normal(size=(5, 4))).astype(np.float32)
    x = unit(random.normal(size=(2, 4))).astype(np.float32)
    module = Classifiers(torch.from_numpy(titles), tau=0.5, dropout=0.0)
    eta = random.normal(size=(5, 4)).astype(np.float32)
    with torch.no_grad():
        module.eta.weight.copy_(torch.from_numpy(eta))
    Y = csr([[1, 0, 0, 1, 0], [0, 1, 0, 0, 0]])
    listed = np.array([[2], [0]], np.int32)
    batch = Points(x, Y, Candidates.of_labels(listed, 5, with_positives=True)).cut(np.arange(2))

    w = unit(titles + eta)[:4]  # nobody asked for label 4
    x_hat = unit(x + np.maximum(x, 0))
    logp = torch.log_softmax(torch.from_numpy(x_hat @ w.T / 0.5), 1).numpy()
    expected = -(0.5 * logp[0, 0] + 0.5 * logp[0, 3] + logp[1, 1]) / 2
    assert module.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_only_listed_labels_learn():
    titles = torch.eye(4)
    module = Classifiers(titles, tau=0.5, dropout=0.0)
    points = Points(
        titles[:2].numpy(),
        csr([[1, 0, 0, 0], [1, 0, 0, 0]]),
        Candidates.of_labels(np.array([[1], [1]], np.int32), 4, True),
    )
    module.loss(points.cut(np.arange(2))).backward()
    moved = module.eta.weight.grad.to_dense().abs().sum(1) > 0
    assert moved.tolist() == [True, True, False, False]


def test_scores_blend_classifiers_and_titles():
    data = toy_dataset()
    model = train("siamesexml", data, **QUICK, beta=0.3)
    x = unit_embeddings(data.test.X, model.E)
    x_hat = unit(x + np.maximum(x @ model.R.T + model.b, 0))
    w, titles = np.split(model.labels, 2, axis=1)
    assert np.linalg.norm(w, axis=1) == pytest.approx(np.full(50, 0.3), rel=1e-4)
    expected = np.exp((x_hat @ w.T + x @ titles.T - 1) / model.tau)
    found = model.predict(data.test.X, 50)
    assert found.scores == pytest.approx(np.take_along_axis(expected, found.indices, axis=1), rel=1e-3)
    assert found.scores.max() <= 1 + 1e-4


def test_classifiers_learn_what_titles_do_not_say():
    """The titles of two labels are each other's: the encoder is misled, a classifier per label is not."""
    data = separable()
    swapped = data.Z[[1, 0, *range(2, 12)]]
    apart = dataclasses.replace(data, Z=swapped)
    found = train("siamesexml", apart, extreme_epochs=60, extreme_lr=0.01, beta=1.0, hard=0, lr=1e-6)
    assert found.predict(data.test.X, 1).indices[:, 0].tolist() == list(range(12))
    misled = train("siamesexml", apart, extreme_epochs=0, hard=0, lr=1e-6)
    assert misled.predict(data.test.X, 1).indices[:2, 0].tolist() == [1, 0]


def test_label_text_must_be_there():
    method = get_method("siamesexml")
    with pytest.raises(InputError, match="'siamesexml' needs label text"):
        method(build(method.config_type)).check_data(dataclasses.replace(separable(), Z=None))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dim", 0),
        ("rounds", 0),
        ("tau", 0),
        ("hard", -1),
        ("shortlist", 0),
        ("beta", 1.5),
        ("dropout", 1),
        ("extreme_lr", 0),
    ],
)
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("siamesexml").config_type, {key: value})
