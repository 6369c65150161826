"""Runs: train, predict, evaluate, and keep the record; or return the record that exists."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil
import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.disk import clear_remains, folder_size, locked, readable_disk_errors
from xcbench.evaluation import evaluate
from xcbench.files import atomic_folder, write_json
from xcbench.plugins.stages import Stage, seed_generators
from xcbench.ranks import rank
from xcbench.runner.context import PARALLEL, RunContext
from xcbench.runner.environment import choose_device, code_digest, describe_environment
from xcbench.runner.meter import Meter
from xcbench.runner.model import Model
from xcbench.runner.resolve import ResolvedRun, resolve
from xcbench.runner.retraining import ParallelRetraining, can_retrain_in_parallel, parallel_retraining
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.runner.stage_cache import StageCache, StageNote
from xcbench.runner.store import Measure, Record, StageReport, Store
from xcbench.runner.torchrun import broadcast, not_visible, shared_cache
from xcbench.threads import default_threads, set_threads

DEPTH = 100
"""How many labels a point are kept: filters and new metrics are applied afterwards and need some room."""

_log = logging.getLogger(__name__)


def run(
    spec: RunSpec,
    *,
    data: Dataset | None = None,
    store: str | Path | Store | None = None,
    cache: str | Path | StageCache | None = None,
    device: str = "auto",
    overwrite: OverwriteStrategy = OverwriteStrategy.KEEP,
) -> Record:
    """The record of a run, from the store if it is there.

    `data` stands in for the dataset that the spec names. Two processes that ask for the same run do not both
    compute it: the second waits and returns the first one's record. The processes of `torchrun` compute it together.
    """
    store = store if isinstance(store, Store) else Store(store)
    cache = shared_cache(cache if isinstance(cache, StageCache) else StageCache(cache))
    resolved = resolve(spec, data)
    if rank() > 0:
        return _follow(resolved, store, cache, device, overwrite)
    record = _lead(resolved, store, cache, device, overwrite)
    broadcast(False)
    return record


def _lead(resolved: ResolvedRun, store: Store, cache: StageCache, device: str, overwrite: OverwriteStrategy) -> Record:
    if overwrite is OverwriteStrategy.KEEP and (record := _stored(resolved, store)):
        return record
    folder = store.path(resolved.id)
    with readable_disk_errors(store.folder), locked(folder, f"run {resolved.id}"):
        if overwrite is OverwriteStrategy.KEEP and (record := _stored(resolved, store)):
            return record
        broadcast(True)
        return _execute(resolved, store, cache, device, overwrite)


def _follow(
    resolved: ResolvedRun, store: Store, cache: StageCache, device: str, overwrite: OverwriteStrategy
) -> Record:
    """What the processes beside the first do: train along if it trains, then read the record that it wrote."""
    if broadcast():
        set_threads()
        train(resolved, _context(resolved, cache, choose_device(device), overwrite))
        broadcast()
    record = store.get(resolved.id)
    if record is None:
        raise not_visible(store.path(resolved.id))
    return record


def _stored(resolved: ResolvedRun, store: Store) -> Record | None:
    record = store.get(resolved.id)
    if record is not None:
        other = (
            "" if record.environment.get("code") == code_digest() else " by other code than this (--force redoes it)"
        )
        _log.info("run %s: in the store, finished %s%s", record.id, record.finished, other)
    return record


def _execute(
    resolved: ResolvedRun, store: Store, cache: StageCache, device: str, overwrite: OverwriteStrategy
) -> Record:
    started, name, folder = _now(), resolved.id, store.path(resolved.id)
    clear_remains(folder)
    with _captured_log() as lines:
        with Meter() as whole:
            device, threads = choose_device(device), set_threads()
            _log.info("run %s: %s on %s (seed %d)", name, _title(resolved), resolved.data.name, resolved.spec.seed)
            if not resolved.method.repeatable:
                _log.info("run %s: its library cannot be seeded, so training again gives other figures", name)
            context = _context(resolved, cache, device, overwrite)
            beside = can_retrain_in_parallel(resolved, context, threads)
            expected, source = _estimate_memory(resolved, resolved.data, store, 1 + beside)
            if beside and expected > _free_memory():
                beside, (expected, source) = False, _estimate_memory(resolved, resolved.data, store)
            _say_memory(name, expected, source)
            outcome = _perform(resolved, context, threads, beside)
        # Before anything is written: should the disk be full, the figures have at least been said.
        figures = ", ".join(f"{metric} {measure.value:.2f}" for metric, measure in outcome.metrics.items())
        _log.info("run %s: %s", name, figures)
        stages = context.stage_reports()
        peak = whole.peak_memory + max((stage.peak_memory for stage in stages if stage.state == PARALLEL), default=0)
        _log.info("run %s: %.1f s, peak %.0f MiB", name, whole.seconds, peak / 2**20)
    with atomic_folder(folder) as part:
        outcome.predictions.save(part / "predictions.npz")
        (part / "model").mkdir()
        outcome.model.save(part / "model")
        (part / "log.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        record = Record(
            id=name,
            **_asked(resolved),
            metrics=outcome.metrics,
            stages=stages,
            train_seconds=outcome.training.seconds - context.journal.seconds + _stage_seconds(stages),
            predict_seconds=outcome.predicting.seconds,
            seconds=whole.seconds,
            peak_memory=peak,
            model_bytes=folder_size(part / "model"),
            test_points=len(resolved.data.test),
            reported=context.journal.reported,
            environment=describe_environment(device, threads),
            started=started,
            finished=_now(),
            folder=folder,
        )
        write_json(part / "record.json", record.to_json())
    return record


@dataclass(frozen=True)
class _Outcome:
    model: Model
    predictions: TopK
    metrics: dict[str, Measure]
    training: Meter
    predicting: Meter


def _perform(resolved: ResolvedRun, context: RunContext, threads: int, beside: bool) -> _Outcome:
    with Meter() as training, parallel_retraining(resolved, context, threads, beside) as second:
        model = train(resolved, context, second)
    test, depth = resolved.data.test, min(DEPTH, model.label_count)
    # The first call compiles kernels or reads them from disk, which is no part of what a point costs.
    model.predict(test.X[:1], depth, None if test.titles is None else test.titles[:1])
    with Meter() as predicting:
        predictions = model.predict(test.X, depth, test.titles)
    return _Outcome(model, predictions, measure(predictions, resolved.data), training, predicting)


def train(resolved: ResolvedRun, context: RunContext, second: ParallelRetraining | None = None) -> Model:
    """Augment, fit every member, and put together what predicts; `second` is what trains again beside this."""
    data = augmented(resolved, context)
    model, reranker = _fitted(resolved, data, context), resolved.reranker
    if reranker is None:
        return model
    first = _TrainedMethod(model, resolved, context, second)
    return dataclasses.replace(model, rescorer=reranker.fit(data, context.owned_by(reranker), first))


def _fitted(resolved: ResolvedRun, data: Dataset, context: RunContext) -> Model:
    members = []
    for number in range(resolved.spec.ensemble):
        if resolved.spec.ensemble > 1:
            _log.info("member %d of %d", number + 1, resolved.spec.ensemble)
        member = context.member(number)
        seed_generators(member.seed)
        # A new object each: what a method keeps on itself must not leak from one member into the next.
        members.append(type(resolved.method)(resolved.method.config).fit(data, member))
    original = resolved.data
    return Model(tuple(members), original.label_count, None, original.encoder, original.label_titles)


@dataclass(frozen=True)
class _TrainedMethod:
    """What a reranker is given; see `xcbench.plugins.contract.Trained`."""

    model: Model
    resolved: ResolvedRun
    context: RunContext
    second: ParallelRetraining | None

    def predict(self, X: sp.csr_array, k: int, titles: Sequence[str] | None = None) -> TopK:
        return self.model.predict(X, k, titles)

    def retrain(self, data: Dataset) -> tuple[Dataset, Model]:
        if self.second is not None:
            self.second.wait()
        return _again(self.resolved, self.context, data)


def _again(resolved: ResolvedRun, context: RunContext, data: Dataset) -> tuple[Dataset, Model]:
    resolved = dataclasses.replace(resolved, data=data)
    with context.elsewhere(data) as there:
        seen = augmented(resolved, there)
        return seen, _fitted(resolved, seen, there)


def retrain(
    spec: RunSpec, cache: Path, device: str = "auto", overwrite: OverwriteStrategy = OverwriteStrategy.KEEP
) -> None:
    """Train only what the reranker of a run will ask for; its stages are then in the cache. See `beside`."""
    set_threads()
    resolved = resolve(spec)
    context = _context(resolved, StageCache(cache), choose_device(device), overwrite)
    if resolved.reranker:
        for data in resolved.reranker.retraining_data(context.owned_by(resolved.reranker)):
            _again(resolved, context, data)


def augmented(resolved: ResolvedRun, context: RunContext) -> Dataset:
    """The data that the method will see."""
    data = resolved.data
    for augmentation in resolved.augmentations:
        data = augmentation.apply(data, context.owned_by(augmentation))
        _log.info("augmentation %s: %d training points", augmentation.name, len(data.train))
    return data


def measure(predictions: TopK, data: Dataset) -> dict[str, Measure]:
    """The default metrics with their 95% intervals. They are always taken on the data as it was before augmentation."""
    evaluation = evaluate(predictions, data)
    intervals = evaluation.intervals()
    return {
        name: Measure(value, intervals[name].low, intervals[name].high) for name, value in evaluation.values().items()
    }


@dataclass(frozen=True)
class Plan:
    """What a run would do."""

    resolved: ResolvedRun
    record: Record | None
    """The stored record, if there is one: the run would return it."""
    stages: tuple[tuple[int, Stage, StageNote | None], ...]
    """Member, stage and, if it is cached, its note."""
    memory: int
    memory_source: str
    """Where the estimate comes from."""


def plan(
    spec: RunSpec,
    *,
    data: Dataset | None = None,
    store: str | Path | Store | None = None,
    cache: str | Path | StageCache | None = None,
    device: str = "auto",
) -> Plan:
    """What `run` would do, without training. (Augmentations are applied: stages depend on what they give.)"""
    store = store if isinstance(store, Store) else Store(store)
    cache = shared_cache(cache if isinstance(cache, StageCache) else StageCache(cache))
    resolved = resolve(spec, data)
    context = _context(resolved, cache, choose_device(device), OverwriteStrategy.KEEP)
    seen = _declared(resolved, context)
    if resolved.reranker:
        own = context.owned_by(resolved.reranker)
        resolved.reranker.stages(seen, own)
        for data in resolved.reranker.retraining_data(own):
            with context.elsewhere(data) as there:
                _declared(dataclasses.replace(resolved, data=data), there)
    declared = tuple(
        (number, stage, cache.note(owner, stage.name, stage.key))
        for (number, _), (stage, owner) in context.journal.stages.items()
    )
    beside = can_retrain_in_parallel(resolved, context, default_threads())
    memory, source = _estimate_memory(resolved, seen, store, 1 + beside)
    return Plan(resolved, store.get(resolved.id), declared, memory, source)


def _declared(resolved: ResolvedRun, context: RunContext) -> Dataset:
    """The data that the method sees, after it has said what stages it has on it."""
    seen = augmented(resolved, context)
    for number in range(resolved.spec.ensemble):
        resolved.method.stages(seen, context.member(number))
    return seen


def _estimate_memory(resolved: ResolvedRun, data: Dataset, store: Store, processes: int = 1) -> tuple[int, str]:
    """Of as many processes, each with a training, together; and where the figure comes from."""
    reranker = resolved.reranker.name if resolved.reranker else None
    asked = resolved.method.name, reranker, resolved.data.fingerprint
    alike = [
        record.peak_memory for record in store.records() if (record.method, record.rerank, record.fingerprint) == asked
    ]
    if alike:
        who = "this method" if reranker is None else f"this method with {reranker}"
        return max(alike), f"the most that {len(alike)} stored runs of {who} on this data took"
    now, predictions = psutil.Process().memory_info().rss, 8 * len(data.test) * min(DEPTH, data.label_count)
    afterwards = max(predictions, resolved.reranker.estimate_memory(data) if resolved.reranker else 0)
    if (training := resolved.method.estimate_memory(data)) is not None:
        source = "this process, and training by the method's own estimate"
        source += "" if processes == 1 else f", {processes} times at once"
        return processes * now + max(processes * training, afterwards), source
    return processes * (now + _bytes(data)) + afterwards, "a guess: this process, the data once more, the predictions"


def _say_memory(name: str, expected: int, source: str) -> None:
    """Before anything is computed. Trainings and searches, which know their need better, refuse what cannot fit."""
    _log.info("run %s: about %.0f MiB at its peak (%s)", name, expected / 2**20, source)
    if expected > (free := _free_memory()):
        _log.warning("run %s: that may not fit, since %.0f MiB are free", name, free / 2**20)


def _free_memory() -> int:
    """Bytes that this process has or may still get."""
    return int(psutil.virtual_memory().available + psutil.Process().memory_info().rss)


def _bytes(data: Dataset) -> int:
    matrices = [data.train.X, data.train.Y, data.test.X, data.test.Y, *([] if data.Z is None else [data.Z])]
    return sum(M.data.nbytes + M.indices.nbytes + M.indptr.nbytes for M in matrices)


def _context(resolved: ResolvedRun, cache: StageCache, device: str, overwrite: OverwriteStrategy) -> RunContext:
    return RunContext(resolved.spec.seed, device, resolved.data, cache, resolved.method, overwrite)


def _asked(resolved: ResolvedRun) -> dict[str, Any]:
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
    """Each distinct stage once, however many members share it. What ran beside took no time but that spent waiting."""
    return sum({stage.key: stage.seconds for stage in stages if stage.state != PARALLEL}.values())


def _title(resolved: ResolvedRun) -> str:
    parts = [resolved.method.name, *resolved.spec.ablations]
    parts += [f"augmented by {plugin.name}" for plugin in resolved.augmentations]
    parts += [f"reranked by {resolved.reranker.name}"] if resolved.reranker else []
    parts += [f"preset {resolved.preset}"] if resolved.preset else []
    parts += [f"{resolved.spec.ensemble} members"] if resolved.spec.ensemble > 1 else []
    return ", ".join(parts)


@contextlib.contextmanager
def _captured_log() -> Iterator[list[str]]:
    """Collect what xcbench logs, with the time of day."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{datetime.now():%H:%M:%S} {record.getMessage()}")

    logger, handler = logging.getLogger("xcbench"), Collector(logging.INFO)
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
