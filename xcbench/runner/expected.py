"""What a run will take, worked out beforehand: time, disk, and whether disk and memory can hold it at all."""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from xcbench.costs import StageCost
from xcbench.errors import XCBenchError
from xcbench.kernels.memory import binary_size
from xcbench.plugins.contract import Method
from xcbench.runner.context import PlannedStage
from xcbench.runner.resolve import ResolvedRun
from xcbench.runner.store import Record, Store
from xcbench.threads import set_threads

PREDICTIONS_PER_POINT = 100
"""How many labels per point are kept: filters and new metrics are applied afterwards and need some room."""

SHARE_OF_PRODUCTS = 0.5
"""The speed of a training's matrix products, as a share of that of one large product."""

PRODUCT_SIZE = 2048
COPIED_NUMBERS = 1 << 25
REPEATS = 3


@dataclass(frozen=True)
class Speed:
    """How fast a device is."""

    operations: float  # of a large matrix product, per second
    traffic: float  # bytes read and written per second


@dataclass(frozen=True)
class TimeForecast:
    """Seconds that a run is expected to take, and where that figure comes from."""

    stages: tuple[float | None, ...]
    """Of each planned stage, in their order; 0 of cached ones, None where it is not known."""
    source: str

    @property
    def seconds(self) -> float | None:
        """Of all stages whose time is known; None if there is no such stage."""
        known = [seconds for seconds in self.stages if seconds is not None]
        if not known:
            return None
        return sum(known)


@dataclass(frozen=True)
class DiskForecast:
    """Bytes that a run will write into two folders, and those that are free there.

    What a method does not say of its stages is None. The model is made of what stages leave, so it is at most as large
    as all of these together.
    """

    cache: Path
    stages: int | None
    checkpoints: int | None
    """Of the largest training. They are deleted when its stage ends."""
    free_in_cache: int
    store: Path
    predictions: int
    model: int | None
    free_in_store: int
    is_one_disk: bool
    """Whether both folders are on the same disk."""

    @property
    def in_cache(self) -> int:
        """What the cache needs at its peak."""
        return (self.stages or 0) + (self.checkpoints or 0)

    @property
    def in_store(self) -> int:
        return self.predictions + (self.model or 0)

    @property
    def problems(self) -> list[str]:
        """What does not fit, in one line each."""
        if self.is_one_disk:
            needs = [(self.cache, self.in_cache + self.in_store, self.free_in_cache)]
        else:
            needs = [
                (self.cache, self.in_cache, self.free_in_cache),
                (self.store, self.in_store, self.free_in_store),
            ]
        return [
            f"the run needs about {binary_size(needed)} on the disk of {folder}, and {binary_size(free)} are free"
            for folder, needed, free in needs
            if needed > free
        ]


Costs = Mapping[str, StageCost]


def stage_costs(stages: Iterable[PlannedStage]) -> list[StageCost | None]:
    """What methods say of their stages, in the stages' order; None where nothing is known of a stage."""
    known: dict[tuple[int, int], Costs] = {}
    costs = []
    for planned in stages:
        owner = planned.owner
        place = (id(owner), id(planned.data))
        if place not in known:
            known[place] = _costs_of(owner, planned)
        costs.append(known[place].get(planned.name))
    return costs


def _costs_of(owner: Any, planned: PlannedStage) -> Costs:
    if not isinstance(owner, Method):
        return {}
    return owner.estimate_costs(planned.data) or {}


def forecast_time(
    resolved: ResolvedRun,
    stages: Sequence[PlannedStage],
    is_cached: Sequence[bool],
    store: Store,
    device: str,
) -> TimeForecast:
    """The time of a run: what runs with the same settings took, else the work of its trainings, else what others took.

    Parameters
    ----------
    resolved
        The run.
    stages
        Its stages.
    is_cached
        Which of them are in the cache, and take no time.
    store
        Where records of runs like it may be.
    device
        Where it will train.
    """
    similar = _similar_runs(resolved, store)
    equal = [record for record in similar if _as_json(record.config) == _as_json(resolved.config)]
    if equal:
        source = f"whole stages, as the slowest of {len(equal)} stored runs with these settings took them"
        return TimeForecast(_times_in_records(equal, stages, is_cached), source)

    costs = stage_costs(stages)
    trained = [cost for cost in costs if cost is not None and cost.operations]
    if trained:
        speed = measured_speed(device)
        times = tuple(_time_of(cost, cached, speed) for cost, cached in zip(costs, is_cached, strict=True))
        source = (
            f"training alone: matrix products at half of the {speed.operations / 1e9:.0f} GFLOP/s, and tables at the "
            f"{speed.traffic / 1e9:.0f} GB/s, that {device} reaches now"
        )
        return TimeForecast(times, source)

    if similar:
        source = f"whole stages, as the slowest of {len(similar)} stored runs with other settings took them"
        return TimeForecast(_times_in_records(similar, stages, is_cached), source)
    return TimeForecast((None,) * len(stages), "not known: the method does not say, and no such run is in the store")


def _similar_runs(resolved: ResolvedRun, store: Store) -> list[Record]:
    """Stored runs of the same method on the same data."""
    wanted = (resolved.method.name, resolved.data.fingerprint)
    return [record for record in store.records() if (record.method, record.fingerprint) == wanted and record.stages]


def _times_in_records(
    records: Sequence[Record],
    stages: Sequence[PlannedStage],
    is_cached: Sequence[bool],
) -> tuple[float | None, ...]:
    slowest: dict[str, float] = {}
    for record in records:
        for report in record.stages:
            slowest[report.name] = max(slowest.get(report.name, 0.0), report.seconds)

    times: list[float | None] = []
    for planned, cached in zip(stages, is_cached, strict=True):
        times.append(0.0 if cached else slowest.get(planned.name))
    return tuple(times)


def _time_of(cost: StageCost | None, cached: bool, speed: Speed) -> float | None:
    if cached:
        return 0.0
    if cost is None or not cost.operations:
        return None
    return cost.operations / (SHARE_OF_PRODUCTS * speed.operations) + cost.traffic / speed.traffic


@functools.cache
def measured_speed(device: str) -> Speed:
    """How fast a device multiplies and copies now, with the threads of a run. It takes a fraction of a second."""
    import torch

    set_threads()
    a = torch.rand(PRODUCT_SIZE, PRODUCT_SIZE, device=device)
    b = torch.rand(PRODUCT_SIZE, PRODUCT_SIZE, device=device)
    numbers = torch.rand(COPIED_NUMBERS, device=device)
    copy = torch.empty_like(numbers)

    def seconds_of(work: Any, *arguments: Any) -> float:
        best = float("inf")
        for _ in range(REPEATS):
            start = time.perf_counter()
            work(*arguments)
            if device.startswith("cuda"):
                torch.cuda.synchronize(device)
            best = min(best, time.perf_counter() - start)
        return best

    operations = 2 * PRODUCT_SIZE**3 / seconds_of(torch.mm, a, b)
    traffic = 2 * numbers.nbytes / seconds_of(copy.copy_, numbers)
    return Speed(operations, traffic)


def forecast_disk(
    resolved: ResolvedRun,
    stages: Sequence[PlannedStage],
    is_cached: Sequence[bool],
    store: Path,
    cache: Path,
) -> DiskForecast:
    """The disk that a run will need.

    Parameters
    ----------
    resolved
        The run.
    stages
        Its stages.
    is_cached
        Which of them are in the cache already.
    store
        The folder of records.
    cache
        The folder of stages.
    """
    costs = stage_costs(stages)
    written = None
    checkpoints = None
    model = None
    if any(cost is not None for cost in costs):
        new = [cost for cost, cached in zip(costs, is_cached, strict=True) if cost is not None and not cached]
        written = sum(cost.output for cost in new)
        checkpoints = max((cost.checkpoint for cost in new), default=0)
        model = 0
        for planned, cost in zip(stages, costs, strict=True):
            if cost is not None and planned.data is stages[0].data:  # others are of a second training, for a reranker
                model += cost.output

    points = len(resolved.data.test)
    labels = min(PREDICTIONS_PER_POINT, resolved.data.label_count)
    cache_disk = _existing(cache)
    store_disk = _existing(store)
    return DiskForecast(
        cache=cache,
        stages=written,
        checkpoints=checkpoints,
        free_in_cache=shutil.disk_usage(cache_disk).free,
        store=store,
        predictions=8 * points * labels,
        model=model,
        free_in_store=shutil.disk_usage(store_disk).free,
        is_one_disk=cache_disk.stat().st_dev == store_disk.stat().st_dev,
    )


def memory_problem(needed: int, source: str) -> str | None:
    """One line if a run needs more memory than the machine has, free or not; None if it may fit."""
    there = psutil.virtual_memory().total + psutil.swap_memory().total
    if needed <= there:
        return None
    return (
        f"the run needs about {binary_size(needed)} of memory ({source}), and this machine has {binary_size(there)}: "
        "a smaller dimension or batch needs less"
    )


def refuse(run_id: str, problems: Sequence[str]) -> None:
    """Raise an error if there are problems."""
    if problems:
        raise XCBenchError(f"run {run_id} is not started: {'; '.join(problems)}")


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder


def _as_json(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True, default=str)
