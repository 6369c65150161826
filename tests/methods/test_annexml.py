"""AnnexML: gradients against autograd, neighbours and votes against brute force."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity
from xcbench.methods.baselines._neighbour_learning import (
    cosine_slopes,
    label_neighbours,
    learn_from_point,
    learn_partition,
    nearest_cluster,
    without_heads,
)

from tests.methods.problems import csr, separable, train
from xcbench.errors import InputError
from xcbench.kernels.csr import arrays_of
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.toy import toy_dataset


def objective(cosines, half, gamma):
    logits = gamma * cosines
    strangers = logits[half:]
    return sum(logits[i] - torch.logsumexp(torch.cat([logits[i : i + 1], strangers]), 0) for i in range(half))


def test_slopes_are_the_gradient_by_the_cosines():
    cosines = torch.tensor([0.3, -0.2, 0.9, 0.1, 0.5, -0.7], dtype=torch.float64, requires_grad=True)
    objective(cosines, 3, 4.0).backward()
    assert cosine_slopes(cosines.detach().numpy(), 3, 4.0) == pytest.approx(cosines.grad.numpy())


def test_a_step_follows_the_gradient_by_the_embeddings():
    """With a long history AdaGrad's steps are short and all of one rate, so that their sum is the gradient."""
    random = np.random.default_rng(0)
    X = csr((random.random((6, 8)) < 0.5) * random.random((6, 8)))
    E = random.normal(size=(8, 4))
    sample = np.array([1, 2, 3, 1, 4, 5])
    table = torch.tensor(E, requires_grad=True)
    z = torch.tensor(X.toarray().astype(float)) @ table
    objective(cosine_similarity(z[:1], z[sample]), 3, 5.0).backward()

    moved = E.copy()
    history = 1e16
    learn_from_point(arrays_of(X), 0, sample, 1.0, 5.0, moved, np.full(E.shape, history))
    assert (moved - E) * np.sqrt(history) == pytest.approx(table.grad.numpy(), rel=1e-4, abs=1e-5)


def test_neighbours_share_most_labels():
    Y = toy_dataset().train.Y
    dense = Y.toarray()
    shared = dense @ (dense / dense.sum(axis=1, keepdims=True)).T
    np.fill_diagonal(shared, 0)
    found = label_neighbours(Y, 5, seed=1)
    for i, row in enumerate(found):
        points = row[row >= 0]
        assert i not in points
        assert shared[i, points] == pytest.approx(np.sort(shared[i])[::-1][: len(points)])
        assert len(points) == min(5, (shared[i] > 0).sum())


def test_the_seed_decides_between_equal_neighbours():
    Y = csr(np.ones((30, 1)))
    first, second = (label_neighbours(Y, 4, seed) for seed in (0, 1))
    assert (first != second).any()
    for row, points in enumerate(first):
        assert len({row, *points}) == 5
    assert label_neighbours(Y[:3], 4, 0)[:, 2:].tolist() == [[-1, -1]] * 3


def test_labels_of_most_points_are_left_out_first():
    Y = csr([[1, 1, 0], [1, 1, 0], [1, 0, 1], [1, 0, 1], [1, 0, 0]])  # 20 pairs share label 0, 2 pairs label 1 or 2
    assert without_heads(Y, 5).toarray().tolist() == Y.toarray().tolist()
    assert without_heads(Y, 4).toarray()[:, 0].tolist() == [0] * 5
    assert without_heads(Y, 4).toarray()[:, 1:].tolist() == Y.toarray()[:, 1:].tolist()


def test_a_partition_keeps_neighbours_together():
    random = np.random.default_rng(0)
    group = np.arange(200) % 4
    X = np.zeros((200, 24))
    X[np.arange(200), 6 * group + random.integers(0, 6, 200)] = 1  # each group has six words of its own
    neighbours = (group[:, None] + 4 * random.integers(0, 50, (200, 5))).astype(np.int32)
    same_group = group[:, None] == group

    def kept_together(rounds):
        """How much more often points of one group are in one part than points of two groups."""
        centres = learn_partition(csr(X), neighbours, 4, rounds=rounds, lr=0.1, sparsity=0.1, seed=0)
        part = nearest_cluster(csr(X), centres)
        same_part = part[:, None] == part
        return same_part[same_group].mean() - same_part[~same_group].mean()

    assert kept_together(0) < 0.2
    assert kept_together(10) > 0.8


def test_votes_are_those_of_the_nearest_points_of_all_learners():
    data = toy_dataset()
    model = train("annexml", data, learners=3, dim=8, neighbours=4, rounds=2)
    votes = np.zeros((len(data.test), data.label_count))
    for part in model.parts:
        train_z = data.train.X[:, part["words"]] @ part["E"]
        test_z = data.test.X[:, part["words"]] @ part["E"]
        cosines = (
            test_z @ train_z.T / np.outer(np.linalg.norm(test_z, axis=1), np.linalg.norm(train_z, axis=1)).clip(1e-9)
        )
        nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :4]
        for place in range(4):
            votes += data.train.Y.toarray()[nearest[:, place]]
    found = model.predict(data.test.X, 5)
    used = found.indices >= 0
    expected = np.take_along_axis(votes / 12, found.indices, axis=1)
    assert (np.isclose(found.scores, expected)[used]).mean() > 0.98  # but for ties, and what the graph misses
    assert found.scores[:, 0].max() <= 1


def test_parts_are_asked_for_their_own_points():
    data = toy_dataset(train=400)
    model = train("annexml", data, learners=2, dim=8, part_points=100, sparsity=0.01)
    for learner in range(2):
        own = [part["points"] for part in model.parts if part["learner"] == learner]
        assert len(own) > 1
        assert sorted(np.concatenate(own)) == list(range(400))
    found = model.predict(data.test.X, 1)
    assert (data.test.Y.toarray()[np.arange(60), found.indices[:, 0]] > 0).mean() > 0.8


def test_a_point_without_known_words_has_no_neighbours():
    data = separable()
    found = train("annexml", data, learners=2, dim=8).predict(csr(np.zeros((1, 13))), 3)
    assert found.indices.tolist() == [[-1, -1, -1]]


@pytest.mark.parametrize(
    ("key", "value"),
    [("learners", 0), ("dim", 0), ("neighbours", 0), ("part_points", 0), ("gamma", 0), ("lr", 0), ("sparsity", -1)],
)
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("annexml").config_type, {key: value})
