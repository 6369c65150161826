"""Learning curves: how good a method is after a part of its training.

The last stage of the method is trained again, several times, each time stopped after another number of steps, and what
it has learnt so far predicts. The stages before it are those of the run.
"""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from xcbench.data import Dataset
from xcbench.data.holdout import hold_out
from xcbench.errors import InputError
from xcbench.evaluation import evaluate
from xcbench.plugins.stages import Values, derive_seed, seed_generators
from xcbench.runner.context import Journal, RunContext
from xcbench.runner.expected import PREDICTIONS_PER_POINT
from xcbench.runner.model import Model
from xcbench.runner.resolve import ResolvedRun
from xcbench.runner.spec import Curve
from xcbench.runner.training import augmented, train_on
from xcbench.train import stopping_early

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""Of the steps of the last stage, before all of them. Together they take almost as long as the whole training."""

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
HELD_OUT = 0.1
"""The share of training points that a curve on a slice is measured on."""

Reported: TypeAlias = dict[str, Any]

_log = logging.getLogger(__name__)


def can_have_curve(resolved: ResolvedRun) -> None:
    """Raise an `InputError` where a method has no stage whose training could be stopped."""
    if not resolved.method.stages:
        raise InputError(f"--curve needs a method that trains in steps, and {resolved.method.name} has no stages")


def learning_curve(resolved: ResolvedRun, context: RunContext, kind: Curve) -> Reported:
    """Return the metrics by steps, as they are kept in a record: the kind of curve, and one curve per metric.

    Parameters
    ----------
    resolved
        The run. Of an ensemble, the curve is that of the first member; a reranker has no part in it.
    context
        The context in which it was trained.
    kind
        `test`, or `slice`: the method is then trained anew without a tenth of its training points, which are predicted.
    """
    if kind == "test":
        data = augmented(resolved, context)
        return _curve(resolved, data, context, kind)

    part = _without_slice(resolved)
    train_on(part, resolved, context)
    with context.on_other_data(part) as other:
        on_part = dataclasses.replace(resolved, data=part)
        return _curve(on_part, augmented(on_part, other), other, kind)


def _without_slice(resolved: ResolvedRun) -> Dataset:
    """The data with some of its training points as test points."""
    data = resolved.data
    generator = np.random.default_rng(derive_seed(resolved.spec.seed, "curve"))
    held_out = generator.permutation(len(data.train))[: max(1, round(HELD_OUT * len(data.train)))]
    return hold_out(data, np.sort(held_out))


def _curve(resolved: ResolvedRun, data: Dataset, context: RunContext, kind: Curve) -> Reported:
    steps = []
    values: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for model, done in _models(resolved, data, context.member(0)):
        found = _measured(model, resolved.data, context.device)
        _log.info("learning curve: P@1 %.2f after %d steps", found["P@1"], done)
        steps.append(done)
        for metric in METRICS:
            values[metric].append(found[metric])

    curves: Reported = {f"{metric} by steps": {"x": steps, "y": values[metric]} for metric in METRICS}
    return {"curve": kind, **curves}


def _models(resolved: ResolvedRun, data: Dataset, context: RunContext) -> Iterator[tuple[Model, int]]:
    """The models after a part of the last stage's training and after all of it, each with its number of steps."""
    last = resolved.method.stages[-1]
    for share in SHARES:
        with tempfile.TemporaryDirectory() as folder, stopping_early(share) as stop:
            key, values = context.compute_apart(last, data, Path(folder))
        if not stop.steps:
            name = resolved.method.name
            raise InputError(f"--curve needs a method that trains in steps, and the last stage of {name} does not")
        yield _model(resolved, data, context, {(context.number, key): values}), sum(stop.steps)
    yield _model(resolved, data, context, {}), sum(stop.whole)


def _model(
    resolved: ResolvedRun,
    data: Dataset,
    context: RunContext,
    outputs: Mapping[tuple[int, str], Values],
) -> Model:
    """The model that the method makes of its stages, some of whose outputs are given."""
    journal = Journal(outputs={**context.journal.outputs, **outputs})
    seed_generators(context.seed)
    method = type(resolved.method)(resolved.method.config)
    predictor = method.fit(data, dataclasses.replace(context, journal=journal))
    original = resolved.data
    return Model(
        members=(predictor,),
        label_count=original.label_count,
        encoder=original.encoder,
        label_titles=original.label_titles,
    )


def _measured(model: Model, data: Dataset, device: str) -> Mapping[str, float]:
    k = min(PREDICTIONS_PER_POINT, model.label_count)
    predictions = model.to(device).predict(data.test.X, k, data.test.titles)
    return evaluate(predictions, data).values()
