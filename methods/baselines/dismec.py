"""DiSMEC: one linear SVM per label against all other points, small weights pruned away; liblinear by scikit-learn.

min_w |w|^2 / 2 + C sum_i max(0, 1 - s_i <w, x_i>)^2, with s_i = 1 for the label's points and -1 for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
import sklearn  # noqa: F401  # tells the registry what the solver needs
from scipy.special import expit

from xcbench.data import Dataset, TopK
from xcbench.data.matrices import with_constant
from xcbench.files import atomic_file
from xcbench.kernels.arrays import Longs
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
from xcbench.shortlist.sparse_topk import best_of_product
from xcbench.threads import default_threads

from ._libraries import learnable_points
from ._linear_svm import fit_labels

ONE_PROCESS_BELOW = 1 << 24
"""Visits of entries of X (about a second's work) below which starting processes costs more than it saves."""

BLOCKS = 256
"""Of labels. What is finished of them survives when a run is stopped."""


@dataclass(frozen=True)
class DismecConfig:
    """DiSMEC's published settings; the tolerance is that of liblinear for the dual problem."""

    C: float = 1.0
    prune: float = 0.01
    """Weights nearer to zero than this are dropped (Delta in the paper)."""
    bias: float = 1.0
    """The value of a constant feature that every point has; 0 leaves it out."""
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        if min(self.C, self.tolerance) <= 0 or min(self.prune, self.bias) < 0:
            raise ValueError("C and tolerance are positive, prune and bias not negative")


@stage(settings=all_but())
def svms(work: StageWork[DismecConfig]) -> Values:
    """Train the SVMs in blocks of labels; the output is W transposed."""
    X, Y = learnable_points(work.data)
    points_of_label = Y.T.tocsr()
    labels = np.flatnonzero(np.diff(points_of_label.indptr))

    processes = default_threads()
    block_count = min(len(labels), BLOCKS)
    if X.nnz * len(labels) < ONE_PROCESS_BELOW:
        processes = 1
        block_count = 1
    blocks = np.array_split(labels, block_count)

    files = [work.checkpoints / f"{number}-of-{block_count}.npz" for number in range(block_count)]
    _train_missing(work, X, points_of_label, blocks, files, processes)
    W = sp.vstack([sp.load_npz(file) for file in files], format="csr")
    W = _with_empty_rows(W, labels, work.data.label_count)
    return {"Wt": W.T.tocsr()}


def _train_missing(
    work: StageWork[DismecConfig],
    X: sp.csr_array,
    points_of_label: sp.csr_array,
    blocks: Sequence[Longs],
    files: Sequence[Path],
    processes: int,
) -> None:
    """Train the blocks whose file is not there yet, and write each as soon as it is finished."""
    missing = [number for number, file in enumerate(files) if not file.exists()]
    settings = settings_of(work.config)
    jobs = (joblib.delayed(fit_labels)(X, points_of_label[blocks[number]], **settings) for number in missing)

    # Processes rather than threads, since liblinear has one random generator per process. X is mapped, not copied.
    pool = joblib.Parallel(processes, return_as="generator")
    results: Any = work.progress(pool(jobs), "labels", total=len(missing))
    for number, W in zip(missing, results, strict=True):
        with atomic_file(files[number]) as part, part.open("wb") as stream:
            sp.save_npz(stream, W)


def _with_empty_rows(W: sp.csr_array, labels: Longs, label_count: int) -> sp.csr_array:
    """W with one row per label; labels without points get empty rows."""
    row_lengths = np.zeros(label_count + 1, np.int64)
    row_lengths[labels + 1] = np.diff(W.indptr)
    indptr = np.cumsum(row_lengths)
    return sp.csr_array((W.data, W.indices, indptr), shape=(label_count, W.shape[1]))


class DismecPredictor(SavedByArguments, Predictor):
    """W transposed, words first, so that a point's words lead straight to the labels that weigh them."""

    def __init__(self, Wt: sp.csr_array, bias: float) -> None:
        self.Wt = Wt
        self.bias = bias

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        best = best_of_product(with_constant(X, self.bias), self.Wt, k)
        # The two squared hinge losses at a margin m differ by 4 m, which is the logit they imply. Rerankers can use
        # probabilities, but not margins.
        probabilities = expit(4 * best.scores)
        return TopK.of(best.indices, probabilities)


@register_method("dismec")
class Dismec(Method[DismecConfig]):
    """DiSMEC: a pruned linear SVM for each label (liblinear)"""

    config_type = DismecConfig
    predictor_type = DismecPredictor
    stages = (svms,)
    citation = (
        "Babbar and Schoelkopf, DiSMEC: Distributed Sparse Machines for Extreme Multi-label Classification, WSDM 2017"
    )

    def fit(self, data: Dataset, run: Run) -> DismecPredictor:
        Wt = run.stage(svms, data)["Wt"]
        return DismecPredictor(Wt, self.config.bias)
