"""The sparse ranker of ELIAS++ behind any method: its likeliest labels ranked anew by the words themselves.

A dense model sees a title as D numbers; a linear classifier keeps every word. Each label's, w_l, is trained on the
points for which the method itself lists the label, so on just those that it may take for one another, and

    score = p^t exp(-max(0, 1 - <w_l, x>)^3)

with the method's own score p. As in the authors' code, but for five things. x are the words alone, since not every
method has a vector of a point. A point's true labels are examples whether the method lists them or not; pairs of the
training filter, a point that is the label itself, are none. A label's title is one more example of it, which is how a
rare label gets to know its own name. And t, 1 there, makes the scores of a method that is all too sure of itself fall
less steeply from place to place: what it has overlooked can then rise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, Split, TopK
from xcbench.data.dataset import pairs_of_rows
from xcbench.data.matrices import binary_targets, pattern, with_constant
from xcbench.errors import InputError
from xcbench.kernels.sparse_svm import LabelWeights, fit_sparse_classifiers
from xcbench.plugins import Ranking, Reranker, Rescorer, Run, load_values, register_reranker, save_values
from xcbench.shortlist.predictors import ranked

Floats = npt.NDArray[np.float32]

LISTED = 100
"""Labels a point, in the authors' code as in every run here."""

TENTH = 10
POINTS_AT_A_TIME = 1 << 14


@dataclass(frozen=True)
class SparseRankerConfig:
    """The authors' settings, those of PECOS' linear models; `title` and `max_log_drop` were chosen on train slices."""

    C: float = 1.0
    title: float = 0.5
    """What a label's title counts beside a training point; 0 leaves titles out."""
    max_log_drop: float = 8.0
    """Where the logarithm of p falls by more than this from the first to the tenth label (mean over training points and
    titles), t brings it down to this."""
    tolerance: float = 0.1
    epochs: int = 100
    prune: float = 0.1
    """Weights nearer to zero than this are dropped."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or min(self.C, self.max_log_drop, self.tolerance) <= 0 or min(self.title, self.prune) < 0:
            raise ValueError("epochs, C, max_log_drop and tolerance are positive, title and prune not negative")


class SparseRescorer(Rescorer):
    """W [L, V + 1], whose last column weighs a constant that every point has, and the power t of the first scores."""

    def __init__(self, W: sp.csr_array, power: float = 1.0) -> None:
        self.W = W
        self.power = power

    def rescore(self, predictions: TopK, X: sp.csr_array, titles: Sequence[str] | None = None) -> TopK:
        scores = self.scores(predictions, self.margins(predictions, X))
        return ranked(predictions.indices, scores, predictions.k)

    def margins(self, listed: TopK, X: sp.csr_array) -> Floats:
        """<w_l, x> of every label listed; -inf where there is none."""
        if X.shape[1] + 1 != self.W.shape[1]:
            raise InputError(f"the sparse ranker knows {self.W.shape[1] - 1} features, the points have {X.shape[1]}")
        return self._weights.margins(X, listed.indices, constant=True)

    @cached_property
    def _weights(self) -> LabelWeights:
        return LabelWeights.of(self.W)

    def scores(self, listed: TopK, margins: Floats) -> Floats:
        """The formula; 0 where there is no label."""
        there = listed.indices >= 0
        if (listed.scores[there] < 0).any():
            raise InputError("the sparse ranker multiplies a method's scores, and these are below 0")
        own = np.where(there, listed.scores, np.float32(0)) ** self.power
        scores: Floats = own * np.exp(-(np.maximum(0, 1 - margins) ** 3))
        return scores

    def save(self, folder: Path) -> None:
        save_values(folder, {"W": self.W, "power": self.power})

    @classmethod
    def load(cls, folder: Path) -> SparseRescorer:
        return cls(**load_values(folder))


@register_reranker("sparse")
class SparseRanker(Reranker[SparseRankerConfig]):
    """ELIAS++'s sparse ranker: a linear SVM a label, on the words of the points that list it"""

    config_type = SparseRankerConfig
    rescorer_type = SparseRescorer
    citation = "Gupta et al., ELIAS: End-to-End Learning to Index and Search in Large Output Spaces, NeurIPS 2022"

    def estimate_memory(self, data: Dataset) -> int:
        """Of 8 bytes, every example thrice (as they come, put together, by label), and those of a block six times."""
        points = len(data.train) + data.label_count
        return 8 * min(LISTED, data.label_count) * (3 * points + 6 * min(points, POINTS_AT_A_TIME))

    def fit(self, data: Dataset, run: Run, first: Ranking) -> SparseRescorer:
        examples, power = self.examples(data, run, first)
        return SparseRescorer(self.classifiers(data.train.X, data.Z, examples, run), power)

    def examples(self, data: Dataset, run: Run, first: Ranking) -> tuple[sp.csr_array, float]:
        """What each label is taught by [L, points, and behind them the label titles if these count]; and t."""
        c = self.config
        sources = [(data.train, c.C)]
        if data.Z is not None and c.title > 0:
            itself = sp.eye_array(data.label_count, dtype=np.float32, format="csr")
            sources.append((Split(data.Z, itself, data.label_titles), c.title * c.C))
        blocks = [(points, C, rows) for points, C in sources for rows in _blocks(len(points))]
        costs, falls = [], []
        for points, C, rows in run.progress(blocks, "points listed", len(blocks)):
            listed = _listed(points, rows, first)
            costs.append(_costs(points, rows, listed, C))
            falls.append(_falls(listed))
        steep = np.concatenate(falls)
        power = c.max_log_drop / max(c.max_log_drop, float(steep.mean()) if len(steep) else 0.0)
        return sp.vstack(costs, format="csr").T.tocsr(), power

    def classifiers(
        self, X: sp.csr_array, Z: sp.csr_array | None, examples: sp.csr_array, run: Run
    ) -> sp.csr_array:  # fmt: skip
        """W, learnt on points and label titles, whatever their form; titles are left out if they are no examples."""
        c, texts = self.config, [X] if Z is None or examples.shape[1] == X.shape[0] else [X, Z]
        X = with_constant(sp.vstack(texts, format="csr"))
        W = fit_sparse_classifiers(X, examples, run.seed, tolerance=c.tolerance, epochs=c.epochs, prune=c.prune)
        run.log(f"sparse ranker: {examples.nnz:,} examples, {W.nnz:,} weights")
        return W


def _blocks(points: int) -> list[npt.NDArray[np.int64]]:
    return np.split(np.arange(points), range(POINTS_AT_A_TIME, points, POINTS_AT_A_TIME))


def _listed(points: Split, rows: npt.NDArray[np.int64], first: Ranking) -> TopK:
    titles = None if points.titles is None else points.titles.take(rows)
    return first.predict(points.X[rows], min(LISTED, points.Y.shape[1]), titles)


def _costs(points: Split, rows: npt.NDArray[np.int64], listed: TopK, C: float) -> sp.csr_array:
    """C where a label is true for a point, -C where it is merely listed; points without words teach nothing."""
    Y, names = binary_targets(points.Y[rows]), listed.to_csr(points.Y.shape[1])
    names.data[:] = 1
    pairs = pairs_of_rows(np.concatenate([points.filter, points.ignored]), rows, len(points))
    neither = pattern(sp.csr_array((np.ones(len(pairs), np.float32), tuple(pairs.T)), shape=Y.shape))
    costs = sp.csr_array(names + 2 * Y + 4 * neither)
    true, false = (costs.data.astype(np.int8) & 2) > 0, costs.data == 1
    has_words = np.repeat(np.diff(points.X.indptr)[rows] > 0, np.diff(costs.indptr))
    costs.data[:] = np.select([true, false], [C, -C]) * has_words
    costs.eliminate_zeros()
    return costs


def _falls(listed: TopK) -> npt.NDArray[np.float32]:
    """How far the logarithm of the score falls from the first to the tenth label, where there are as many."""
    first = listed.cut(TENTH)
    scores = first.scores[(first.indices >= 0).all(axis=1)]
    logs: npt.NDArray[np.float32] = np.log(np.maximum(scores, np.finfo(np.float32).tiny))
    return logs[:, 0] - logs[:, -1]
