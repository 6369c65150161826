"""GLaS: its target Gram matrix by hand, its regulariser and that one's gradient on a dense copy, its scores."""

import numpy as np
import pytest
import torch
from xcbench.methods.baselines.glas import BagClassifier, GlasConfig, gram_loss, target_gram

from tests.methods.problems import csr, train
from xcbench.errors import InputError
from xcbench.kernels.csr import SparseRows
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.toy import toy_dataset
from xcbench.train import Candidates, Points


def test_targets_are_the_mean_of_both_conditionals():
    Y = csr([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]])
    S = target_gram(Y).toarray()
    # P(1 | 0) = 2/4 and P(0 | 1) = 1; P(2 | 0) = 1/4 and P(0 | 2) = 1; P(2 | 1) = 1/2 and P(1 | 2) = 1.
    assert S[0].tolist() == [1, 0.75, 0.625, 0]
    assert S[1, 2] == 0.75
    assert (S == S.T).all()
    assert S[3].tolist() == [0, 0, 0, 0]  # a label without points has nothing to say


def test_soft_targets_of_less_than_a_half_do_not_count():
    assert target_gram(csr([[1, 0.4], [1, 0.6]])).toarray().tolist() == [[1, 0.75], [0.75, 1]]


def test_the_regulariser_and_its_gradient_are_those_of_a_dense_copy():
    S = target_gram(toy_dataset().train.Y)
    torch.manual_seed(0)
    V = torch.randn(50, 6, requires_grad=True)
    loss = gram_loss(V, SparseRows.of(S))
    loss.backward()
    copy = V.detach().double().requires_grad_()
    dense = (copy @ copy.T - torch.from_numpy(S.toarray()).double()).square().mean()
    dense.backward()
    assert loss.item() == pytest.approx(dense.item(), rel=1e-5)
    assert V.grad.numpy() == pytest.approx(copy.grad.numpy(), rel=1e-3, abs=1e-6)


def test_a_step_regularises_the_labels_of_its_batch():
    data = toy_dataset()
    S = target_gram(data.train.Y)
    torch.manual_seed(0)
    candidates = Candidates.of_labels(np.full((200, 1), -1, np.int32), 50, with_positives=True)
    batch = Points(data.train.X, data.train.Y, candidates).cut(np.arange(8))
    module = BagClassifier(data.feature_count, S, GlasConfig(dim=6, weight=3.0, dropout=0.0))
    with_it = module.loss(batch).item()
    module.weight = 0.0
    without = module.loss(batch).item()
    labels = batch.shortlists.labels
    V = module.V.weight.detach().numpy()[labels]
    expected = 3.0 * ((V @ V.T - S.toarray()[np.ix_(labels, labels)]) ** 2).mean()
    assert len(labels) < 50
    assert with_it - without == pytest.approx(expected, rel=1e-3)


def test_labels_lie_as_their_points_say():
    """Labels of one group come together; with the regulariser, and only with it, so do their vectors."""
    data = toy_dataset()
    S = target_gram(data.train.Y).toarray()

    def distance(weight):
        V = train("glas", data, dim=64, epochs=20, batch_size=32, weight=weight).V
        return ((V @ V.T - S) ** 2).mean()

    assert distance(100.0) < 0.25 * distance(0.0)


def test_scores_are_probabilities_of_inner_products():
    data = toy_dataset()
    model = train("glas", data, dim=8, epochs=2)
    expected = 1 / (1 + np.exp(-np.maximum(data.test.X @ model.E, 0) @ model.V.T))
    found = model.predict(data.test.X, 50)
    assert found.scores == pytest.approx(np.take_along_axis(expected, found.indices, axis=1), rel=1e-4)


@pytest.mark.parametrize(("key", "value"), [("dim", 0), ("dropout", 1), ("weight", -1), ("negatives", -1), ("lr", 0)])
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("glas").config_type, {key: value})
