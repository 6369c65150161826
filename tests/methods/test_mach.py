"""MACH: its hashing, its loss and its vote against brute force."""

import numpy as np
import pytest
import torch
from xcbench.methods.baselines.mach import MachConfig, Networks, _bucket_targets

from tests.methods.problems import csr, separable, train
from xcbench.errors import InputError
from xcbench.kernels.csr import SparseRows
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.train import Points


def test_a_label_scores_the_mean_of_its_buckets():
    data = separable()
    model = train("mach", data, repetitions=3, buckets=5, hidden=8)
    with torch.no_grad():
        P = torch.softmax(model.networks(SparseRows.of(data.test.X)), -1).numpy()
    expected = np.mean([P[r][:, model.bucket_of[:, r]] for r in range(3)], axis=0)
    found = model.predict(data.test.X, 12)
    assert np.take_along_axis(expected, found.indices, axis=1) == pytest.approx(found.scores, abs=1e-6)
    assert (np.sort(found.indices, axis=1) == np.arange(12)).all()


def test_targets_share_a_point_among_the_buckets_of_its_labels():
    bucket_of = np.array([[0, 1], [0, 0], [1, 1]], np.int32)  # three labels, two hashings into two buckets
    Y = csr([[1, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0.5]])
    expected = [[1, 0, 0.5, 0.5], [0, 1, 0, 1], [0, 0, 0, 0], [2 / 3, 1 / 3, 0, 1]]
    assert _bucket_targets(Y, bucket_of, 2).toarray() == pytest.approx(np.array(expected))


def test_the_loss_is_the_cross_entropy_of_each_network():
    torch.manual_seed(0)
    networks = Networks(3, 2, 4, 5, 0.0)
    X, T = (
        csr([[1, 0, 0.5], [0, 1, 0]]),
        csr([[0, 0.5, 0.5, 0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0, 0.25, 0.75, 0]]),
    )
    batch = Points(X, T).cut(np.arange(2))
    logp = torch.log_softmax(networks(batch.X), -1)
    expected = -sum(T.toarray()[i, r * 5 + b] * logp[r, i, b] for i in range(2) for r in range(2) for b in range(5))
    assert networks.loss(batch).item() == pytest.approx(expected.item() / 2, rel=1e-5)


def test_buckets_follow_the_labels():
    assert [MachConfig().bucket_count(n) for n in (1, 50, 4000, 1_000_000)] == [2, 50, 1000, 2048]
    assert MachConfig(buckets=7).bucket_count(4000) == 7


@pytest.mark.parametrize(("key", "value"), [("repetitions", 0), ("buckets", 1), ("dropout", 1.0), ("lr", 0)])
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("mach").config_type, {key: value})
