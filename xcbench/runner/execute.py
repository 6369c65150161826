"""Runs: train, predict, evaluate, and keep the record; or return the record that exists."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from xcbench.data import Dataset, TopK
from xcbench.data.quality import points_without_truth
from xcbench.disk import clear_remains, folder_size, locked, readable_disk_errors
from xcbench.evaluation import Interval, evaluate
from xcbench.files import atomic_folder, write_json
from xcbench.progress import activity
from xcbench.ranks import rank
from xcbench.runner.context import PARALLEL, RunContext
from xcbench.runner.curve import can_have_curve, learning_curve
from xcbench.runner.environment import check_device, choose_device, describe_environment
from xcbench.runner.expected import PREDICTIONS_PER_POINT, refuse
from xcbench.runner.gpus import check_device_memory, readable_memory_errors
from xcbench.runner.meter import Meter
from xcbench.runner.model import Model
from xcbench.runner.naming import check_run_name, renamed
from xcbench.runner.plan import MemoryForecast, expected_disk, forecast_memory, free_memory, problems_of
from xcbench.runner.resolve import ResolvedRun, resolve
from xcbench.runner.retraining import can_retrain_in_parallel, parallel_retraining
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.store import Record, StageReport, Store
from xcbench.runner.torchrun import broadcast, not_visible, shared_cache
from xcbench.runner.training import context_of, train
from xcbench.threads import set_threads

_log = logging.getLogger(__name__)


def run(
    spec: RunSpec,
    *,
    data: Dataset | None = None,
    store: str | Path | Store | None = None,
    cache: str | Path | StageCache | None = None,
    device: str = "auto",
    overwrite: OverwriteStrategy = OverwriteStrategy.KEEP,
    name: str | None = None,
) -> Record:
    """The record of a run, from the store if it is there.

    Two processes that ask for the same run do not both compute it: the second waits and returns the first one's
    record. The processes of `torchrun` compute it together.

    Parameters
    ----------
    spec
        The run: method, dataset, ablations, settings, seed.
    data
        Takes the place of the dataset that the spec names.
    store
        Where records are kept; by default in XCBENCH_HOME.
    cache
        Where finished stages are kept; by default in XCBENCH_HOME.
    device
        `auto`, `cpu`, `cuda` or `cuda:N`.
    overwrite
        Whether a stored record is returned or made again.
    name
        What the run will be known by; a stored run is renamed.
    """
    # Before the data is loaded, which may take long.
    check_device(device)
    if name is not None:
        check_run_name(name)
    store = store if isinstance(store, Store) else Store(store)
    cache = shared_cache(cache if isinstance(cache, StageCache) else StageCache(cache))
    with activity(f"loading {spec.dataset}"):
        resolved = resolve(spec, data)
    job = _Job(resolved, store, cache, device, overwrite)
    if spec.curve != "none":
        can_have_curve(job.resolved)
    if rank() > 0:
        return _run_on_other_rank(job)
    record = _run_on_first_rank(job)
    broadcast(False)
    if name is not None and record.name != name:
        record = renamed(record, name)
    return record


def measure(predictions: TopK, data: Dataset) -> dict[str, Interval]:
    """The default metrics with their 95% intervals. They are always taken on the data as it was before augmentation."""
    evaluation = evaluate(predictions, data)
    intervals = evaluation.intervals()
    measured = {}
    for name, value in evaluation.values().items():
        interval = intervals[name]
        measured[name] = Interval(value, interval.low, interval.high)
    return measured


@dataclass(frozen=True)
class _Job:
    """A run and where it happens."""

    resolved: ResolvedRun
    store: Store
    cache: StageCache
    device: str
    overwrite: OverwriteStrategy

    def start_on_device(self) -> str:
        """Make the device this process's own, after checking that the training fits there; returns its name."""
        device = choose_device(self.device)
        check_device_memory(self.resolved.method.estimate_device_memory(self.resolved.data), device)
        return device

    def stored(self) -> Record | None:
        """The record that may be returned instead of running."""
        if self.overwrite is OverwriteStrategy.REDO:
            return None
        record = self.store.get(self.resolved.id)
        if record is None or not record.has_curve(self.resolved.spec.curve):
            return None

        by_other_code = record.environment.get("code") != self.resolved.code
        if by_other_code and self.overwrite is OverwriteStrategy.STALE:
            return None
        remark = ""
        if by_other_code:
            remark = " by other code than this (--stale runs it again)"
        _log.info("run %s: in the store, finished %s%s", record.id, record.finished, remark)
        return record


def _run_on_first_rank(job: _Job) -> Record:
    """Tell the other ranks whether there is something to compute, and compute it."""
    record = job.stored()
    if record is not None:
        return record
    folder = job.store.path(job.resolved.id)
    with readable_disk_errors(job.store.folder), locked(folder, f"run {job.resolved.id}"):
        # Another process may have finished it while this one waited for the lock.
        record = job.stored()
        if record is not None:
            return record
        broadcast(True)
        return _execute(job)


def _run_on_other_rank(job: _Job) -> Record:
    """Train along if rank 0 trains, then read the record that it wrote."""
    if broadcast():
        set_threads()
        device = job.start_on_device()
        with readable_memory_errors(device):
            train(job.resolved, context_of(job.resolved, job.cache, device, job.overwrite))
        broadcast()
    record = job.store.get(job.resolved.id)
    if record is None:
        raise not_visible(job.store.path(job.resolved.id))
    return record


@dataclass(frozen=True)
class _Outcome:
    """What a run computed, and what it cost."""

    model: Model
    predictions: TopK
    metrics: dict[str, Interval]
    training: Meter
    predicting: Meter

    @property
    def other_load(self) -> float:
        """How many cores other processes kept busy while the run trained, or while it predicted."""
        return max(self.training.other_load, self.predicting.other_load)


def _execute(job: _Job) -> Record:
    started = _now()
    run_id = job.resolved.id
    folder = job.store.path(run_id)
    clear_remains(folder)
    with _captured_log() as lines:
        # Before the meter, which reads the peak of the current GPU.
        device = job.start_on_device()
        with Meter() as whole:
            threads = set_threads()
            context = context_of(job.resolved, job.cache, device, job.overwrite)
            _log_start(job.resolved)
            in_parallel = _choose_retraining(job, context, threads)
            with readable_memory_errors(device):
                outcome = _compute(job.resolved, context, threads, in_parallel)

        stages = context.stage_reports()
        in_second_process = [stage.peak_memory for stage in stages if stage.state == PARALLEL]
        peak = whole.peak_memory + max(in_second_process, default=0)
        _log.info("run %s: %.1f s, peak %.0f MiB", run_id, whole.seconds, peak / 2**20)
        if whole.peak_device_memory:
            _log.info("run %s: peak %.0f MiB on %s", run_id, whole.peak_device_memory / 2**20, device)

    with _figures_said_if_lost(run_id, outcome), atomic_folder(folder) as part:
        outcome.predictions.save(part / "predictions.npz")
        (part / "model").mkdir()
        outcome.model.save(part / "model")
        (part / "log.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        record = Record(
            id=run_id,
            **_requested(job.resolved),
            metrics=outcome.metrics,
            stages=stages,
            train_seconds=outcome.training.seconds - context.journal.seconds + _stage_seconds(stages),
            predict_seconds=outcome.predicting.seconds,
            seconds=whole.seconds,
            peak_memory=peak,
            peak_device_memory=whole.peak_device_memory,
            model_bytes=folder_size(part / "model"),
            test_points=len(job.resolved.data.test),
            points_without_truth=points_without_truth(job.resolved.data.test),
            reported=context.journal.reported,
            environment=describe_environment(device, threads, job.resolved.code) | {"other_load": outcome.other_load},
            started=started,
            finished=_now(),
            folder=folder,
        )
        write_json(part / "record.json", record.to_json())
    return record


@contextlib.contextmanager
def _figures_said_if_lost(run_id: str, outcome: _Outcome) -> Iterator[None]:
    """Log the figures if the record that is written during the block cannot be kept, as on a full disk."""
    try:
        yield
    except Exception:
        figures = ", ".join(f"{metric} {value.value:.2f}" for metric, value in outcome.metrics.items())
        _log.warning("run %s is not kept: %s", run_id, figures)
        raise


def _choose_retraining(job: _Job, context: RunContext, threads: int) -> bool:
    """Whether the reranker's retraining runs in a second process; says how much memory the run will take.

    A run that needs more memory than there is, or more disk than is free, ends here.
    """
    resolved = job.resolved
    in_parallel = can_retrain_in_parallel(resolved, context, threads)
    forecast = forecast_memory(resolved, resolved.data, job.store, processes=2 if in_parallel else 1)
    if in_parallel and forecast.bytes > free_memory():
        in_parallel = False
        forecast = forecast_memory(resolved, resolved.data, job.store)
    _log_memory(resolved.id, forecast)
    redo = job.overwrite is OverwriteStrategy.REDO
    disk = expected_disk(resolved, job.store, job.cache, context.device, redo)
    refuse(resolved.id, problems_of(forecast, disk))
    return in_parallel


def _compute(resolved: ResolvedRun, context: RunContext, threads: int, in_parallel: bool) -> _Outcome:
    """Train, predict and evaluate."""
    with Meter() as training, parallel_retraining(resolved, context, threads, in_parallel) as retraining:
        model = train(resolved, context, retraining)

    test = resolved.data.test
    k = min(PREDICTIONS_PER_POINT, model.label_count)
    predictor = model.to(context.device)
    # The first call compiles kernels or reads them from disk, which is no part of what a point costs.
    predictor.predict(test.X[:1], k, None if test.titles is None else test.titles[:1])
    with activity(f"predicting {len(test)} test points"), Meter() as predicting:
        predictions = predictor.predict(test.X, k, test.titles)
    if resolved.spec.curve != "none":
        for name, value in learning_curve(resolved, context, resolved.spec.curve).items():
            context.report(name, value)
    with activity("evaluating"):
        metrics = measure(predictions, resolved.data)
    return _Outcome(model, predictions, metrics, training, predicting)


def _requested(resolved: ResolvedRun) -> dict[str, Any]:
    """The part of a record that says what was asked for."""
    spec = resolved.spec
    return {
        "method": resolved.method.name,
        "method_version": resolved.method.code_version,
        "dataset": resolved.data.name,
        "dataset_source": resolved.source,
        "fingerprint": resolved.data.fingerprint,
        "ablations": resolved.ablations,
        "augment": tuple(plugin.name for plugin in resolved.augmentations),
        "rerank": resolved.reranker.name if resolved.reranker else None,
        "preset": resolved.preset,
        "overrides": dict(spec.overrides),
        "seed": spec.seed,
        "ensemble": spec.ensemble,
        "config": resolved.config,
    }


def _stage_seconds(stages: tuple[StageReport, ...]) -> float:
    """Each distinct stage once, however many members share it. Stages of the second process cost only the waiting."""
    seconds = {stage.key: stage.seconds for stage in stages if stage.state != PARALLEL}
    return sum(seconds.values())


def _log_start(resolved: ResolvedRun) -> None:
    _log.info("run %s: %s on %s (seed %d)", resolved.id, _title(resolved), resolved.data.name, resolved.spec.seed)
    if not resolved.method.repeatable:
        _log.info("run %s: its library cannot be seeded, so training again gives other figures", resolved.id)


def _log_memory(run_id: str, forecast: MemoryForecast) -> None:
    """Before anything is computed. Trainings and searches, which know their need better, refuse what cannot fit."""
    _log.info("run %s: about %.0f MiB at its peak (%s)", run_id, forecast.bytes / 2**20, forecast.source)
    free = free_memory()
    if forecast.bytes > free:
        _log.warning("run %s: that may not fit, since %.0f MiB are free", run_id, free / 2**20)


def _title(resolved: ResolvedRun) -> str:
    parts = [resolved.method.name, *resolved.spec.ablations]
    parts += [f"augmented by {plugin.name}" for plugin in resolved.augmentations]
    if resolved.reranker:
        parts.append(f"reranked by {resolved.reranker.name}")
    if resolved.preset:
        parts.append(f"preset {resolved.preset}")
    if resolved.spec.ensemble > 1:
        parts.append(f"{resolved.spec.ensemble} members")
    return ", ".join(parts)


@contextlib.contextmanager
def _captured_log() -> Iterator[list[str]]:
    """Collect what xcbench logs, with the time of day."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{datetime.now():%H:%M:%S} {record.getMessage()}")

    logger = logging.getLogger("xcbench")
    handler = Collector(logging.INFO)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
