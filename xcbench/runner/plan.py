"""What a run would do, before it does it: its stages, what is cached of them, and what they will take."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import psutil

from xcbench.data import Dataset
from xcbench.runner.context import PlannedStage, RunContext
from xcbench.runner.environment import check_device, choose_device
from xcbench.runner.expected import (
    PREDICTIONS_PER_POINT,
    DiskForecast,
    TimeForecast,
    forecast_disk,
    forecast_time,
    memory_problem,
)
from xcbench.runner.resolve import ResolvedRun, check_titles, resolve
from xcbench.runner.retraining import can_retrain_in_parallel
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.runner.stage_cache import StageCache, StageNote
from xcbench.runner.store import Record, Store
from xcbench.runner.torchrun import shared_cache
from xcbench.runner.training import augmented, context_of
from xcbench.threads import default_threads


@dataclass(frozen=True)
class Plan:
    """What a run would do."""

    resolved: ResolvedRun
    record: Record | None
    """The stored record, if there is one: the run would return it."""
    stages: tuple[tuple[PlannedStage, StageNote | None], ...]
    """Each stage and, if it is cached, its note."""
    memory: MemoryForecast
    time: TimeForecast
    disk: DiskForecast

    @property
    def problems(self) -> list[str]:
        """Why the run cannot be done here, in one line each: it would be refused."""
        return problems_of(self.memory, self.disk)


@dataclass(frozen=True)
class MemoryForecast:
    """Bytes that a run is expected to take at its peak, and where that figure comes from."""

    bytes: int
    source: str


def plan(
    spec: RunSpec,
    *,
    data: Dataset | None = None,
    store: str | Path | Store | None = None,
    cache: str | Path | StageCache | None = None,
    device: str = "auto",
) -> Plan:
    """What `run` would do, without training. Augmentations are applied, since stages depend on what they give.

    Parameters
    ----------
    spec
        The run.
    data
        Takes the place of the dataset that the spec names.
    store
        Where records are; by default in XCBENCH_HOME.
    cache
        Where finished stages are; by default in XCBENCH_HOME.
    device
        `auto`, `cpu`, `cuda` or `cuda:N`.
    """
    check_device(device)
    store = store if isinstance(store, Store) else Store(store)
    cache = shared_cache(cache if isinstance(cache, StageCache) else StageCache(cache))
    resolved = resolve(spec, data)
    context = context_of(resolved, cache, choose_device(device), OverwriteStrategy.KEEP)

    seen = _plan_method(resolved, context)
    _plan_reranker(resolved, seen, context)
    stages = []
    for planned in context.journal.planned.values():
        note = cache.note(planned.owner.name, planned.name, planned.key, planned.code)
        stages.append((planned, note))

    processes = 1
    if can_retrain_in_parallel(resolved, context, default_threads()):
        processes = 2
    memory = forecast_memory(resolved, seen, store, processes)
    only_planned = [planned for planned, _ in stages]
    is_cached = [note is not None for _, note in stages]
    duration = forecast_time(resolved, only_planned, is_cached, store, context.device)
    disk = forecast_disk(resolved, only_planned, is_cached, store.folder, cache.folder)
    return Plan(resolved, store.get(resolved.id), tuple(stages), memory, duration, disk)


def expected_disk(resolved: ResolvedRun, store: Store, cache: StageCache, device: str, redo: bool) -> DiskForecast:
    """The disk that a run will need, without the time that augmentations would take: their data is not made.

    Parameters
    ----------
    resolved
        The run.
    store
        Where its record will be.
    cache
        Where its stages will be.
    device
        Where it will train.
    redo
        Whether stages are computed that are in the cache.
    """
    context = context_of(resolved, cache, device, OverwriteStrategy.KEEP)
    for number in range(resolved.spec.ensemble):
        member = context.member(number)
        for stage in resolved.method.stages:
            member.plan(stage, resolved.data)

    # With augmentations, the keys of stages are not known here, and none of them counts as cached.
    stages = list(context.journal.planned.values())
    is_cached = [
        not redo and cache.note(planned.owner.name, planned.name, planned.key, planned.code) is not None
        for planned in stages
    ]
    return forecast_disk(resolved, stages, is_cached, store.folder, cache.folder)


def problems_of(memory: MemoryForecast, disk: DiskForecast) -> list[str]:
    """Why a run cannot be done on this machine, in one line each."""
    problems = list(disk.problems)
    too_much_memory = memory_problem(memory.bytes, memory.source)
    if too_much_memory is not None:
        problems.insert(0, too_much_memory)
    return problems


def _plan_method(resolved: ResolvedRun, context: RunContext) -> Dataset:
    """Plan the stages of every member; returns the data that the method will see."""
    seen = augmented(resolved, context)
    check_titles(resolved.method, seen)
    resolved.method.check_data(seen)
    for number in range(resolved.spec.ensemble):
        member = context.member(number)
        for stage in resolved.method.stages:
            member.plan(stage, seen)
    return seen


def _plan_reranker(resolved: ResolvedRun, seen: Dataset, context: RunContext) -> None:
    """Plan the stages of the reranker, and those of the method on the data that it will be retrained on."""
    reranker = resolved.reranker
    if reranker is None:
        return
    own = context.owned_by(reranker)
    for stage in reranker.stages:
        own.plan(stage, seen)
    for data in reranker.retraining_data(own):
        with context.on_other_data(data) as other:
            _plan_method(dataclasses.replace(resolved, data=data), other)


def forecast_memory(resolved: ResolvedRun, data: Dataset, store: Store, processes: int = 1) -> MemoryForecast:
    """The memory of a run: what runs like it took, else the method's own estimate, else a guess.

    Parameters
    ----------
    resolved
        The run.
    data
        The data that the method will see.
    store
        Where records of runs like it may be.
    processes
        How many trainings run at once, each in a process of its own.
    """
    from_records = _memory_of_similar_runs(resolved, store)
    if from_records is not None:
        return from_records

    process = psutil.Process().memory_info().rss
    after_training = 8 * len(data.test) * min(PREDICTIONS_PER_POINT, data.label_count)
    if resolved.reranker is not None:
        after_training = max(after_training, resolved.reranker.estimate_memory(data))

    training = resolved.method.estimate_memory(data)
    if training is None:
        guess = processes * (process + _bytes(data)) + after_training
        return MemoryForecast(guess, "a guess: this process, the data once more, the predictions")

    source = "this process, and training by the method's own estimate"
    if processes > 1:
        source += f", {processes} times at once"
    return MemoryForecast(processes * process + max(processes * training, after_training), source)


def free_memory() -> int:
    """Bytes that this process has or may still get."""
    return int(psutil.virtual_memory().available + psutil.Process().memory_info().rss)


def _memory_of_similar_runs(resolved: ResolvedRun, store: Store) -> MemoryForecast | None:
    """The most that stored runs of the same method and reranker on the same data took."""
    reranker = resolved.reranker.name if resolved.reranker else None
    wanted = (resolved.method.name, reranker, resolved.data.fingerprint)
    peaks = [
        record.peak_memory for record in store.records() if (record.method, record.rerank, record.fingerprint) == wanted
    ]
    if not peaks:
        return None
    who = "this method" if reranker is None else f"this method with {reranker}"
    return MemoryForecast(max(peaks), f"the most that {len(peaks)} stored runs of {who} on this data took")


def _bytes(data: Dataset) -> int:
    matrices = [data.train.X, data.train.Y, data.test.X, data.test.Y]
    if data.Z is not None:
        matrices.append(data.Z)
    return sum(M.data.nbytes + M.indices.nbytes + M.indptr.nbytes for M in matrices)
