"""PfastreXML: trees that are split for the gain of a ranking in which rare labels weigh more, then a tail re-ranker.

P(l | x), the mean over trees of the labels in the leaf that x falls into, each weighted by its inverse propensity, is
combined with Q(l | x) = 1 / (1 + exp(gamma |x - mu_l|^2)), where mu_l is the mean of l's points:
score = P^alpha Q^(1 - alpha).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.data.matrices import with_constant
from xcbench.evaluation import inverse_propensity
from xcbench.kernels.arrays import Floats, Ints
from xcbench.kernels.sparse_svm import LabelWeights
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
from xcbench.shortlist.predictors.cascade import predict_in_parts

from ._gain_trees import Forest, grow_forest
from ._libraries import learnable_points


@dataclass(frozen=True)
class PfastreConfig:
    """The authors' defaults."""

    trees: int = 50
    leaf_points: int = 10
    """A node of so many points, or fewer, is a leaf."""
    leaf_labels: int = 100
    """How many labels a leaf keeps."""
    C: float = 1.0
    """Weight of the separators' logistic loss against the L1 norm of their weights."""
    bias: float = 1.0
    """The value of a constant feature that every point has; 0 leaves it out."""
    gamma: float = 30.0
    """How fast the tail re-ranker's score falls with the distance from a label's mean."""
    alpha: float = 0.8
    """Weight of the trees in the final score; 1 leaves the tail re-ranker out (PfastXML)."""
    candidates: int = 1000
    """How many labels of the trees are re-ranked."""

    def __post_init__(self) -> None:
        sizes = (self.trees, self.leaf_points, self.leaf_labels, self.candidates)
        if min(sizes) < 1 or self.C <= 0:
            raise ValueError("trees, leaf_points, leaf_labels and candidates are at least 1, C is positive")
        if min(self.bias, self.gamma) < 0 or not 0 <= self.alpha <= 1:
            raise ValueError("bias and gamma are not negative, alpha lies between 0 and 1")


@stage(
    settings=["trees", "leaf_points", "leaf_labels", "C", "bias"],
    data=("data", "unaugmented"),
)
def forest(work: StageWork[PfastreConfig]) -> Values:
    """Grow the trees on labels that weigh their inverse propensity."""
    c = work.config
    original = work.unaugmented
    weights = inverse_propensity(original.label_frequency, len(original.train), original.propensity)
    X, Y = learnable_points(work.data)
    weighted = sp.csr_array((weights[Y.indices].astype(np.float32), Y.indices, Y.indptr), shape=Y.shape)

    grown = grow_forest(
        with_constant(X, c.bias),
        weighted,
        trees=c.trees,
        leaf_points=c.leaf_points,
        leaf_labels=c.leaf_labels,
        C=c.C,
        seed=work.seed,
    )
    return grown._asdict()


@stage(seeded=False)
def means(work: StageWork[PfastreConfig]) -> Values:
    """mu_l, the mean of each label's points; 0 for a label without points."""
    X, Y = learnable_points(work.data)
    by_label = Y.T.tocsr()
    count = np.diff(by_label.indptr)
    share = 1 / np.maximum(count, 1)
    mu = sp.diags_array(share.astype(np.float32), format="csr") @ by_label @ X
    return {"mu": mu.tocsr().astype(np.float32)}


class PfastrePredictor(SavedByArguments, Predictor):
    """The trees, see `Forest`, and the labels' means."""

    def __init__(
        self,
        roots: Ints,
        children: Ints,
        separators: sp.csr_array,
        leaves: sp.csr_array,
        mu: sp.csr_array,
        bias: float,
        gamma: float,
        alpha: float,
        candidates: int,
    ) -> None:
        self.roots = roots
        self.children = children
        self.separators = separators
        self.leaves = leaves
        self.mu = mu
        self.bias = bias
        self.gamma = gamma
        self.alpha = alpha
        self.candidates = candidates
        self.forest = Forest(roots, children, separators, leaves)
        self.mean_weights = LabelWeights.of(mu)
        self.mean_squares: Floats = mu.multiply(mu).sum(axis=1).astype(np.float32)

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return predict_in_parts(X, lambda part: self._predict_part(part, k))

    def _predict_part(self, X: sp.csr_array, k: int) -> TopK:
        candidates = min(max(self.candidates, k), self.leaves.shape[1])
        found = self.forest.rank(with_constant(X, self.bias), candidates)
        if self.alpha < 1:
            found = self._with_tail(found, X)
        return found.cut(k).padded(k)

    def _with_tail(self, found: TopK, X: sp.csr_array) -> TopK:
        """P^alpha Q^(1 - alpha); Q, which may be tiny, by its logarithm."""
        squares = X.multiply(X).sum(axis=1)
        near = self.mean_weights.margins(X, found.indices)
        distance = squares[:, None] + self.mean_squares[found.indices] - 2 * near
        log_tail = -np.logaddexp(0, self.gamma * distance)
        trees = np.maximum(found.scores, 0)  # unused places have -inf
        scores = trees**self.alpha * np.exp((1 - self.alpha) * log_tail)
        return TopK.of(found.indices, scores)


@register_method("pfastrexml")
class PfastreXML(Method[PfastreConfig]):
    """PfastreXML: trees split for propensity-weighted gain, and a re-ranker for rare labels (numba)"""

    config_type = PfastreConfig
    predictor_type = PfastrePredictor
    stages = (forest, means)
    ablations: ClassVar = {"pfastxml": Ablation("PfastXML", {"alpha": 1.0})}
    citation = (
        "Jain, Prabhu, Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing "
        "Label Applications, KDD 2016"
    )

    def fit(self, data: Dataset, run: Run) -> PfastrePredictor:
        c = self.config
        trees = run.stage(forest, data)
        mu = run.stage(means, data)["mu"]
        return PfastrePredictor(
            trees["roots"],
            trees["children"],
            trees["separators"],
            trees["leaves"],
            mu,
            c.bias,
            c.gamma,
            c.alpha,
            c.candidates,
        )
