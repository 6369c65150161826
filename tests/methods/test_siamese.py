"""The siamese encoder: its loss against brute force, and what it finds by text alone."""

import dataclasses

import numpy as np
import pytest
import torch
from xcbench.methods.baselines.siamese import Towers

from tests.methods.problems import csr, separable, train
from xcbench.errors import InputError
from xcbench.kernels.csr import SparseRows
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.train import Candidates, Points


def test_the_loss_sets_a_point_s_labels_against_all_labels_of_the_batch():
    torch.manual_seed(0)
    Z, tau = csr([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1]]), 0.5
    X, Y = csr([[1, 0, 0.2], [0, 1, 0], [0, 0, 1]]), csr([[1, 0, 0, 1, 0], [0, 0.5, 0, 0, 0], [0, 0, 0, 0, 0]])
    hard = np.array([[0], [2], [-1]], np.int32)
    towers = Towers(Z, 4, tau)
    batch = Points(X, Y, Candidates.of_labels(hard, 5, with_positives=True)).cut(np.arange(3))
    assert batch.shortlists.labels.tolist() == [0, 1, 2, 3]  # nobody asked for label 4
    with torch.no_grad():
        S = (towers(SparseRows.of(X)) @ towers(SparseRows.of(Z)).T / tau)[:, :4]
        logp = torch.log_softmax(S, 1).numpy()
    expected = -(0.5 * logp[0, 0] + 0.5 * logp[0, 3] + logp[1, 1]) / 3
    assert towers.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_scores_are_what_the_loss_ranks_by():
    data = separable()
    model = train("siamese", data)
    unit = (data.test.X @ model.E) / np.linalg.norm(data.test.X @ model.E, axis=1, keepdims=True)
    expected = np.exp((unit @ model.labels.T - 1) / model.tau)
    found = model.predict(data.test.X, 12)
    assert found.scores == pytest.approx(np.take_along_axis(expected, found.indices, axis=1), rel=1e-4)


def test_finds_a_label_without_points_by_its_text():
    data = separable()
    kept = np.flatnonzero(data.train.Y.toarray().argmax(axis=1) != 3)
    seen = dataclasses.replace(data.train, X=data.train.X[kept], Y=data.train.Y[kept])
    found = train("siamese", dataclasses.replace(data, train=seen)).predict(data.test.X[3:4], 1)
    assert found.indices.tolist() == [[3]]


def test_label_text_must_be_there():
    method = get_method("siamese")
    with pytest.raises(InputError, match="'siamese' needs label text"):
        method(build(method.config_type)).check_data(dataclasses.replace(separable(), Z=None))


@pytest.mark.parametrize(("key", "value"), [("dim", 0), ("rounds", 0), ("tau", 0), ("hard", -1)])
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("siamese").config_type, {key: value})
