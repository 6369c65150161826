"""What the runner itself costs, and how quick its baselines are: nearest training points against scikit-learn."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from sklearn.neighbors import NearestNeighbors

from benchmarks.figure import Figure, cpu_seconds, seconds
from xcbench.data.catalog import load_dataset
from xcbench.defaults import DEFAULT_DATASET
from xcbench.runner.execute import run
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.shortlist.sparse_topk import best_of_product
from xcbench.threads import set_threads

POINTS = 1000
NEIGHBOURS = 50


def measure() -> Iterator[Figure]:
    set_threads()
    yield _nearest_neighbours()
    yield _stored_run()


def _nearest_neighbours() -> Figure:
    """The nearest training points of some test points."""
    data = load_dataset("lf-wordnet-27k")
    X = data.test.X[:POINTS]
    Xt = data.train.X.T.tocsr()
    best_of_product(X[:10], Xt, NEIGHBOURS)  # compiles

    reference = NearestNeighbors(n_neighbors=NEIGHBOURS, metric="cosine", algorithm="brute")
    reference.fit(data.train.X)

    return Figure(
        f"{NEIGHBOURS} nearest of {len(data.train)} training points for {POINTS} points",
        cpu_seconds(lambda: best_of_product(X, Xt, NEIGHBOURS)),
        cpu_seconds(lambda: reference.kneighbors(X), repeat=1),
        "s of CPU",
        "scikit-learn's brute force",
        at_least=3,
    )


def _stored_run() -> Figure:
    """A run that is in the store, against running it."""
    data = load_dataset(DEFAULT_DATASET)
    spec = RunSpec("knn")

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)

        def run_knn(overwrite: OverwriteStrategy) -> object:
            return run(spec, data=data, store=folder, cache=folder, overwrite=overwrite)

        run_knn(OverwriteStrategy.REDO)  # compiles
        return Figure(
            "a finished run asked for again",
            seconds(lambda: run_knn(OverwriteStrategy.KEEP)),
            seconds(lambda: run_knn(OverwriteStrategy.REDO)),
            "s",
            "running kNN",
            at_least=20,
        )
