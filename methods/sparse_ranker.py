"""The sparse ranker of ELIAS++ behind any method: its likeliest labels ranked anew by the words themselves.

A dense model sees a title as D numbers; a linear classifier keeps every word. Each label's, w_l, is trained on the
points for which the method itself lists the label, so on just those that it may take for one another, and

    score = p exp(-max(0, 1 - <w_l, x>)^3)

with the method's own score p. As in the authors' code, but for three things. x are the words alone, since not every
method has a vector of a point. A point's true labels are examples whether the method lists them or not. And a
label's title is one more example of it, which is how a rare label gets to know its own name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.bench import Ranking, Reranker, Rescorer, Run, load_values, register_reranker, save_values
from xcbench.data import Dataset, Split, TopK
from xcbench.data.dataset import pairs_of_rows
from xcbench.errors import InputError
from xcbench.labels.matrices import whole_targets, with_constant
from xcbench.shortlist import ranked
from xcbench.shortlist.sparse_svm import fit_sparse_classifiers, listed_margins

LISTED = 100
"""Labels a point, in the authors' code as in every run here."""

POINTS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class SparseRankerConfig:
    """The authors' settings, those of PECOS' linear models; what labels' titles count was chosen on slices of train."""

    C: float = 1.0
    title: float = 0.3
    """What a label's title counts beside a training point; 0 leaves titles out."""
    tolerance: float = 0.1
    epochs: int = 100
    prune: float = 0.1
    """Weights nearer to zero than this are dropped."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or min(self.C, self.tolerance) <= 0 or min(self.title, self.prune) < 0:
            raise ValueError("epochs, C and tolerance are positive, title and prune not negative")


class SparseRescorer(Rescorer):
    """W [L, V + 1]; its last column weighs a constant that every point has."""

    def __init__(self, W: sp.csr_array) -> None:
        self.W = W

    def rescore(self, predictions: TopK, X: sp.csr_array) -> TopK:
        listed = predictions.indices >= 0
        if X.shape[1] + 1 != self.W.shape[1]:
            raise InputError(f"the sparse ranker knows {self.W.shape[1] - 1} features, the points have {X.shape[1]}")
        if (predictions.scores[listed] < 0).any():
            raise InputError("the sparse ranker multiplies a method's scores, and these are below 0")
        margins = listed_margins(with_constant(X), self.W, predictions.indices)
        fits = np.exp(-(np.maximum(0, 1 - margins) ** 3))
        scores = np.multiply(predictions.scores, fits, out=np.zeros_like(fits), where=listed)
        return ranked(predictions.indices, scores, predictions.k)

    def save(self, folder: Path) -> None:
        save_values(folder, vars(self))

    @classmethod
    def load(cls, folder: Path) -> SparseRescorer:
        return cls(**load_values(folder))


@register_reranker("sparse")
class SparseRanker(Reranker[SparseRankerConfig]):
    """ELIAS++'s sparse ranker: a linear SVM a label, on the words of the points that list it"""

    config_type = SparseRankerConfig
    rescorer_type = SparseRescorer
    citation = "Gupta et al., ELIAS: End-to-End Learning to Index and Search in Large Output Spaces, NeurIPS 2022"

    def fit(self, data: Dataset, run: Run, first: Ranking) -> SparseRescorer:
        c = self.config
        points = [(data.train, c.C)]
        if data.Z is not None and c.title > 0:
            itself = sp.eye_array(data.label_count, dtype=np.float32, format="csr")
            points.append((Split(data.Z, itself, data.label_titles), c.title * c.C))
        examples = sp.vstack([costs for split, C in points for costs in _costs(split, C, first)], format="csr")
        X = with_constant(sp.vstack([split.X for split, _ in points], format="csr"))
        W = fit_sparse_classifiers(
            X, examples.T.tocsr(), run.seed, tolerance=c.tolerance, epochs=c.epochs, prune=c.prune
        )
        run.log(f"sparse ranker: {examples.nnz:,} examples, {W.nnz:,} weights")
        return SparseRescorer(W)


def _costs(points: Split, C: float, first: Ranking) -> Iterator[sp.csr_array]:
    """C where a label is true for a point, -C where it is merely listed; points without words teach nothing."""
    Y = whole_targets(points.Y)
    for start in range(0, len(points), POINTS_AT_A_TIME):
        rows = np.arange(start, min(start + POINTS_AT_A_TIME, len(points)))
        X, titles = points.X[rows], None if points.titles is None else points.titles[start : start + len(rows)]
        listed = first.predict(X, min(LISTED, Y.shape[1]), titles).to_csr(Y.shape[1])
        listed.data[:] = 1
        neither = _ones(pairs_of_rows(np.concatenate([points.filter, points.open]), rows, len(points)), Y[rows])
        kind = sp.csr_array(listed + 2 * Y[rows] + 4 * neither)
        true, false = (kind.data.astype(np.int8) & 2) > 0, kind.data == 1
        kind.data[:] = np.select([true, false], [C, -C]) * np.repeat(np.diff(X.indptr) > 0, np.diff(kind.indptr))
        kind.eliminate_zeros()
        yield kind


def _ones(pairs: npt.NDArray[np.int64], like: sp.csr_array) -> sp.csr_array:
    matrix = sp.csr_array((np.ones(len(pairs), np.float32), (pairs[:, 0], pairs[:, 1])), shape=like.shape)
    matrix.data[:] = 1  # a pair that is named twice is one pair
    return matrix
