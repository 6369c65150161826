"""What the runner itself costs, and how quick its baselines are: nearest training points against scikit-learn."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from sklearn.neighbors import NearestNeighbors

from benchmarks.figure import Figure, cpu_seconds, seconds
from xcbench.data.catalog import load_dataset
from xcbench.runner.execute import run
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.shortlist.sparse_topk import best_of_product
from xcbench.threads import set_threads

POINTS, NEIGHBOURS = 1000, 50


def measure() -> Iterator[Figure]:
    set_threads()
    data = load_dataset("lf-wordnet-27k")
    X, Xt = data.test.X[:POINTS], data.train.X.T.tocsr()
    best_of_product(X[:10], Xt, NEIGHBOURS)  # compiles
    theirs = NearestNeighbors(n_neighbors=NEIGHBOURS, metric="cosine", algorithm="brute").fit(data.train.X)
    yield Figure(
        f"{NEIGHBOURS} nearest of {len(data.train)} training points for {POINTS} points",
        cpu_seconds(lambda: best_of_product(X, Xt, NEIGHBOURS)),
        cpu_seconds(lambda: theirs.kneighbors(X), repeat=1),
        "s of CPU",
        "scikit-learn's brute force",
        3,
    )
    with tempfile.TemporaryDirectory() as folder:
        small, spec = load_dataset("lf-debian-4k"), RunSpec("knn")

        def again(overwrite: OverwriteStrategy) -> object:
            return run(spec, data=small, store=Path(folder), cache=Path(folder), overwrite=overwrite)

        again(OverwriteStrategy.REDO)  # compiles
        yield Figure(
            "a finished run asked for again",
            seconds(lambda: again(OverwriteStrategy.KEEP)),
            seconds(lambda: again(OverwriteStrategy.REDO)),
            "s",
            "running kNN",
            20,
        )
