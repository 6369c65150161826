"""A probabilistic label tree by napkinXC, in place of extremeText (XT), of the same author and without a package.

extremeText learns dense vectors for its tree's nodes and words; here a node is a sparse logistic regression.
"""

from __future__ import annotations

import ctypes
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import scipy.sparse as sp
from napkinxc.models import PLT

from xcbench.data import Dataset, TopK
from xcbench.plugins import (
    Method,
    Predictor,
    Run,
    SavedByArguments,
    StageWork,
    Values,
    all_but,
    register_method,
    settings_of,
    stage,
)
from xcbench.threads import default_threads

from ._libraries import Files, best_of_pairs, learnable_points, read_files, write_files


@dataclass(frozen=True)
class PltConfig:
    """napkinXC's settings under its own names; the defaults are its own (0.7)."""

    tree_type: Literal["hierarchicalKmeans", "huffman", "balancedRandom", "completeKaryRandom"] = "hierarchicalKmeans"
    arity: int = 2
    max_leaves: int = 100
    kmeans_eps: float = 0.0001
    kmeans_balanced: bool = True
    loss: Literal["log", "l2"] = "log"
    liblinear_c: float = 10.0
    liblinear_eps: float = 0.1
    weights_threshold: float = 0.1

    def __post_init__(self) -> None:
        if self.arity < 2 or self.max_leaves < 1:
            raise ValueError("arity must be at least 2, max_leaves at least 1")
        if min(self.kmeans_eps, self.liblinear_c, self.liblinear_eps) <= 0 or self.weights_threshold < 0:
            raise ValueError("kmeans_eps, liblinear_c and liblinear_eps are positive, weights_threshold not negative")


@stage(settings=all_but())
def tree(work: StageWork[PltConfig]) -> Values:
    """Grow the tree; the output is the files that napkinXC writes."""
    X, Y = learnable_points(work.data)
    with tempfile.TemporaryDirectory() as folder:
        # The seed reaches the clustering only. liblinear shuffles by C's rand(), which all threads would share.
        model = PLT(folder, seed=work.seed, threads=1, **settings_of(work.config))
        ctypes.CDLL(None).srand(work.seed)
        model.fit(sp.csr_matrix(X), sp.csr_matrix(Y))
        files = read_files(Path(folder))
    return {"files": files}


class PltPredictor(SavedByArguments, Predictor):
    """A napkinXC model, kept as the files that napkinXC itself writes."""

    def __init__(self, files: Files, label_count: int) -> None:
        self.files = files
        self.label_count = label_count
        with tempfile.TemporaryDirectory() as folder:
            write_files(files, Path(folder))
            self.model = PLT(folder, threads=default_threads())
            self.model.load()

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        if X.shape[0] == 0:
            return best_of_pairs([], self.label_count, k)
        rows = self.model.predict_proba(sp.csr_matrix(X), top_k=k)
        return best_of_pairs(rows, self.label_count, k)


@register_method("plt")
class Plt(Method[PltConfig]):
    """PLT: a probabilistic label tree of logistic regressions (napkinXC), in place of extremeText"""

    config_type = PltConfig
    predictor_type = PltPredictor
    stages = (tree,)
    citation = (
        "Wydmuch et al., A no-regret generalization of hierarchical softmax to extreme classification, NeurIPS 2018"
    )

    def fit(self, data: Dataset, run: Run) -> PltPredictor:
        files = run.stage(tree, data)["files"]
        return PltPredictor(files, data.label_count)
