"""The sparse ranker of ELIAS++ behind any method: its likeliest labels are ranked anew by the words themselves.

A dense model sees a title as D numbers; a linear classifier keeps every word. The classifier w_l of a label is trained
on the points for which the method itself lists the label, that is, on those which it may confuse, and

    score = p^t exp(-max(0, 1 - <w_l, x>)^3)

where p is the method's own score. This is the authors' code with five differences:

- x has the words alone by default. The authors put the method's vector of the point behind them, which not every method
  has; so does `features=words+embedding`.
- A point's true labels are examples whether the method lists them or not.
- Pairs of the training filter, of a point that is the label itself, are no examples.
- A label's title is one more example of it, so that a rare label learns its own name.
- t is 1 in the authors' code. Here it is smaller for methods that are too sure of themselves: their scores then fall
  less steeply from place to place, and labels that they overlooked can rise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset, Split, TopK
from xcbench.data.dataset import pairs_of_rows
from xcbench.data.matrices import binary_targets, pattern, weak_targets, with_constant
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats, Longs
from xcbench.kernels.sparse_svm import LabelWeights, fit_sparse_classifiers
from xcbench.plugins import (
    Ranking,
    Reranker,
    Rescorer,
    Run,
    SavedByArguments,
    register_reranker,
)
from xcbench.plugins.stages import LATER
from xcbench.shortlist.predictors import rank_shortlist

LABELS_LISTED = 100
"""How many labels the method lists per point, in the authors' code as in every run here."""

TENTH = 10
POINTS_AT_A_TIME = 1 << 14


@dataclass(frozen=True)
class SparseRankerConfig:
    """The authors' settings, those of PECOS' linear models; the rest was chosen on slices of train."""

    features: Literal["words", "words+embedding"] = field(default="words", metadata={LATER: "words"})
    """What a classifier sees of a point: its words alone, or the method's vector of it, too."""
    C: float = 1.0
    title: float = 0.5
    """Weight of a label's title as an example, where a training point has 1; 0 leaves titles out."""
    max_log_drop: float = 8.0
    """Where the logarithm of p falls by more than this from the first to the tenth label (mean over training points and
    titles), t brings it down to this."""
    tolerance: float = 0.1
    epochs: int = 100
    prune: float = 0.1
    """Weights nearer to zero than this are dropped."""

    def __post_init__(self) -> None:
        positive = (self.epochs, self.C, self.max_log_drop, self.tolerance)
        not_negative = (self.title, self.prune)
        if min(positive) <= 0 or min(not_negative) < 0:
            raise ValueError("epochs, C, max_log_drop and tolerance are positive, title and prune not negative")


class SparseRescorer(SavedByArguments, Rescorer):
    """W [L, V + 1], whose last column weighs a constant that every point has, and the power t of the first scores.

    With `reads_vectors` there are D columns more before the last: the weights of the method's vector of a point.
    """

    def __init__(self, W: sp.csr_array, power: float = 1.0, reads_vectors: bool = False) -> None:
        self.W = W
        self.power = power
        self.reads_vectors = reads_vectors

    def rescore(self, predictions: TopK, X: sp.csr_array, titles: Sequence[str] | None = None) -> TopK:
        margins = self.margins(predictions, X)
        scores = self.scores(predictions, margins)
        return rank_shortlist(predictions.indices, scores, predictions.k)

    def margins(self, predictions: TopK, X: sp.csr_array) -> Floats:
        """<w_l, x> of every predicted label; -inf at unused places."""
        features = self.W.shape[1] - 1
        if X.shape[1] != features:
            raise InputError(f"the sparse ranker knows {features} features, the points have {X.shape[1]}")
        return self._weights.margins(X, predictions.indices, constant=True)

    @cached_property
    def _weights(self) -> LabelWeights:
        return LabelWeights.of(self.W)

    def scores(self, predictions: TopK, margins: Floats) -> Floats:
        """p^t exp(-max(0, 1 - margin)^3); 0 at unused places."""
        used = predictions.indices >= 0
        if (predictions.scores[used] < 0).any():
            raise InputError("the sparse ranker multiplies a method's scores, and these are below 0")
        p = np.where(used, predictions.scores, np.float32(0))
        shortfall = np.maximum(0, 1 - margins)
        scores: Floats = p**self.power * np.exp(-(shortfall**3))
        return scores


@register_reranker("sparse")
class SparseRanker(Reranker[SparseRankerConfig]):
    """ELIAS++'s sparse ranker: one linear SVM per label, on the words of the points that list it"""

    config_type = SparseRankerConfig
    rescorer_type = SparseRescorer
    citation = "Gupta et al., ELIAS: End-to-End Learning to Index and Search in Large Output Spaces, NeurIPS 2022"

    def fit(self, data: Dataset, run: Run, first: Ranking) -> SparseRescorer:
        # Points that an augmentation added are no examples: titles are some anyway, with a weight of their own.
        original = run.unaugmented
        examples, power = self.examples(original, run, first)
        return self.rescorer(original, examples, power, run, first)

    @property
    def reads_vectors(self) -> bool:
        return self.config.features == "words+embedding"

    def rescorer(
        self,
        data: Dataset,
        examples: sp.csr_array,
        power: float,
        run: Run,
        first: Ranking,
    ) -> SparseRescorer:
        """The ranker of these examples, in the features that it reads."""
        X = data.train.X
        Z = data.Z
        if self.reads_vectors:
            X = first.with_vectors(X, data.train.titles)
            if Z is not None:
                Z = first.with_vectors(Z, data.label_titles)
        W = self.classifiers(X, Z, examples, run)
        return SparseRescorer(W, power, self.reads_vectors)

    def examples(self, data: Dataset, run: Run, first: Ranking) -> tuple[sp.csr_array, float]:
        """The examples of each label, and t.

        Returns a matrix [L, points] or, where titles count, [L, points + L] with the label titles behind the points.
        An entry is positive for an example and negative for a counterexample; its size is what the loss costs.
        """
        blocks = self._blocks(data)
        costs = []
        drops = []
        for points, C, rows in run.progress(blocks, "points listed", len(blocks)):
            predictions = _predict(points, rows, first)
            costs.append(_costs(points, rows, predictions, C))
            drops.append(_log_drops(predictions))
        by_point = sp.vstack(costs, format="csr")
        power = self._power(np.concatenate(drops))
        return by_point.T.tocsr(), power

    def _blocks(self, data: Dataset) -> list[tuple[Split, float, Longs]]:
        """Training points, and label titles as points of their label: some rows at a time, each with its C."""
        c = self.config
        sources = [(data.train, c.C)]
        if data.Z is not None and c.title > 0:
            one_label_each = sp.eye_array(data.label_count, dtype=np.float32, format="csr")
            titles = Split(data.Z, one_label_each, data.label_titles)
            sources.append((titles, c.title * c.C))

        blocks = []
        for points, C in sources:
            starts = range(POINTS_AT_A_TIME, len(points), POINTS_AT_A_TIME)
            parts = np.split(np.arange(len(points)), starts)
            blocks += [(points, C, rows) for rows in parts]
        return blocks

    def _power(self, log_drops: Floats) -> float:
        """t, by which the mean drop becomes `max_log_drop` where it is larger."""
        max_drop = self.config.max_log_drop
        if not len(log_drops):
            return 1.0
        return max_drop / max(max_drop, float(log_drops.mean()))

    def classifiers(
        self,
        X: sp.csr_array,
        Z: sp.csr_array | None,
        examples: sp.csr_array,
        run: Run,
    ) -> sp.csr_array:
        """W, trained on points X and label titles Z in any features; Z is left out where titles are no examples."""
        c = self.config
        texts = X
        if Z is not None and examples.shape[1] != X.shape[0]:
            texts = sp.vstack([X, Z], format="csr")
        W = fit_sparse_classifiers(
            with_constant(texts),
            examples,
            run.seed,
            tolerance=c.tolerance,
            epochs=c.epochs,
            prune=c.prune,
        )
        run.log(f"sparse ranker: {examples.nnz:,} examples, {W.nnz:,} weights")
        return W

    def estimate_memory(self, data: Dataset) -> int:
        """Every example three times (as they come, stacked, by label) and those of a block six times, in 8 bytes.

        Vectors of points, whose length is not known here, are not counted.
        """
        points = len(data.train) + data.label_count
        copies = 3 * points + 6 * min(points, POINTS_AT_A_TIME)
        return 8 * min(LABELS_LISTED, data.label_count) * copies


def _predict(points: Split, rows: Longs, first: Ranking) -> TopK:
    """The labels that the method lists for some of the points."""
    titles = None
    if points.titles is not None:
        titles = points.titles.take(rows)
    k = min(LABELS_LISTED, points.Y.shape[1])
    return first.predict(points.X[rows], k, titles)


def _costs(points: Split, rows: Longs, predictions: TopK, C: float) -> sp.csr_array:
    """C where a label is true for a point, -C where it is merely listed; points without words teach nothing.

    A label with a weak target is neither.
    """
    Y = binary_targets(points.Y[rows])
    weak = weak_targets(points.Y[rows])
    listed = predictions.to_csr(Y.shape[1])
    listed.data[:] = 1
    ignored_pairs = np.concatenate([points.filter, points.ignored])
    pairs = pairs_of_rows(ignored_pairs, rows, len(points))
    ones = np.ones(len(pairs), np.float32)
    ignored = pattern(sp.csr_array((ones, tuple(pairs.T)), shape=Y.shape) + weak)

    # Every pair that is listed, true or ignored gets an entry, of one bit for each of the three.
    costs = sp.csr_array(listed + 2 * Y + 4 * ignored)
    is_true = (costs.data.astype(np.int8) & 2) > 0
    is_false = costs.data == 1
    point_has_words = np.diff(points.X.indptr)[rows] > 0
    has_words = np.repeat(point_has_words, np.diff(costs.indptr))
    costs.data[:] = np.select([is_true, is_false], [C, -C]) * has_words
    costs.eliminate_zeros()
    return costs


def _log_drops(predictions: TopK) -> Floats:
    """How far the logarithm of the score falls from the first to the tenth label, for points that have as many."""
    best = predictions.cut(TENTH)
    has_all = (best.indices >= 0).all(axis=1)
    scores = best.scores[has_all]
    smallest = np.finfo(np.float32).tiny
    logs: Floats = np.log(np.maximum(scores, smallest))
    return logs[:, 0] - logs[:, -1]
