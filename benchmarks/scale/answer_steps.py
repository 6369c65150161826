"""From a stored model to figures: start-up, prediction of the test set, the sparse ranker, evaluation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import psutil

from benchmarks.scale.measuring import measured
from benchmarks.scale.place import Place, first_points
from benchmarks.scale.row import Row
from benchmarks.scale.training_steps import few_steps
from xcbench.data import Dataset
from xcbench.evaluation import evaluate
from xcbench.plugins.config import build
from xcbench.plugins.contract import Trained
from xcbench.plugins.registry import get_reranker
from xcbench.runner.context import RunContext
from xcbench.runner.model import Model, load_model

TOP = 100


def answer(place: Place, method: str) -> Iterator[Row]:
    record = few_steps(place, method)  # which is in the store
    data = place.data()
    data = place.with_few_test_points(data, place.some(len(data.test)))
    yield from start_up(method, load_model(record), data)

    model = load_model(record)
    row, predictions = measured(method, "predict", lambda: model.predict(data.test.X, TOP))
    points = len(data.test)
    yield replace(row, note=f"{1000 * row.seconds / points:.3f} ms per point, {points:,} points")

    row, evaluation = measured(method, "evaluate", lambda: evaluate(predictions, data).intervals())
    yield replace(row, note=f"{len(evaluation)} metrics with intervals")


def start_up(method: str, model: Model, data: Dataset) -> Iterator[Row]:
    """From the start of this process, imports included, to its first prediction."""
    row, _ = measured(method, "first prediction", lambda: model.predict(data.test.X[:1], TOP))
    yield replace(row, seconds=time.time() - psutil.Process().create_time(), note="from the start of the process")


def sparse_ranker(place: Place) -> Iterator[Row]:
    """The sparse ranker behind DECAF."""
    model = load_model(few_steps(place, "decaf"))
    data = place.data()
    data = replace(data, train=first_points(data.train, place.some(len(data.train))))
    ranker_type = get_reranker("sparse")
    ranker = ranker_type(build(ranker_type.config_type))
    context = RunContext(seed=0, device="cpu", unaugmented=data, cache=place.cache, owner=ranker)

    # This reranker never asks for a second training, which a loaded model could not give.
    trained = cast("Trained", model)
    row, rescorer = measured("sparse", "fit", lambda: ranker.fit(data, context, trained))
    yield replace(row, note=f"behind DECAF, on {len(data.train):,} points")
    some = first_points(data.test, TOP)
    first = model.predict(some.X, TOP)
    row, _ = measured("sparse", "rerank", lambda: rescorer.rescore(first, some.X))
    yield row
