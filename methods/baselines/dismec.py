"""DiSMEC: one linear SVM a label against all other points, small weights pruned away; liblinear by scikit-learn.

min_w |w|^2 / 2 + C sum_i max(0, 1 - s_i <w, x_i>)^2, with s_i = 1 for the label's points and -1 for all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
from xcbench.plugins import Method, Predictor, Run, Stage, StageWork, load_values, register_method, save_values
from xcbench.shortlist.sparse_topk import best_of_product
from xcbench.threads import default_threads

from ._libraries import learnable_points
from ._linear_svm import fit_labels

ALONE = 1 << 24
"""Below so many visits of entries (a second's work) starting processes costs more than it saves."""

BLOCKS = 256
"""Of labels: what is finished of them survives when a run is stopped."""


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


class DismecPredictor(Predictor):
    """W transposed, words first, so that a point's words lead straight to the labels that weigh them."""

    def __init__(self, Wt: sp.csr_array, bias: float) -> None:
        self.Wt = Wt
        self.bias = bias

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        best = best_of_product(with_constant(X, self.bias), self.Wt, k)
        # What a squared hinge says of probability: its two losses at a margin m differ by 4 m. Rerankers can read that.
        return TopK.of(best.indices, expit(4 * best.scores))

    def save(self, folder: Path) -> None:
        save_values(folder, vars(self))

    @classmethod
    def load(cls, folder: Path) -> DismecPredictor:
        return cls(**load_values(folder))


@register_method("dismec")
class Dismec(Method[DismecConfig]):
    """DiSMEC: a pruned linear SVM for each label (liblinear)"""

    config_type = DismecConfig
    predictor_type = DismecPredictor
    citation = (
        "Babbar and Schoelkopf, DiSMEC: Distributed Sparse Machines for Extreme Multi-label Classification, WSDM 2017"
    )

    def stages(self, data: Dataset, run: Run) -> Mapping[str, Stage]:
        return {"svms": run.stage("svms", lambda work: self._train(data, work), data=data, config=self.config)}

    def fit(self, data: Dataset, run: Run) -> DismecPredictor:
        return DismecPredictor(self.stages(data, run)["svms"]["Wt"], self.config.bias)

    def _train(self, data: Dataset, work: StageWork) -> dict[str, Any]:
        X, Y = learnable_points(data)
        points_of = Y.T.tocsr()
        labels = np.flatnonzero(np.diff(points_of.indptr))
        light = X.nnz * len(labels) < ALONE
        blocks = np.array_split(labels, min(len(labels), 1 if light else BLOCKS))
        files = [work.checkpoints / f"{number}-of-{len(blocks)}.npz" for number in range(len(blocks))]
        missing = [number for number, file in enumerate(files) if not file.exists()]
        # Processes rather than threads, since liblinear draws from one generator a process; X is mapped, not copied.
        pool = joblib.Parallel(1 if light else default_threads(), return_as="generator")
        jobs = (joblib.delayed(fit_labels)(X, points_of[blocks[n]], **asdict(self.config)) for n in missing)
        for number, W in zip(missing, work.progress(pool(jobs), "labels", total=len(missing)), strict=True):
            with atomic_file(files[number]) as part, part.open("wb") as stream:
                sp.save_npz(stream, W)
        W = sp.vstack([sp.load_npz(file) for file in files], format="csr")
        # Labels without points get empty rows.
        starts = np.zeros(data.label_count + 1, np.int64)
        starts[labels + 1] = np.diff(W.indptr)
        W = sp.csr_array((W.data, W.indices, np.cumsum(starts)), shape=(data.label_count, W.shape[1]))
        return {"Wt": W.T.tocsr()}
