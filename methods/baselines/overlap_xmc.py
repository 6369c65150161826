"""Overlap-XMC: a label may be in several clusters, which are chosen anew once the model knows where its points go.

A partition method has a matcher, which finds clusters for a point, and a ranker, which orders the labels of these. Here
both alternate with the assignment of labels to clusters: given M, the clusters that the matcher finds for each training
point, label l goes to the clusters with the largest entries of (Y^T M)_l. A label that is in two clusters has a
classifier in each, which learns from the points that go there: "belt" among clothes, and "belt" among car parts.
P(l | x) = 1 - prod_c (1 - P(c | x) P(l | c, x)), over the clusters c of l that the matcher finds for x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numba import njit

from xcbench.data import Dataset, TopK
from xcbench.data.matrices import with_constant
from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import CsrArrays, arrays_of
from xcbench.kernels.hash_table import collect, slot_of, table_size
from xcbench.kernels.parallel import split_range
from xcbench.kernels.selection import write_best
from xcbench.kernels.sparse_svm import LabelWeights, fit_sparse_classifiers
from xcbench.labels import balanced_clusters, sparse_centroids
from xcbench.plugins import (
    Ablation,
    Method,
    Predictor,
    Run,
    SavedByArguments,
    StageWork,
    Values,
    register_method,
    stage,
)
from xcbench.shortlist.blocks import empty_topk, topk_in_blocks
from xcbench.shortlist.predictors.cascade import predict_in_parts
from xcbench.shortlist.sparse_topk import best_of_product

from ._libraries import learnable_points

CLUSTERS_AT_ONCE = 64
"""How many matchers are trained at a time: each of them learns from all points."""


@dataclass(frozen=True)
class OverlapConfig:
    """The base is like XR-Linear; lambda was chosen on a held-out fifth of lf-debian-4k's training points."""

    cluster_labels: int = 100
    """Labels in a cluster of the first partition."""
    clusters_per_label: int = 3
    """lambda: the most clusters that a label may be in."""
    rounds: int = 1
    """How often labels are assigned anew; 0 keeps the first partition."""
    beam: int = 10
    """Clusters that the matcher finds for a point."""
    C: float = 1.0
    prune: float = 0.1
    """Weights nearer to zero than this are dropped."""

    def __post_init__(self) -> None:
        if min(self.cluster_labels, self.clusters_per_label, self.beam) < 1 or self.rounds < 0:
            raise ValueError("cluster_labels, clusters_per_label and beam are at least 1, rounds is not negative")
        if self.C <= 0 or self.prune < 0:
            raise ValueError("C is positive, prune not negative")


# The assignment of labels to clusters: [L, lambda] cluster ids, -1 where a label is in fewer.


@stage(settings=["cluster_labels"], data="unaugmented")
def partition(work: StageWork[OverlapConfig]) -> Values:
    """The first partition: balanced clusters of the labels' centroids."""
    data = work.unaugmented
    K = max(1, -(-data.label_count // work.config.cluster_labels))
    centroids = sparse_centroids(data.train.Y, data.train.X)
    clustering = balanced_clusters(centroids, K, seed=work.seed)
    return {"assignment": clustering.cluster_of[:, None], "clusters": clustering.K}


def assign(Y: sp.csr_array, found: TopK, clusters: int, per_label: int, partition: Ints) -> Ints:
    """Each label's clusters with the largest entries of Y^T M; the clusters of a label without points stay.

    Parameters
    ----------
    Y
        The labels of the training points.
    found
        M: the clusters that the matcher finds for each training point, and their probabilities.
    clusters
        K, the number of clusters.
    per_label
        lambda.
    partition
        The assignment of before.
    """
    M = found.to_csr(clusters)
    best = TopK.from_csr((Y.T.tocsr() @ M).tocsr(), per_label).padded(per_label)
    assignment = best.indices
    is_unknown = assignment[:, 0] < 0
    assignment[is_unknown, 0] = partition[is_unknown, 0]
    return assignment


def targets(X: sp.csr_array, Y: sp.csr_array, W: sp.csr_array | None, assignment: Ints, clusters: int) -> sp.csr_array:
    """[N, K]: the clusters in which a point should find its labels. Of several clusters of a label, the likeliest.

    Parameters
    ----------
    X, Y
        The training points, with a constant feature, and their labels.
    W
        The matcher by which clusters are likely; not needed where labels are in one cluster each.
    assignment
        The clusters of each label.
    clusters
        K, the number of clusters.
    """
    point = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    options = assignment[Y.indices]
    chosen = options[:, 0]
    if W is not None:
        margins = LabelWeights.of(W).margins(X[point], options)
        chosen = options[np.arange(len(options)), margins.argmax(axis=1)]
    ones = np.ones(len(point), np.float32)
    T = sp.csr_array((ones, (point, chosen)), shape=(Y.shape[0], clusters))
    T.data[:] = 1
    return T


@stage(
    settings=["clusters_per_label", "rounds", "beam", "C", "prune"],
    after=[partition],
)
def matcher(work: StageWork[OverlapConfig]) -> Values:
    """Alternate: train the matcher, then assign labels to the clusters that it finds for their points."""
    c = work.config
    words, Y = learnable_points(work.data)
    X = with_constant(words)
    first = work[partition]["assignment"]
    K = work[partition]["clusters"]

    assignment = first
    T = targets(X, Y, None, assignment, K)
    W = fit_matcher(X, T, c.C, c.prune, work.seed)
    for number in range(c.rounds):
        found = match(X, W, c.beam)
        assignment = assign(Y, found, K, c.clusters_per_label, first)
        T = targets(X, Y, W, assignment, K)
        W = fit_matcher(X, T, c.C, c.prune, work.seed + number + 1)
    return {"W": W, "assignment": assignment, "T": T}


def fit_matcher(X: sp.csr_array, T: sp.csr_array, C: float, prune: float, seed: int) -> sp.csr_array:
    """One linear SVM per cluster, against all points."""
    by_cluster = T.T.tocsr()
    rows = []
    for first, last in split_range(by_cluster.shape[0], CLUSTERS_AT_ONCE):
        signs = 2 * by_cluster[first:last].toarray() - 1
        rows.append(fit_sparse_classifiers(X, sp.csr_array(np.float32(C) * signs), seed + first, prune=prune))
    W: sp.csr_array = sp.vstack(rows, format="csr")
    return W


def match(X: sp.csr_array, W: sp.csr_array, beam: int) -> TopK:
    """The likeliest clusters of each point, with Parabel's probability for a squared hinge loss."""
    found = best_of_product(X, W.T.tocsr(), min(beam, W.shape[0]))
    gap = np.maximum(1 - found.scores, 0)
    return TopK(found.indices, np.exp(-(gap**2)))


# The ranker: one classifier for each cluster that a label is in.


@stage(settings=["beam", "C", "prune"], after=[matcher])
def ranker(work: StageWork[OverlapConfig]) -> Values:
    """In each cluster, one linear SVM per label, on the points that belong there or that the matcher sends there."""
    c = work.config
    words, Y = learnable_points(work.data)
    X = with_constant(words)
    T = work[matcher]["T"]
    K = T.shape[1]
    sent = match(X, work[matcher]["W"], c.beam).to_csr(K)
    points_of = (T + sent).T.tocsr()
    members = members_of(work[matcher]["assignment"], K)

    rows = []
    for cluster in range(K):
        points = points_of.indices[points_of.indptr[cluster] : points_of.indptr[cluster + 1]]
        labels = members.indices[members.indptr[cluster] : members.indptr[cluster + 1]]
        has_label = Y[points][:, labels].toarray().T
        costs = np.float32(c.C) * (2 * has_label - 1)
        places = np.tile(points, len(labels))
        indptr = len(points) * np.arange(len(labels) + 1)
        examples = sp.csr_array((costs.ravel(), places, indptr), shape=(len(labels), X.shape[0]))
        rows.append(fit_sparse_classifiers(X, examples, work.seed + cluster, prune=c.prune))
    return {"W": sp.vstack(rows, format="csr"), "members": members}


def members_of(assignment: Ints, clusters: int) -> sp.csr_array:
    """The labels of each cluster [K, L]."""
    label, place = np.nonzero(assignment >= 0)
    ones = np.ones(len(label), np.float32)
    members = sp.csr_array((ones, (assignment[label, place], label)), shape=(clusters, len(assignment)))
    members.sort_indices()
    return members


class OverlapPredictor(SavedByArguments, Predictor):
    """Matcher [K, V + 1], the members of each cluster [K, L], and one row of the ranker per member."""

    def __init__(self, matcher: sp.csr_array, members: sp.csr_array, ranker: sp.csr_array, beam: int) -> None:
        self.matcher = matcher
        self.members = members
        self.ranker = ranker
        self.beam = beam

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return predict_in_parts(X, lambda part: self._predict_part(with_constant(part), k))

    def _predict_part(self, X: sp.csr_array, k: int) -> TopK:
        clusters = match(X, self.matcher, self.beam)
        ranker = arrays_of(self.ranker)
        members = arrays_of(self.members)
        largest = int(np.diff(members.indptr).max(initial=0))

        def rank_block(block: slice) -> TopK:
            result = empty_topk(block.stop - block.start, k)
            found = clusters.rows(block)
            _rank(
                arrays_of(X[block]),
                X.shape[1],
                found.indices,
                found.scores,
                members.indptr,
                members.indices,
                ranker,
                found.k * largest,
                result.indices,
                result.scores,
            )
            return result

        return topk_in_blocks(X.shape[0], k, rank_block)


@njit(cache=True, nogil=True)
def _rank(
    X: CsrArrays,
    width: int,
    clusters: Ints,
    probabilities: Floats,
    indptr: Longs,
    members: Ints,
    ranker: CsrArrays,
    most_labels: int,
    out_labels: Ints,
    out_scores: Floats,
) -> None:
    """Write the likeliest labels: the product of the cluster's probability and their own, in any of their clusters."""
    size = table_size(most_labels)
    labels = np.empty(size, np.int32)
    scores = np.empty(size, np.float32)
    keys = np.empty(size, np.uint64)
    x = np.zeros(width, np.float32)
    for i in range(len(clusters)):
        for e in range(X.indptr[i], X.indptr[i + 1]):
            x[X.indices[e]] = X.data[e]
        labels[:] = -1
        for place, cluster in enumerate(clusters[i]):
            if cluster < 0:
                continue
            for member in range(indptr[cluster], indptr[cluster + 1]):
                margin = np.float32(0)
                for e in range(ranker.indptr[member], ranker.indptr[member + 1]):
                    margin += ranker.data[e] * x[ranker.indices[e]]
                gap = max(np.float32(1) - margin, np.float32(0))
                score = probabilities[i, place] * np.exp(-gap * gap)
                slot = slot_of(labels, members[member])
                if labels[slot] == -1:
                    labels[slot] = members[member]
                    scores[slot] = score
                else:
                    scores[slot] += score - scores[slot] * score
        count = collect(labels, scores, keys)
        write_best(keys, count, out_labels[i], out_scores[i])
        for e in range(X.indptr[i], X.indptr[i + 1]):
            x[X.indices[e]] = 0


@register_method("overlap-xmc")
class OverlapXMC(Method[OverlapConfig]):
    """Overlap-XMC: labels in several clusters, assigned by where a matcher sends their points (numba)"""

    config_type = OverlapConfig
    predictor_type = OverlapPredictor
    stages = (partition, matcher, ranker)
    ablations: ClassVar = {"partition": Ablation("its base: one cluster per label", {"rounds": 0})}
    citation = "Liu et al., Label Disentanglement in Partition-based Extreme Multilabel Classification, NeurIPS 2021"

    def fit(self, data: Dataset, run: Run) -> OverlapPredictor:
        W = run.stage(matcher, data)["W"]
        ranked = run.stage(ranker, data)
        return OverlapPredictor(W, ranked["members"], ranked["W"], self.config.beam)
