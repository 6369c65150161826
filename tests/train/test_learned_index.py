"""The learnt index against a dense slow reference: all clusters, all edges, all labels, in float64."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from xcbench.kernels.csr import SparseRows
from xcbench.nn.dropout import start_step
from xcbench.train.learned_index import LearnedIndex

C = 7
L = 30
D = 5
B = 9


def edges_of(seed=0, share=0.35):
    rng = np.random.default_rng(seed)
    edges = (rng.random((C, L)) < share).astype(np.float32)
    edges[rng.integers(0, C, L), np.arange(L)] = 1
    return sp.csr_array(edges)


def targets_of(seed=0):
    rng = np.random.default_rng(seed)
    Y = (rng.random((B, L)) < 0.1).astype(np.float32)
    Y[0] = 0
    return Y


def index_of(edges, beta=6.0, beam=3, length=8, alpha=2.0, **others):
    torch.manual_seed(0)
    index = LearnedIndex(edges, D, alpha, beta, beam, length, **others)
    if beta is not None:
        torch.nn.init.normal_(index.edges, std=2.0)
        index.find_parents()
    return index


def dense_scores(index, edges, x, explored):
    """y_l of all labels, 0 where no explored cluster leads to a label; by plain loops of torch."""
    H = index.clusters.weight.double()
    sc = (index.alpha * (x.double() @ H.T + index.clusters.bias.double()).softmax(1)).clamp(max=1)
    weights = torch.zeros(C, L, dtype=torch.float64)
    dense = edges.toarray()
    for c in range(C):
        labels = torch.from_numpy(np.flatnonzero(dense[c]))
        if index.beta is None:
            weights[c, labels] = 1.0
        else:
            row = index.edges[c, : len(labels)].double()
            weights = weights.index_put(
                (torch.full_like(labels, c), labels), (index.beta * row.softmax(0)).clamp(max=1)
            )
    paths = sc[:, :, None] * weights[None] * torch.from_numpy(explored)[:, :, None]
    return paths.max(1).values


def mask(clusters):
    explored = np.zeros((len(clusters), C), bool)
    for i, row in enumerate(clusters):
        explored[i, row[row >= 0]] = True
    return explored


@pytest.mark.parametrize("beta", [None, 6.0])
@pytest.mark.parametrize("all_labels", [False, True])
def test_scores_and_gradients_equal_a_dense_reference(beta, all_labels):
    edges = edges_of()
    index = index_of(edges, beta, all_labels=all_labels)
    x = torch.randn(B, D, requires_grad=True)
    Y = targets_of()
    targets = SparseRows.of(sp.csr_array(Y))
    found = index(x, targets)
    explored = mask(index.explored(index.cluster_scores(x)[0].detach(), targets))
    y = dense_scores(index, edges, x, explored)

    rows = np.repeat(np.arange(B), np.diff(found.pairs.indptr))
    labels = found.pairs.indices if found.labels is None else found.labels[found.pairs.indices]
    torch.testing.assert_close(found.scores.double(), y[rows, labels], rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(found.targets.numpy(), Y[rows, labels])
    listed = np.zeros((B, L), bool)
    listed[rows, labels] = True
    for i in range(B):
        reached = y[i].detach().numpy() * (y[i].detach().numpy() > 0)
        best = sorted(np.flatnonzero(reached), key=lambda label: (-np.float32(reached[label]), label))[: index.length]
        assert listed[i].sum() == len(set(best) | set(np.flatnonzero((reached > 0) & (Y[i] > 0))))
        assert min(reached[listed[i]], default=0) >= 0
        assert listed[i][(reached > 0) & (Y[i] > 0)].all()
        if best and not Y[i].any():
            np.testing.assert_allclose(np.sort(reached[listed[i]]), np.sort(reached[best]), rtol=1e-6)
    np.testing.assert_array_equal(found.positives.numpy(), np.flatnonzero(Y[rows, labels] > 0))
    per_point = np.bincount(rows[found.positives.numpy()], minlength=B)
    np.testing.assert_array_equal(found.positives_of_point.numpy(), per_point[rows[found.positives.numpy()]])

    weights = torch.rand(len(labels))
    parameters = [x, index.clusters.weight, index.clusters.bias] + ([] if beta is None else [index.edges])
    ours = torch.autograd.grad((found.scores * weights).sum(), parameters)
    theirs = torch.autograd.grad((y[rows, labels] * weights.double()).sum(), parameters)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-4, atol=1e-6)


def test_what_is_cut_at_1_has_no_gradient():
    edges = sp.csr_array(np.ones((2, 3), np.float32))
    index = LearnedIndex(edges, 1, alpha=1e6, beta=1e6, beam=1, length=3)
    x = torch.ones(1, 1, requires_grad=True)
    found = index(x, SparseRows.of(sp.csr_array((1, 3), dtype=np.float32)))
    assert found.scores.tolist() == [1.0, 1.0, 1.0]
    found.scores.sum().backward()
    assert x.grad.abs().sum() == 0
    assert index.edges.grad.abs().sum() == 0


def test_parents_of_true_labels_are_explored_and_follow_the_heaviest_edge():
    edges = edges_of(1)
    index = index_of(edges, beam=1, length=1)
    dense = np.full((C, L), -np.inf)
    shares = index._edge_shares().detach().numpy()
    for c in range(C):
        here = slice(edges.indptr[c], edges.indptr[c + 1])
        dense[c, edges.indices[here]] = shares[here]
    np.testing.assert_array_equal(index.parents.numpy(), dense.argmax(0))

    Y = targets_of(2)
    Y[1, :] = 1
    targets = SparseRows.of(sp.csr_array(Y))
    x = torch.randn(B, D)
    explored = index.explored(index.cluster_scores(x)[0].detach(), targets)
    for i in range(B):
        clusters = explored[i][explored[i] >= 0].tolist()
        assert len(clusters) == len(set(clusters))
        assert set(index.parents[Y[i] > 0].tolist()) <= set(clusters)
    assert index(x, targets).targets.sum() == Y.sum()  # every true label is listed, however short the list


def test_sampling_draws_the_beam_and_five_more():
    edges = sp.csr_array(np.ones((40, L), np.float32))
    index = LearnedIndex(edges, D, 2.0, None, 4, 5, exploration="sampled")
    Y = np.zeros((B, L), np.float32)
    Y[3] = 1
    index.parents.copy_(torch.arange(L) + 5)
    shares = torch.full((B, 40), 1e-20)
    shares[:, :3] = 1 / 3
    start_step(0, 0)
    first = index.explored(shares, SparseRows.of(sp.csr_array(Y)))
    assert first.shape == (B, 9)
    assert ((first >= 0) & (first < 40)).all()
    assert all({0, 1, 2} <= set(row) for row in first.tolist())  # they have all the mass
    start_step(0, 0)
    np.testing.assert_array_equal(index.explored(shares, SparseRows.of(sp.csr_array(Y))), first)


@pytest.mark.parametrize("beta", [None, 6.0])
def test_the_shortlister_finds_what_the_index_scores(beta):
    edges = edges_of(3)
    index = index_of(edges, beta)
    x = torch.randn(B, D)
    shares, _ = index.cluster_scores(x)
    explored = mask(shares.topk(index.beam).indices.numpy())
    y = dense_scores(index, edges, x, explored).detach().numpy()
    found = index.shortlister().shortlist(x, L)
    for i in range(B):
        used = found.indices[i] >= 0
        np.testing.assert_allclose(found.scores[i, used], y[i, found.indices[i, used]], rtol=1e-5)
        assert used.sum() == (y[i] > 0).sum()
