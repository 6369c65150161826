"""Forests of linear label trees, grown and asked by omikuji; Parabel and Bonsai are two shapes of them.

Not a method itself. omikuji draws from the operating system's randomness and takes no seed: two trainings differ.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import omikuji
import scipy.sparse as sp

from xcbench.data import Dataset, Split, TopK
from xcbench.data.writers import write_dataset
from xcbench.plugins import Method, Predictor, Run, Stage, load_values, save_values
from xcbench.threads import default_threads

from ._libraries import Files, best_of_pairs, learnable_points, read_files, write_files


@dataclass(frozen=True)
class ForestConfig:
    """omikuji's settings under its own names; the defaults are its own (0.5), which are those of Parabel."""

    n_trees: int = 3
    min_branch_size: int = 100
    max_depth: int = 20
    cluster_k: int = 2
    cluster_balanced: bool = True
    cluster_eps: float = 0.0001
    cluster_min_size: int = 2
    collapse_every_n_layers: int = 0
    centroid_threshold: float = 0.0
    linear_loss_type: Literal["hinge", "log"] = "hinge"
    linear_c: float = 1.0
    linear_eps: float = 0.1
    linear_max_iter: int = 20
    linear_weight_threshold: float = 0.1
    beam_size: int = 10

    def __post_init__(self) -> None:
        counts = (self.n_trees, self.min_branch_size, self.max_depth, self.cluster_min_size, self.beam_size)
        if min(counts) < 1 or self.cluster_k < 2 or self.linear_max_iter < 1:
            raise ValueError("trees, sizes, depth, beam and iterations are at least 1, cluster_k at least 2")
        if min(self.cluster_eps, self.linear_eps, self.linear_c) <= 0 or self.linear_weight_threshold < 0:
            raise ValueError("cluster_eps, linear_eps and linear_c are positive, linear_weight_threshold not negative")


def grow_forest(data: Dataset, config: ForestConfig) -> dict[str, Any]:
    """Train; the result is what `ForestPredictor` is made of."""
    settings = omikuji.Model.default_hyper_param()
    for name, value in asdict(config).items():
        if name == "linear_loss_type":
            value = omikuji.LossType[value.upper()].value
        if name != "beam_size":
            setattr(settings, name, value)
    X, Y = learnable_points(data)
    with tempfile.TemporaryDirectory() as scratch, _silence():
        points = Dataset("points", Split(X, Y), Split(X[:0], Y[:0]))
        write_dataset(points, Path(scratch, "points"), "combined")
        model = omikuji.Model.train_on_data(f"{scratch}/points/train.txt", settings, default_threads())
        model.save(f"{scratch}/model")
        files = read_files(Path(scratch, "model"))
    return {"files": files, "label_count": data.label_count, "beam_size": config.beam_size}


class ForestPredictor(Predictor):
    """An omikuji model, kept as the files that omikuji itself writes (JSON and CBOR)."""

    def __init__(self, files: Files, label_count: int, beam_size: int) -> None:
        self.files = files
        self.label_count = label_count
        self.beam_size = beam_size
        with tempfile.TemporaryDirectory() as folder, _silence():
            write_files(files, Path(folder))
            self.model = omikuji.Model.load(folder)
            self.model.init_prediction_thread_pool(default_threads())

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        # omikuji answers one point a call.
        ids, values, ends = X.indices.tolist(), X.data.tolist(), X.indptr.tolist()
        rows = [
            self.model.predict(list(zip(ids[a:b], values[a:b], strict=True)), self.beam_size, k)
            for a, b in itertools.pairwise(ends)
        ]
        return best_of_pairs(rows, self.label_count, k)

    def save(self, folder: Path) -> None:
        save_values(folder, {"files": self.files, "label_count": self.label_count, "beam_size": self.beam_size})

    @classmethod
    def load(cls, folder: Path) -> ForestPredictor:
        return cls(**load_values(folder))


class Forest(Method[ForestConfig]):
    """What Parabel and Bonsai have in common: everything but their shape."""

    predictor_type = ForestPredictor
    repeatable = False

    def stages(self, data: Dataset, run: Run) -> Mapping[str, Stage]:
        return {"forest": run.stage("forest", lambda _: grow_forest(data, self.config), data=data, config=self.config)}

    def fit(self, data: Dataset, run: Run) -> ForestPredictor:
        return ForestPredictor(**self.stages(data, run)["forest"])


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """omikuji writes its log to stdout, where `--json` answers, and a progress bar of megabytes to stderr."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(stream) for stream in (1, 2)]
    try:
        with Path(os.devnull).open("wb") as nowhere:
            for stream in (1, 2):
                os.dup2(nowhere.fileno(), stream)
        yield
    finally:
        for stream, original in zip((1, 2), kept, strict=True):
            os.dup2(original, stream)
            os.close(original)
