"""Forests of linear label trees by omikuji. Not a method itself: Parabel and Bonsai are two shapes of such forests.

omikuji draws from the operating system's randomness and takes no seed: two trainings differ.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import omikuji
import scipy.sparse as sp

from xcbench.data import Dataset, Split, TopK
from xcbench.data.writers import write_dataset
from xcbench.plugins import (
    Method,
    Predictor,
    Run,
    SavedByArguments,
    StageWork,
    Values,
    all_but,
    settings_of,
    stage,
)
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
        counts = (
            self.n_trees,
            self.min_branch_size,
            self.max_depth,
            self.cluster_min_size,
            self.linear_max_iter,
            self.beam_size,
        )
        if min(counts) < 1 or self.cluster_k < 2:
            raise ValueError("trees, sizes, depth, beam and iterations are at least 1, cluster_k at least 2")
        positive = (self.cluster_eps, self.linear_eps, self.linear_c)
        if min(positive) <= 0 or self.linear_weight_threshold < 0:
            raise ValueError("cluster_eps, linear_eps and linear_c are positive, linear_weight_threshold not negative")


@stage(settings=all_but("beam_size"))
def forest(work: StageWork[ForestConfig]) -> Values:
    """Grow the trees; the output is the files that omikuji writes."""
    settings = omikuji.Model.default_hyper_param()
    for name, value in settings_of(work.config).items():
        if name == "linear_loss_type":
            value = omikuji.LossType[value.upper()].value
        setattr(settings, name, value)

    X, Y = learnable_points(work.data)
    with tempfile.TemporaryDirectory() as scratch, _silence():
        points = Dataset("points", Split(X, Y), Split(X[:0], Y[:0]))
        write_dataset(points, Path(scratch, "points"), "combined")
        model = omikuji.Model.train_on_data(f"{scratch}/points/train.txt", settings, default_threads())
        model.save(f"{scratch}/model")
        files = read_files(Path(scratch, "model"))
    return {"files": files}


class ForestPredictor(SavedByArguments, Predictor):
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
        # omikuji predicts one point per call, and wants plain numbers.
        words = X.indices.tolist()
        values = X.data.tolist()
        rows = []
        for start, end in itertools.pairwise(X.indptr.tolist()):
            features = list(zip(words[start:end], values[start:end], strict=True))
            rows.append(self.model.predict(features, self.beam_size, k))
        return best_of_pairs(rows, self.label_count, k)


class Forest(Method[ForestConfig]):
    """What Parabel and Bonsai have in common: everything but the shape of their trees."""

    predictor_type = ForestPredictor
    stages = (forest,)
    repeatable = False

    def fit(self, data: Dataset, run: Run) -> ForestPredictor:
        files = run.stage(forest, data)["files"]
        return ForestPredictor(files, data.label_count, self.config.beam_size)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Discard what omikuji writes: a log to stdout, where `--json` prints, and megabytes of progress bar to stderr."""
    sys.stdout.flush()
    sys.stderr.flush()
    streams = (1, 2)
    originals = [os.dup(stream) for stream in streams]
    try:
        with Path(os.devnull).open("wb") as nowhere:
            for stream in streams:
                os.dup2(nowhere.fileno(), stream)
        yield
    finally:
        for stream, original in zip(streams, originals, strict=True):
            os.dup2(original, stream)
            os.close(original)
