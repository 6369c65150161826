"""Gandalf's targets, up to 1.3 million labels, and what Gandalf costs when a model predicts: nothing."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.figure import Figure, grown_bytes, seconds
from xcbench.data import load_dataset
from xcbench.data.matrices import binary_targets
from xcbench.data.synth import synthesise
from xcbench.labels.graph import conditional_probabilities
from xcbench.runner.execute import run
from xcbench.runner.model import Model, load_model
from xcbench.runner.spec import RunSpec
from xcbench.runner.store import Record
from xcbench.threads import set_threads

DELTA = 0.1
SHORT = {"surrogate.steps": 20, "extreme.steps": 20}
"""What a prediction costs does not depend on how long a model was trained."""
TOP = 100
ROUNDS = 5
GB = 1e9


def measure() -> Iterator[Figure]:
    set_threads()
    yield targets_of_wordnet()
    yield from same_prediction()
    yield targets_of_amazon()


def targets_of_wordnet() -> Figure:
    Y = load_dataset("lf-wordnet-27k").train.Y
    conditional_probabilities(Y[:10], DELTA)  # compiles
    return Figure(
        "targets of lf-wordnet-27k",
        seconds(lambda: conditional_probabilities(Y, DELTA)),
        seconds(lambda: whole_cooccurrence(Y)),
        "s",
        "the whole Y^T Y by scipy, then the threshold",
        at_least=1,
    )


def whole_cooccurrence(Y: sp.csr_array) -> sp.csr_array:
    binary = binary_targets(Y)
    C = (binary.T @ binary).tocsr()
    shares = sp.diags_array(1 / np.maximum(C.diagonal(), 1), format="csr") @ C
    shares.data[shares.data <= DELTA] = 0
    shares.eliminate_zeros()
    return sp.csr_array(shares)


def targets_of_amazon() -> Figure:
    """The issue's limits are 10 minutes and 12 GB."""
    Y = synthesise("LF-AmazonTitles-1.3M").train.Y
    cost: list[float] = []

    def work() -> None:
        cost.append(seconds(lambda: conditional_probabilities(Y, DELTA), repeat=1))

    grown = grown_bytes(work)
    inputs = Y.data.nbytes + Y.indices.nbytes + Y.indptr.nbytes
    return Figure(
        "targets of the shape of LF-AmazonTitles-1.3M",
        cost[0],
        600,
        "s",
        "the limit",
        at_least=1,
        note=f"memory grew by {grown / GB:.1f} GB beside the {inputs / GB:.1f} GB of Y",
    )


def same_prediction() -> Iterator[Figure]:
    """Two models in turn: the bytes on disk, and the time per point."""
    data = load_dataset("lf-debian-4k")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)

        def trained(*augment: str) -> Record:
            spec = RunSpec("astec", augment=augment, overrides=SHORT)
            return run(spec, data=data, store=folder, cache=folder)

        plain = trained()
        gandalf = trained("gandalf")
        yield Figure(
            "model size of Astec + Gandalf",
            gandalf.model_bytes,
            plain.model_bytes,
            "bytes",
            "Astec",
            at_least=1,
        )

        def predict_seconds(model: Model) -> float:
            start = time.perf_counter()
            model.predict(data.test.X, TOP)
            return time.perf_counter() - start

        models = [load_model(gandalf), load_model(plain)]
        costs = np.array([[predict_seconds(model) for model in models] for _ in range(ROUNDS)])
        ours, reference = 1000 * costs.min(axis=0) / len(data.test)
        yield Figure("prediction with Astec + Gandalf", ours, reference, "ms per point", "Astec", at_least=0.9)
