"""One rank of a run: `xcbench` itself, with a note of what every training took and which step it is at.

    torchrun --nproc-per-node 2 -m benchmarks.scale.rank FOLDER run --method decaf ...

Every rank writes its own files into the folder; see `Notes`.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from benchmarks.scale.training_steps import WARM_UP
from xcbench.cli import main
from xcbench.files import write_json
from xcbench.plugins.registry import get_method
from xcbench.ranks import rank
from xcbench.runner.meter import Meter
from xcbench.train import Points, Training
from xcbench.train.batches import Batch
from xcbench.train.loop import TrainReport
from xcbench.train.loop import train as train_loop

METHOD = "decaf"


@dataclass(frozen=True)
class Trained:
    """What one training took in one rank."""

    module: str
    rank: int
    seconds: float
    memory: int
    step_seconds: float
    step_cpu_seconds: float
    """What the process itself computed in a step, which other work on the same cores does not lengthen."""


@dataclass(frozen=True)
class Notes:
    """What ranks write into a folder."""

    folder: Path

    def step(self, of_rank: int) -> Path:
        """Return the file that says which process a rank is, what it trains, and how many steps it has begun."""
        return self.folder / f"step-{of_rank}.json"

    def save(self, trained: Trained) -> None:
        write_json(self.folder / f"trained-{trained.module}-{trained.rank}.json", asdict(trained))

    def trained(self) -> Iterator[Trained]:
        """Yield what finished trainings took: module after module, rank after rank."""
        files = sorted(self.folder.glob("trained-*.json"), key=lambda path: path.stat().st_mtime)
        noted = [Trained(**json.loads(path.read_text("utf-8"))) for path in files]
        modules = list(dict.fromkeys(trained.module for trained in noted))
        yield from sorted(noted, key=lambda trained: (modules.index(trained.module), trained.rank))


def observed(notes: Notes) -> Callable[..., TrainReport]:
    """Return a `train` that notes what it does."""

    def train(module: nn.Module, points: Points, settings: Training, work: Any, name: str, *more: Any) -> TrainReport:
        starts: list[float] = []
        cpu_starts: list[float] = []
        loss: Callable[[Batch], torch.Tensor] = module.loss  # type: ignore[assignment]

        @functools.wraps(loss)  # the mark of a loss that splits its labels included
        def timed_loss(batch: Batch) -> torch.Tensor:
            starts.append(time.perf_counter())
            cpu_starts.append(time.process_time())
            write_json(notes.step(rank()), {"process": os.getpid(), "module": name, "begun": len(starts)})
            return loss(batch)

        module.loss = timed_loss  # type: ignore[assignment]
        with Meter() as meter:
            report = train_loop(module, points, settings, work, name, *more)
        del module.loss

        step_seconds = _steady_step(starts)
        step_cpu_seconds = _steady_step(cpu_starts)
        notes.save(Trained(name, rank(), meter.seconds, meter.peak_memory, step_seconds, step_cpu_seconds))
        return report

    return train


def _steady_step(starts: list[float]) -> float:
    """Return the time of a steady step, from the moments at which steps began; 0 if there were too few."""
    steady = np.diff(starts[WARM_UP:])
    if len(steady) == 0:
        return 0.0
    return float(statistics.median(steady))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    module = sys.modules[get_method(METHOD).__module__]
    with mock.patch.object(module, "train", observed(Notes(folder))):
        main(sys.argv[2:])
