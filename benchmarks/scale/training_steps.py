"""Methods with the paper's settings, each module for a few steps."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.scale.measuring import matmul_speed
from benchmarks.scale.place import Place, first_points
from benchmarks.scale.row import Row, read_rows, save_rows
from benchmarks.scale.spread import spread_clusters, spread_index
from xcbench.data import Split
from xcbench.disk import folder_size
from xcbench.plugins.registry import get_method
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.store import Record
from xcbench.train import Points
from xcbench.train.batches import Batch
from xcbench.train.learned_index import LearnedIndex
from xcbench.train.loop import Training, TrainReport
from xcbench.train.loop import train as train_loop

STEPS = 24
WARM_UP = 8
"""Steps that are not counted: they compile kernels, and touch memory for the first time."""
FEW = 1000
"""Test points of the run itself. The whole test set is predicted by a step of its own."""

OVERRIDES: dict[str, dict[str, Any]] = {
    "elias": {"encoder.kind": "bag", "encoder.model": None},
}
PRESETS = {("elias", "LF-AmazonTitles-1.3M"): "Amazon-670K"}
"""Where a paper has no settings for a dataset: those of the most similar one."""


def train_method(place: Place, method: str) -> Iterator[Row]:
    """Run a method from its first stage to its predictions, and return what each stage took."""
    record = few_steps(place, method)
    for stage in record.stages:
        disk = folder_size(place.cache.path(method, stage.name, stage.key))
        trained = place.rows_of(f"trained-{method}-{stage.name}")
        row = Row(method, stage.name, stage.seconds, stage.peak_memory, disk)
        if trained.exists():
            steps = read_rows(trained)[0]
            row = replace(
                row,
                step_seconds=steps.step_seconds,
                steps=steps.steps,
                matmul_share=steps.matmul_share,
                note=f"{STEPS} steps were made, in {steps.seconds:.1f} s",
            )
        yield row

        shortlisted = place.rows_of(f"shortlisted-{method}")
        if stage.name == "extreme" and shortlisted.exists():
            yield from read_rows(shortlisted)
    yield Row(method, "the run as a whole", record.seconds, record.peak_memory, record.model_bytes, note="disk: model")


def few_steps(place: Place, method: str) -> Record:
    """Return the record of a run that was cut short."""
    data = place.with_few_test_points(place.data(), FEW)
    spec = RunSpec(
        method,
        place.name,
        preset=PRESETS.get((method, place.like), place.like),
        overrides=OVERRIDES.get(method, {}),
    )
    module = sys.modules[get_method(method).__module__]
    with (
        mock.patch.object(module, "train", _observed(place, method)),
        spread_clusters(module),
        _shortlists_of_a_share(place, method, module),
    ):
        return run(spec, data=data, store=place.store, cache=place.cache)


def _observed(place: Place, method: str) -> Callable[..., TrainReport]:
    """Return a `train` that makes a few steps and keeps what they took."""

    def train(module: nn.Module, points: Points, settings: Training, work: Any, name: str, *more: Any) -> TrainReport:
        if isinstance(getattr(module, "index", None), LearnedIndex):
            spread_index(module, points)
        starts: list[float] = []
        loss: Callable[[Batch], torch.Tensor] = module.loss  # type: ignore[assignment]

        def timed_loss(batch: Batch) -> torch.Tensor:
            starts.append(time.perf_counter())
            return loss(batch)

        module.loss = timed_loss  # type: ignore[assignment]
        # One checkpoint is written on the way: its memory is part of what a training takes.
        few = replace(settings, steps=STEPS, checkpoint_seconds=1.0)
        report = train_loop(module, points, few, work, name, *more)
        del module.loss

        step_seconds = statistics.median(np.diff(starts[WARM_UP:]))
        products = _operations(module, points, few)
        row = Row(
            method,
            name,
            report.seconds,
            0,
            step_seconds=step_seconds,
            steps=settings.step_count(points),
            matmul_share=products / step_seconds / matmul_speed(),
        )
        save_rows(place.rows_of(f"trained-{method}-{work.stage.name}"), [row])
        return report

    return train


def _operations(module: nn.Module, points: Points, settings: Training) -> float:
    """Return the floating-point operations of the dense products of a step, forward and backward, as torch counts."""
    rows = np.random.default_rng(0).permutation(len(points))[: settings.batch_size]
    batch = points.prepare(rows).finish(torch.device("cpu"))
    module.train()
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: _operations_of_addmm}) as counter:
        loss: torch.Tensor = module.loss(batch)  # type: ignore[operator]
        loss.backward()  # type: ignore[no-untyped-call]
    module.zero_grad(set_to_none=True)
    module.eval()
    return float(counter.get_total_flops())


def _operations_of_addmm(summand: Any, first: Any, second: Any, **_: Any) -> int:
    """Return the operations of `addmm_`, from shapes. Torch's own counter knows the other forms, but not this one."""
    return 2 * int(first[0]) * int(first[1]) * int(second[1])


@contextlib.contextmanager
def _shortlists_of_a_share(place: Place, method: str, module: Any) -> Iterator[None]:
    """Time the shortlisting of all training points. Of a share of them, the shortlists are repeated for the others."""
    if method in ("decaf", "eclare"):
        owner = module
        name = "training_candidates"
        position = 2
    elif method == "astec":
        owner = module.Neighbours
        name = "labels"
        position = 1
    else:
        yield
        return

    original = getattr(owner, name)

    def shortlist(*arguments: Any) -> Any:
        points = arguments[position]
        count = place.some(len(points))
        cut = [*arguments]
        cut[position] = first_points(points, count) if isinstance(points, Split) else points[:count]
        start = time.perf_counter()
        found = original(*cut)
        seconds = time.perf_counter() - start

        note = f"{1000 * seconds / count:.3f} ms per point, {count:,} of {len(points):,} points"
        save_rows(place.rows_of(f"shortlisted-{method}"), [Row(method, "shortlists", seconds, 0, note=note)])
        places = np.arange(len(points)) % count
        if isinstance(found, np.ndarray):
            return found[places]
        return replace(found, groups=found.groups[places])

    with mock.patch.object(owner, name, shortlist):
        yield


def remove_stages(cache: StageCache) -> None:
    """Delete what trainings left behind."""
    for entry in cache.entries():
        cache.remove(entry.folder)
