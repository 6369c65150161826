"""Slice: dense vectors of points, nearest label centroids by a small-world graph, one linear SVM per label.

The paper's vectors are pre-trained; ours are the leading right singular directions of the training TF-IDF, so that
nothing but the data enters. A label learns from its own points and from those whose shortlist it is on. Its score is
the classifier's probability times the cosine with its centroid (discriminative and generative, as in the paper).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn.functional import normalize

from xcbench.data import Dataset, TopK
from xcbench.data.matrices import binary_targets, weak_targets
from xcbench.kernels.arrays import Floats
from xcbench.kernels.svm import Examples, fit_classifiers
from xcbench.labels import dense_centroids
from xcbench.plugins import (
    Method,
    Predictor,
    Run,
    StageWork,
    Values,
    load_values,
    register_method,
    save_values,
    stage,
)
from xcbench.shortlist import HNSWShortlister
from xcbench.shortlist.predictors import ShortlistPredictor
from xcbench.shortlist.predictors.cascade import Ranker

from ._libraries import read_files, write_files


@dataclass(frozen=True)
class SliceConfig:
    """The paper's search settings; vectors and C were chosen on a held-out fifth of lf-debian-4k's training points."""

    dim: int = 512
    shortlist: int = 300
    M: int = 100
    ef_construction: int = 300
    ef_search: int = 300
    C: float = 1.0

    def __post_init__(self) -> None:
        sizes = (self.dim, self.shortlist, self.ef_construction, self.ef_search)
        if min(sizes) < 1 or self.M < 2 or self.C <= 0:
            raise ValueError(
                "dim, shortlist, ef_construction and ef_search are at least 1, M at least 2, C is positive"
            )


@stage(settings=["dim"])
def words(work: StageWork[SliceConfig]) -> Values:
    """V, which maps words to dense vectors."""
    return {"V": singular_words(work.data.train.X, work.config.dim, work.seed)}


def singular_words(X: sp.csr_array, dim: int, seed: int) -> Floats:
    """V [vocabulary, dim]: the right singular vectors of X with the largest singular values, by a randomised method."""
    torch.manual_seed(seed)
    coo = X.tocoo()
    places = np.stack([coo.row, coo.col]).astype(np.int64)
    matrix = torch.sparse_coo_tensor(
        torch.from_numpy(places),
        torch.from_numpy(coo.data),
        X.shape,
        check_invariants=False,
    )

    rank = min(X.shape)
    dim = min(dim, rank)
    _, _, V = torch.svd_lowrank(matrix, q=min(dim + 10, rank), niter=4)
    return np.ascontiguousarray(V[:, :dim].numpy())


def dense_vectors(X: sp.csr_array, V: Floats) -> Floats:
    """X V with rows of unit length."""
    return normalize(torch.from_numpy(X @ V), dim=1).numpy()


@stage(
    settings=["shortlist", "M", "ef_construction", "ef_search", "C"],
    data=("data", "unaugmented"),
    after=[words],
)
def ranker(work: StageWork[SliceConfig]) -> Values:
    """The index of label centroids, and the SVMs that are trained on its shortlists."""
    c = work.config
    Y = work.data.train.Y
    vectors = dense_vectors(work.data.train.X, work[words]["V"])
    original = work.unaugmented.train
    centroids = dense_centroids(original.Y, dense_vectors(original.X, work[words]["V"]))
    index = HNSWShortlister.of(
        centroids,
        M=c.M,
        ef_construction=c.ef_construction,
        ef_search=c.ef_search,
    )

    shortlists = index.shortlist(vectors, min(c.shortlist, work.data.label_count))
    examples = _examples(Y, shortlists)
    with_bias = np.pad(vectors, ((0, 0), (0, 1)), constant_values=1)
    W = fit_classifiers(with_bias, examples, c.C, work.seed)

    # The two squared hinge losses at a margin m differ by 4 m, which is the logit they imply.
    predictor = ShortlistPredictor.of(index, c.shortlist, 4 * W[:, :-1], 4 * W[:, -1])
    with tempfile.TemporaryDirectory() as folder:
        predictor.save(Path(folder, "ranker"))
        files = read_files(Path(folder))
    return {"files": files}


def _examples(Y: sp.csr_array, shortlists: TopK) -> Examples:
    """The points of each label: those that have it, and those whose shortlist has it without a weak target."""
    label_count = Y.shape[1]
    positive = binary_targets(Y).T.tocsr()
    shortlisted = shortlists.to_csr(label_count)
    shortlisted.data[:] = 1
    negative = shortlisted - shortlisted.multiply(weak_targets(Y))
    points = (negative.T + positive).tocsr()
    points.eliminate_zeros()
    points.sort_indices()
    positive.sort_indices()
    return Examples(np.arange(label_count, dtype=np.int32), points, positive)


class SlicePredictor(Predictor):
    """The map from words to vectors, and what predicts from vectors."""

    def __init__(self, words: Floats, ranker: Ranker) -> None:
        self.words = words
        self.ranker = ranker

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        vectors = dense_vectors(X, self.words)
        return self.ranker.predict(vectors, vectors, k)

    def to(self, device: str) -> SlicePredictor:
        return SlicePredictor(self.words, self.ranker.to(device))

    def save(self, folder: Path) -> None:
        save_values(folder, {"words": self.words})
        self.ranker.save(folder / "ranker")

    @classmethod
    def load(cls, folder: Path) -> SlicePredictor:
        V = load_values(folder)["words"]
        return cls(V, ShortlistPredictor.load(folder / "ranker"))


@register_method("slice")
class Slice(Method[SliceConfig]):
    """Slice: linear SVMs on dense vectors, with negatives and shortlists from nearest label centroids (faiss)"""

    config_type = SliceConfig
    predictor_type = SlicePredictor
    stages = (words, ranker)
    citation = "Jain et al., Slice: Scalable Linear Extreme Classifiers trained on 100 Million Labels, WSDM 2019"

    def fit(self, data: Dataset, run: Run) -> SlicePredictor:
        V = run.stage(words, data)["V"]
        files = run.stage(ranker, data)["files"]
        with tempfile.TemporaryDirectory() as folder:
            write_files(files, Path(folder))
            return SlicePredictor(V, ShortlistPredictor.load(Path(folder, "ranker")))
