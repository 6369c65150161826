"""Thresholds of a stored run: chosen on a slice of the training points, kept beside the record.

A run trains on all training points, so none of them is new to its model. The same method is trained again without the
slice; what that training predicts for the slice is what the run would predict for new points.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xcbench.data import Dataset
from xcbench.data.holdout import training_slice
from xcbench.errors import DataError, InputError
from xcbench.evaluation import Goal, Thresholds, Truth, choose_thresholds, evaluate_decisions
from xcbench.files import atomic_folder
from xcbench.plugins.codec import load_values, save_values
from xcbench.runner.environment import check_device, choose_device
from xcbench.runner.expected import PREDICTIONS_PER_POINT
from xcbench.runner.resolve import ResolvedRun, resolve
from xcbench.runner.spec import OverwriteStrategy
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.store import Record
from xcbench.runner.training import context_of, train
from xcbench.threads import set_threads

_log = logging.getLogger(__name__)

SHARE = 0.2
"""The share of the training points that are held out."""
_FOLDER = "thresholds"


@dataclass(frozen=True)
class StoredThresholds:
    """Thresholds, and how they were chosen."""

    thresholds: Thresholds
    goal: str
    points: int
    """How many training points were held out."""
    slice_metrics: dict[str, float]
    """What the thresholds reach on the points that they were chosen on."""


def set_thresholds(
    record: Record,
    goal: str = "f1",
    per_label: bool = False,
    *,
    share: float = SHARE,
    data: Dataset | None = None,
    cache: str | Path | None = None,
    device: str = "auto",
) -> StoredThresholds:
    """Choose thresholds for a run and keep them beside its record. Earlier ones are replaced.

    Parameters
    ----------
    record
        The run.
    goal
        `f1`, or `precision=0.9`.
    per_label
        Choose a threshold for each label that is frequent enough.
    share
        The share of the training points to hold out.
    data
        The run's dataset, if it was handed over in Python.
    cache
        Where finished stages are kept; by default in XCBENCH_HOME.
    device
        `auto`, `cpu`, `cuda` or `cuda:N`.
    """
    parsed = Goal.parse(goal)
    check_device(device)

    divided = _divided(_resolved_again(record, data), share)
    set_threads()
    device = choose_device(device)
    context = context_of(divided, StageCache(cache), device, OverwriteStrategy.KEEP)
    model = train(divided, context).to(device)
    held_out = divided.data.test
    k = min(PREDICTIONS_PER_POINT, model.label_count)
    predictions = model.predict(held_out.X, k, held_out.titles)

    truth = Truth.of(divided.data)
    chosen = choose_thresholds(predictions, truth, parsed, per_label)
    reached = evaluate_decisions(predictions, truth, chosen)
    stored = StoredThresholds(chosen, str(parsed), len(held_out), reached)
    _save(stored, record)
    return stored


def load_thresholds(record: Record) -> Thresholds:
    """Return the thresholds of a run; an `InputError` if none were chosen.

    Parameters
    ----------
    record
        The run.
    """
    return read_thresholds(record).thresholds


def read_thresholds(record: Record) -> StoredThresholds:
    """Return the thresholds of a run and how they were chosen."""
    folder = record.folder / _FOLDER
    if not folder.is_dir():
        raise InputError(f"run {record.id} has no thresholds; choose them with `xcbench threshold --run {record.id}`")
    values = load_values(folder)
    try:
        return StoredThresholds(Thresholds(values["values"]), values["goal"], values["points"], values["slice_metrics"])
    except KeyError as error:
        raise DataError(f"holds no {error.args[0]}", folder) from None


def _save(stored: StoredThresholds, record: Record) -> None:
    values: dict[str, Any] = {
        "values": stored.thresholds.values,
        "goal": stored.goal,
        "points": stored.points,
        "slice_metrics": stored.slice_metrics,
    }
    with atomic_folder(record.folder / _FOLDER) as part:
        save_values(part, values)


def _resolved_again(record: Record, data: Dataset | None) -> ResolvedRun:
    if record.is_external:
        raise InputError(f"run {record.id} was added from a file: without its method it cannot be trained on a slice")
    resolved = resolve(record.spec, data)
    if resolved.data.fingerprint != record.fingerprint:
        raise InputError(f"dataset {record.dataset!r} is not what run {record.id} was made on: its content differs")
    if resolved.id != record.id:
        raise InputError(
            f"run {record.id} was made by another version of its method or settings; run it again, as {resolved.id}"
        )
    return resolved


def _divided(resolved: ResolvedRun, share: float) -> ResolvedRun:
    """Return the run on the training points alone, some of them in the place of the test points."""
    data = training_slice(resolved.data, share, resolved.spec.seed)
    _log.info("training again on %d points, with %d held out", len(data.train), len(data.test))
    return resolve(resolved.spec, data)
