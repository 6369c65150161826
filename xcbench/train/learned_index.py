"""An index of labels that learns with the encoder: scores of clusters, and weights of the edges to their labels.

`shortlist.index` has the equations. Which clusters are explored and which path to a label is the best are decisions
without a gradient. The scores of the paths have one, so that clusters and edges learn to lead to the true labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from numba import njit
from torch import Tensor, nn

from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, SparseRows, arrays_of
from xcbench.nn.dropout import next_key
from xcbench.shortlist import IndexShortlister
from xcbench.shortlist.index import Paths, best_paths

Exploration = Literal["parents", "sampled"]

SPARE = 5
"""By how many clusters the authors' sampling exceeds the beam."""

TINY = 1e-12
"""Added to the scores of clusters that are sampled, so that there are always enough of them."""


@dataclass(frozen=True)
class ScoredPaths:
    """The labels that the points of a batch are ranked against, and the scores of the best paths to them."""

    labels: Longs | None  # the union of all listed labels, ascending; None if all labels count as listed
    pairs: SparseRows  # [B, labels]: the labels of each point, with their targets
    scores: Tensor  # y_l of each pair
    positives: Tensor  # the numbers of the pairs whose target is above 0
    positives_of_point: Tensor  # for each of these, how many of them its point has
    targets: Tensor  # of each pair


class LearnedIndex(nn.Module):
    """Clusters of labels, linked to labels by edges that are fixed or learnt.

    Parameters
    ----------
    edges
        [C, L] which labels each cluster leads to.
    dim
        D, the length of a point's vector.
    alpha
        Multiplies the softmax over clusters.
    beta
        Multiplies the softmax over the edges of a cluster; None for fixed edges of weight 1.
    beam
        How many clusters are explored per point.
    length
        How many labels a point is ranked against. Its true labels, as far as they are explored, come on top.
    exploration
        In training, the parents of a point's true labels are explored beside its beam. `sampled` is what ELIAS's
        authors do: random clusters fill the list, of which the beam and five more are then drawn by their scores.
    all_labels
        Whether a step treats all labels as listed. It saves time where a batch lists most of them anyway.
    """

    parents: Tensor
    places: Tensor
    is_edge: Tensor

    def __init__(
        self,
        edges: sp.csr_array,
        dim: int,
        alpha: float,
        beta: float | None,
        beam: int,
        length: int,
        exploration: Exploration = "parents",
        all_labels: bool = False,
    ) -> None:
        super().__init__()
        C, L = edges.shape
        self.alpha = alpha
        self.beta = beta
        self.beam = min(beam, C)
        self.length = min(length, L)
        self.exploration: Exploration = exploration
        self.all_labels = all_labels

        rows = arrays_of(edges)
        self.indptr = rows.indptr
        self.labels = rows.indices
        self.clusters = nn.Linear(dim, C)
        sizes = np.diff(self.indptr)
        width = int(sizes.max())
        is_edge = np.arange(width) < sizes[:, None]
        self.register_buffer("is_edge", torch.from_numpy(is_edge), persistent=False)
        self.register_buffer("places", torch.from_numpy(np.flatnonzero(is_edge)), persistent=False)
        if beta is not None:
            # One row per cluster. What lies behind its last edge has no weight.
            self.edges = nn.Parameter(torch.rand(C, width))
        self.register_buffer("parents", torch.zeros(L, dtype=torch.int32))
        self.find_parents()

    def cluster_scores(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return softmax(H x + b) and s_c, [B, C] both."""
        logits: Tensor = self.clusters(x)
        shares = logits.softmax(1)
        return shares, (self.alpha * shares).clamp(max=1)

    def edge_weights(self) -> Tensor:
        """Return s_cl of every edge."""
        if self.beta is None:
            return torch.ones(len(self.labels), device=self.places.device)
        return (self.beta * self._edge_shares()).clamp(max=1)

    def _edge_shares(self) -> Tensor:
        """Return the softmax over the edges of each cluster."""
        shares = self.edges.masked_fill(~self.is_edge, -torch.inf).softmax(1)
        return shares.view(-1)[self.places]

    @torch.no_grad()
    def find_parents(self) -> None:
        """Find the cluster from which the heaviest edge leads to each label. A label without an edge has parent 0."""
        weights = np.ones(len(self.labels), np.float32)
        if self.beta is not None:
            weights = self._edge_shares().cpu().numpy()
        parents = _heaviest_clusters(self.indptr, self.labels, weights, len(self.parents))
        self.parents.copy_(torch.from_numpy(parents))

    def forward(self, x: Tensor, targets: SparseRows) -> ScoredPaths:
        """Explore clusters for the points x [B, D], and score the best path to each label that is found."""
        shares, scores = self.cluster_scores(x)
        weights = self.edge_weights()
        clusters = self.explored(shares.detach().cpu(), targets)
        paths = best_paths(
            scores.detach().cpu().numpy(),
            clusters,
            CsrArrays(self.indptr, self.labels, weights.detach().cpu().numpy()),
            targets.arrays,
            len(self.parents),
            self.length,
        )
        return self._scored(paths, scores, weights)

    def explored(self, shares: Tensor, targets: SparseRows) -> Ints:
        """Return the clusters that are explored for each point in training, [B, m], -1 for none."""
        best = shares.topk(self.beam).indices.to(torch.int32).numpy()
        with_parents = _with_parents(best, targets.indptr, targets.indices, targets.data, self.parents.cpu().numpy())
        if self.exploration == "parents":
            return with_parents
        return _sampled(with_parents, shares.numpy(), self.beam + SPARE)

    def _scored(self, paths: Paths, scores: Tensor, weights: Tensor) -> ScoredPaths:
        device = scores.device
        counts = np.diff(paths.indptr)
        point = np.repeat(np.arange(len(counts)), counts)
        place = torch.from_numpy(point * scores.shape[1] + paths.clusters).to(device)
        path_scores = scores.view(-1)[place]
        if self.beta is not None:
            path_scores = path_scores * weights[torch.from_numpy(paths.edges).to(device)]

        positives = np.flatnonzero(paths.targets > 0)
        count_of_point = np.bincount(point[positives], minlength=len(counts))
        labels = None
        columns = paths.labels
        width = len(self.parents)
        if not self.all_labels:
            labels, columns = _union(paths.labels, width)
            width = len(labels)
        return ScoredPaths(
            labels,
            SparseRows(paths.indptr, columns, paths.targets, width),
            path_scores,
            torch.from_numpy(positives).to(device),
            torch.from_numpy(count_of_point[point[positives]]).to(device),
            torch.from_numpy(paths.targets).to(device),
        )

    @torch.no_grad()
    def shortlister(self) -> IndexShortlister:
        """Return the index as it is now, for prediction."""
        shape = (len(self.indptr) - 1, len(self.parents))
        weights = self.edge_weights().cpu().numpy()
        edges = sp.csr_array((weights, self.labels, self.indptr), shape=shape)
        return IndexShortlister.of(
            self.clusters.weight,
            edges,
            self.beam,
            self.clusters.bias,
            self.alpha,
        )


def _union(labels: Ints, label_count: int) -> tuple[Longs, Ints]:
    """Return the distinct labels, ascending, and the place of each label among them."""
    is_listed = np.zeros(label_count, np.bool_)
    is_listed[labels] = True
    place = np.cumsum(is_listed, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(is_listed), place[labels]


@njit(cache=True)
def _heaviest_clusters(indptr: Longs, labels: Ints, weights: Floats, label_count: int) -> Ints:
    """Return the cluster of the heaviest edge to each label; of equal ones the first."""
    heaviest = np.full(label_count, -np.inf, np.float32)
    clusters = np.zeros(label_count, np.int32)
    for cluster in range(len(indptr) - 1):
        for e in range(indptr[cluster], indptr[cluster + 1]):
            if weights[e] > heaviest[labels[e]]:
                heaviest[labels[e]] = weights[e]
                clusters[labels[e]] = cluster
    return clusters


@njit(cache=True)
def _with_parents(best: Ints, indptr: Longs, labels: Ints, targets: Floats, parents: Ints) -> Ints:
    """Append the parents of the true labels of each point, but none twice. The result is padded with -1."""
    most = 0
    for i in range(len(best)):
        most = max(most, indptr[i + 1] - indptr[i])
    explored = np.full((len(best), best.shape[1] + most), -1, np.int32)
    for i in range(len(best)):
        end = best.shape[1]
        explored[i, :end] = best[i]
        for e in range(indptr[i], indptr[i + 1]):
            parent = parents[labels[e]]
            if targets[e] >= 0.5 and not (explored[i, :end] == parent).any():
                explored[i, end] = parent
                end += 1
    return explored


def _sampled(explored: Ints, shares: Floats, count: int) -> Ints:
    """Fill the empty places with random clusters, and draw `count` places in proportion to the scores of clusters."""
    random = np.random.default_rng(next_key())
    drawn = random.integers(0, shares.shape[1], explored.shape, dtype=np.int32)
    filled = np.where(explored < 0, drawn, explored)
    if filled.shape[1] > count:
        scores = np.take_along_axis(shares, filled, axis=1) + TINY
        # The places with the largest log score plus Gumbel noise are a draw without replacement.
        noisy = np.log(scores) + random.gumbel(size=scores.shape)
        kept = np.argpartition(-noisy, count - 1, axis=1)[:, :count]
        filled = np.take_along_axis(filled, kept, axis=1)
    return filled
