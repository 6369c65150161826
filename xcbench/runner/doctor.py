"""Does another device compute what the CPU computes? Short trainings on both, compared.

Each method is trained on either device with the same seed, on two datasets. On toy data devices differ by rounding
only, so that labels and scores must be nearly the same. On a slice of real data rounding grows from step to step, until
a label falls into another cluster: there the figures must agree, and some labels. That training is also timed.

The tolerances were measured: two trainings whose parameters start a millionth apart stay far within them, and
parameters that are 30% off do not.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xcbench.data import Dataset, Split, TopK
from xcbench.data.catalog import load_dataset
from xcbench.defaults import DEFAULT_DATASET
from xcbench.errors import XCBenchError
from xcbench.evaluation import evaluate
from xcbench.plugins.config import leaves
from xcbench.plugins.stages import canonical
from xcbench.runner.context import RunContext
from xcbench.runner.meter import Meter
from xcbench.runner.model import Model
from xcbench.runner.resolve import ResolvedRun, resolve
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset
from xcbench.runner.training import train

METHODS = ("decaf", "eclare", "astec", "mach", "siamese")
"""The methods that our training loop trains."""


@dataclass(frozen=True)
class Tolerance:
    """How far two trials may be apart."""

    same_labels: float
    """The least share of the first five labels per point that both must predict."""
    scores: float
    """The largest mean difference of scores at the same place, relative to the spread of all scores."""
    figures: float
    """The largest difference of a figure, in points of percent."""


ON_TOY_DATA = Tolerance(same_labels=0.95, scores=0.01, figures=2.0)
ON_REAL_DATA = Tolerance(same_labels=0.3, scores=math.inf, figures=3.0)

_PLACES = 5
_TOY_EPOCHS = 3
_MAX_EPOCHS = 30
_SMALL = {"dim": 64, "hidden": 64, "min_steps": 0}
"""Settings of a trial, wherever a method has a setting of this name."""


@dataclass(frozen=True)
class Copies:
    """How often data went from this machine's memory to the device, and back."""

    to_device: int
    from_device: int


@dataclass(frozen=True)
class Trial:
    """One training on one device."""

    device: str
    epochs: int
    seconds: float
    """Of training."""
    predict_seconds: float
    peak_device_memory: int
    predictions: TopK
    figures: Mapping[str, float]
    copies: Copies | None = None
    """None where they cannot be counted."""


@dataclass(frozen=True)
class Diagnosis:
    """A method on two devices."""

    method: str
    problem: str | None
    """What differs, or why there is nothing to compare; None if the devices agree."""
    on_toy_data: tuple[Trial, Trial] | None = None
    """On the reference and on the other device."""
    on_real_data: tuple[Trial, Trial] | None = None
    """The same; what is timed."""


def doctor_dataset(train: int = 2000, test: int = 500) -> Dataset:
    """Return a slice of the embedded dataset.

    Parameters
    ----------
    train
        How many training points.
    test
        How many test points.
    """
    data = load_dataset(DEFAULT_DATASET)
    return dataclasses.replace(
        data,
        name=f"{data.name}-slice",
        train=_first(data.train, train),
        test=_first(data.test, test),
    )


def examine(method: str, reference: str, device: str, data: Dataset, minutes: float = 1.0) -> Diagnosis:
    """Train a method on two devices with the same seed, and compare.

    Parameters
    ----------
    method
        A registered name, or the path of a Python file that registers a method.
    reference
        The device that is right: `cpu`.
    device
        The device in question.
    data
        What the longer trainings are on.
    minutes
        About how long the longer trainings take together.
    """
    # Raises if there is no such method: that is the user's mistake and no finding.
    resolve(RunSpec(method), data)

    diagnosis = Diagnosis(method, None)
    try:
        trials = _both(method, reference, device, toy_dataset(), _TOY_EPOCHS, count_copies=True)
        problem = differences(*trials, ON_TOY_DATA)
        diagnosis = Diagnosis(method, problem, trials)
        if problem:
            return diagnosis

        # The first one loads and compiles what the second one, which is timed, uses.
        trials = _both(method, reference, device, data, 1)
        trials = _both(method, reference, device, data, _epochs_within(minutes, trials))
    except XCBenchError as error:
        return dataclasses.replace(diagnosis, problem=" ".join(str(error).split()))
    except Exception as error:
        reason = " ".join(str(error).split())
        return dataclasses.replace(diagnosis, problem=f"{type(error).__name__}: {reason}")
    return dataclasses.replace(diagnosis, problem=differences(*trials, ON_REAL_DATA), on_real_data=trials)


def differences(reference: Trial, other: Trial, tolerance: Tolerance) -> str | None:
    """Return how two trials differ beyond a tolerance, or None.

    Parameters
    ----------
    reference
        The trial that is right.
    other
        The trial in question.
    tolerance
        What is still the same.
    """
    if not np.isfinite(other.predictions.scores[other.predictions.indices >= 0]).all():
        return f"a score on {other.device} is not a number"

    same_labels = _same_labels(reference.predictions, other.predictions)
    if same_labels < tolerance.same_labels:
        return f"only {100 * same_labels:.1f}% of the first {_PLACES} labels are the same"

    difference = _score_difference(reference.predictions, other.predictions)
    if difference > tolerance.scores:
        return f"scores differ by {100 * difference:.1f}% of their spread"

    for name, figure in reference.figures.items():
        if abs(figure - other.figures[name]) > tolerance.figures:
            return f"{name} is {figure:.2f} on {reference.device} and {other.figures[name]:.2f} on {other.device}"
    return None


def _same_labels(reference: TopK, other: TopK) -> float:
    """Return the share of the reference's first labels that the other has among its first labels."""
    expected = reference.indices[:, :_PLACES]
    predicted = other.indices[:, :_PLACES]
    found = (expected[:, :, None] == predicted[:, None, :]).any(axis=2)
    return float(found[expected >= 0].mean())


def _score_difference(reference: TopK, other: TopK) -> float:
    """Return the mean difference of scores at the same place, relative to the spread of the reference's scores."""
    listed = (reference.indices >= 0) & (other.indices >= 0)
    expected = reference.scores[listed].astype(np.float64)
    spread = max(float(expected.std()), 1e-12)
    return float(np.abs(expected - other.scores[listed]).mean()) / spread


def _both(
    method: str,
    reference: str,
    device: str,
    data: Dataset,
    epochs: int,
    count_copies: bool = False,
) -> tuple[Trial, Trial]:
    first = _trial(method, reference, data, epochs, count_copies)
    second = _trial(method, device, data, epochs, count_copies)
    return first, second


def _epochs_within(minutes: float, trials: tuple[Trial, Trial]) -> int:
    """Return the epochs for which two trainings take about so many minutes, given what they took for one epoch."""
    seconds_per_epoch = sum(trial.seconds for trial in trials)
    epochs = int(60 * minutes / max(seconds_per_epoch, 1e-3))
    return min(max(epochs, 1), _MAX_EPOCHS)


def _trial(method: str, device: str, data: Dataset, epochs: int, count_copies: bool) -> Trial:
    """Train and predict, with a stage cache of its own."""
    resolved = resolve(RunSpec(method, preset="none", overrides=_overrides(method, data, epochs)), data)
    with tempfile.TemporaryDirectory(prefix="xcbench-doctor-") as scratch:
        context = RunContext(
            seed=0,
            device=device,
            unaugmented=data,
            cache=StageCache(Path(scratch)),
            owner=resolved.method,
        )
        with Meter() as training:
            model, copies = _train(resolved, context, count_copies)

        model = model.to(device)
        with Meter() as predicting:
            predictions = model.predict(data.test.X, _PLACES, data.test.titles)

    return Trial(
        device=device,
        epochs=epochs,
        seconds=training.seconds,
        predict_seconds=predicting.seconds,
        peak_device_memory=max(training.peak_device_memory, predicting.peak_device_memory),
        predictions=predictions,
        figures=evaluate(predictions, data, [f"P@{k}" for k in (1, 3, 5)]).values(),
        copies=copies,
    )


def _train(resolved: ResolvedRun, context: RunContext, count_copies: bool) -> tuple[Model, Copies | None]:
    """Train; returns the copies too if they are to be counted and a profiler can do it. It slows the training down."""
    if not count_copies or not context.device.startswith("cuda"):
        return train(resolved, context), None

    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        model = train(resolved, context)
    return model, copies_among(profiler.key_averages())


def copies_among(events: Iterable[Any]) -> Copies | None:
    """Return how many copies a profiler of torch saw; None if it saw nothing at all, as without the right to look.

    Parameters
    ----------
    events
        What its `key_averages` returned: a `key` and a `count` each.
    """
    counts = {event.key: int(event.count) for event in events}
    if not counts:
        return None

    to_device = sum(count for key, count in counts.items() if key.startswith("Memcpy HtoD"))
    from_device = sum(count for key, count in counts.items() if key.startswith("Memcpy DtoH"))
    return Copies(to_device, from_device)


def _overrides(method: str, data: Dataset, epochs: int) -> dict[str, Any]:
    """Return the settings that make a method small and its training short."""
    values = {**_SMALL, "epochs": epochs}
    config = canonical(resolve(RunSpec(method, preset="none"), data).method.config)
    overrides = {}
    for key in leaves(config):
        name = key.rpartition(".")[2]
        if name in values:
            overrides[key] = values[name]
    return overrides


def _first(split: Split, count: int) -> Split:
    titles = split.titles
    if titles is not None:
        titles = titles.take(np.arange(min(count, len(split))))
    return Split(split.X[:count], split.Y[:count], titles)
