"""Slice: dense vectors of points, nearest label centroids by a small-world graph, a linear SVM a label on those found.

The paper's vectors are pre-trained; ours are the leading right singular directions of the training TF-IDF, so that
nothing but the data enters. A label learns from its own points and from those whose shortlist it is on. Its score is
the classifier's probability times the cosine with its centroid (discriminative and generative, as in the paper).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from xcbench.data import Dataset, TopK
from xcbench.kernels.svm import Examples, fit_classifiers
from xcbench.labels import dense_centroids
from xcbench.plugins import Method, Predictor, Run, Stage, StageWork, load_values, register_method, save_values
from xcbench.shortlist import HNSWShortlister
from xcbench.shortlist.predictors import ShortlistPredictor

from ._libraries import read_files, write_files

Floats = npt.NDArray[np.float32]


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
        if min(self.dim, self.shortlist, self.ef_construction, self.ef_search) < 1 or self.M < 2 or self.C <= 0:
            raise ValueError(
                "dim, shortlist, ef_construction and ef_search are at least 1, M at least 2, C is positive"
            )


class SlicePredictor(Predictor):
    """The map from words to vectors, and what predicts from vectors."""

    def __init__(self, words: Floats, ranker: ShortlistPredictor) -> None:
        self.words = words
        self.ranker = ranker

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        vectors = dense_vectors(X, self.words)
        return self.ranker.predict(vectors, vectors, k)

    def save(self, folder: Path) -> None:
        save_values(folder, {"words": self.words})
        self.ranker.save(folder / "ranker")

    @classmethod
    def load(cls, folder: Path) -> SlicePredictor:
        return cls(load_values(folder)["words"], ShortlistPredictor.load(folder / "ranker"))


def dense_vectors(X: sp.csr_array, words: Floats) -> Floats:
    """X V with rows of unit length."""
    return torch.nn.functional.normalize(torch.from_numpy(X @ words), dim=1).numpy()


def singular_words(X: sp.csr_array, dim: int, seed: int) -> Floats:
    """V [vocabulary, dim]: the right singular vectors of X with the largest singular values, by a randomised method."""
    torch.manual_seed(seed)
    coo = X.tocoo()
    places = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    entries = torch.sparse_coo_tensor(places, torch.from_numpy(coo.data), X.shape, check_invariants=False)
    dim = min(dim, *X.shape)
    V = torch.svd_lowrank(entries, q=min(dim + 10, *X.shape), niter=4)[2]
    return np.ascontiguousarray(V[:, :dim].numpy())


@register_method("slice")
class Slice(Method[SliceConfig]):
    """Slice: linear SVMs on dense vectors, with negatives and shortlists from nearest label centroids (faiss)"""

    config_type = SliceConfig
    predictor_type = SlicePredictor
    citation = "Jain et al., Slice: Scalable Linear Extreme Classifiers trained on 100 Million Labels, WSDM 2019"

    def stages(self, data: Dataset, run: Run) -> Mapping[str, Stage]:
        c, X = self.config, data.train.X
        words = run.stage("words", lambda work: {"V": singular_words(X, c.dim, work.seed)}, data=data, config=c.dim)
        ranker = run.stage(
            "ranker", lambda work: self._train(data, words["V"], work), data=data, config=c, after=[words]
        )
        return {"words": words, "ranker": ranker}

    def fit(self, data: Dataset, run: Run) -> SlicePredictor:
        stages = self.stages(data, run)
        with tempfile.TemporaryDirectory() as folder:
            write_files(stages["ranker"]["files"], Path(folder))
            return SlicePredictor(stages["words"]["V"], ShortlistPredictor.load(Path(folder, "ranker")))

    def _train(self, data: Dataset, words: Floats, work: StageWork) -> dict[str, Any]:
        c, positive = self.config, data.train.Y.T.tocsr()
        vectors = dense_vectors(data.train.X, words)
        centroids = dense_centroids(data.train.Y, vectors)
        index = HNSWShortlister.of(centroids, M=c.M, ef_construction=c.ef_construction, ef_search=c.ef_search)
        listed = index.shortlist(vectors, min(c.shortlist, data.label_count)).to_csr(data.label_count)
        points = (abs(listed.T) + positive).tocsr()
        points.sort_indices()
        positive.sort_indices()
        examples = Examples(np.arange(data.label_count, dtype=np.int32), points, positive)
        W = fit_classifiers(np.pad(vectors, ((0, 0), (0, 1)), constant_values=1), examples, c.C, work.seed)
        # The two squared hinge losses at a margin m differ by 4 m, which so is the logit that they imply.
        ranker = ShortlistPredictor.of(index, c.shortlist, 4 * W[:, :-1], 4 * W[:, -1])
        with tempfile.TemporaryDirectory() as folder:
            ranker.save(Path(folder, "ranker"))
            return {"files": read_files(Path(folder))}
