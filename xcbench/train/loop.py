"""The one training loop: any module with a loss, any points, one Adam, any schedule."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from xcbench.errors import InputError, XCBenchError
from xcbench.kernels.parallel import Longs
from xcbench.nn import Adam, LabelBank, TokenEmbeddings
from xcbench.nn.dropout import next_key, start_step
from xcbench.train.batches import Batch, Points
from xcbench.train.checkpoints import Checkpoint
from xcbench.train.devices import autocast, resolve_device
from xcbench.train.memory import MemoryEstimate, check_fits, estimate_memory, freed_memory_kept
from xcbench.train.processes import Processes
from xcbench.train.progress import Progress
from xcbench.train.schedules import Schedule

READ_LOSS_EVERY = 50
"""Steps after which a GPU is asked for the loss; on a CPU it is known, and checked, at every step."""

SMALL_STEP = 2 << 20
"""Bytes that a step works on, below which it runs in one thread."""


@runtime_checkable
class Trainable(Protocol):
    """All that the loop asks of a module beside being one."""

    def loss(self, batch: Batch) -> Tensor:
        """A mean over the batch: over its points, unless a method `loss_terms(batch)` counts something else."""


Begin: TypeAlias = Callable[[nn.Module, Points], None]
"""What is still to be done to a module that has not learnt yet; a training that goes on from a checkpoint skips it."""


@dataclass(frozen=True)
class Training:
    """How long and how fast to learn. Where `steps` is given it decides, else `epochs` does, if that is enough."""

    lr: float = 0.01
    batch_size: int = 255
    epochs: int = 20
    min_steps: int = 0
    """On small data, where `epochs` would be too few updates, training goes on until it has had so many."""
    steps: int | None = None
    schedule: Schedule = field(default_factory=Schedule)
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    label_lr_factor: float = 1.0
    """Multiplies `lr` for the free vectors of labels."""
    block_lr_factor: float = 1.0
    """Multiplies `lr` for all that is neither a free vector of a label nor the embedding of a token."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.batch_size < 1 or min(self.epochs, self.min_steps, self.steps or 0) < 0:
            raise ValueError("a batch has at least one point, and steps and epochs are not negative")
        if min(self.lr, self.label_lr_factor, self.block_lr_factor, self.eps) < 0:
            raise ValueError("learning rates and eps are not negative")
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise ValueError(f"beta1 and beta2 are at least 0 and below 1, got {self.beta1} and {self.beta2}")


@dataclass(frozen=True)
class Work:
    """Where and under which seed to train; a stage of a run offers the same attributes."""

    seed: int = 0
    device: str = "auto"
    checkpoints: Path | None = None
    log: Callable[[str], None] = print


class WorkLike(Protocol):
    @property
    def seed(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def checkpoints(self) -> Path | None: ...
    @property
    def log(self) -> Callable[[str], None]: ...


@dataclass(frozen=True)
class TrainReport:
    """What a training came to; `losses` has the mean of every epoch."""

    steps: int
    seconds: float
    points_per_second: float
    losses: tuple[float, ...]


@dataclass(frozen=True)
class _Plan:
    """Which points each step sees: all of them once an epoch, in an order that follows from (seed, epoch) alone."""

    points: int
    batch_size: int
    steps: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.points // self.batch_size)

    def epoch_of(self, step: int) -> int:
        return step // self.steps_per_epoch

    def end_of_epoch(self, step: int) -> int:
        return min(self.steps, (self.epoch_of(step) + 1) * self.steps_per_epoch)

    def order(self, step: int) -> Longs:
        return np.random.default_rng([self.seed, self.epoch_of(step)]).permutation(self.points)

    def rows(self, order: Longs, step: int) -> Longs:
        first = step % self.steps_per_epoch * self.batch_size
        return order[first : first + self.batch_size]

    def points_before(self, step: int) -> int:
        epochs, rest = divmod(step, self.steps_per_epoch)
        return epochs * self.points + rest * self.batch_size


def train(
    module: nn.Module, points: Points, settings: Training, work: WorkLike | None = None, name: str = "module",
    begin: Begin | None = None,
) -> TrainReport:  # fmt: skip
    """Train the module in place and leave it in eval mode. `begin` comes before the first step of all.

    The same seed and threads give the same parameters, bit for bit on a CPU, whether or not the process was killed
    on the way: it goes on from its last checkpoint in `work.checkpoints`.
    """
    work = work or Work()
    if not isinstance(module, Trainable):
        raise TypeError(f"{type(module).__name__} has no loss(batch) to train on")
    plan = _plan(len(points), settings, work.seed, name)
    device = resolve_device(work.device)
    together = Processes.join()
    estimate = estimate_memory(module, points, plan.batch_size)
    work.log(f"{name}: {plan.steps} steps on {device}, about {estimate}")
    check_fits(estimate, name, device)
    with freed_memory_kept(), _threads_for(estimate):
        return _Run(module.to(device), points, settings, plan, device, together, work, name).to_the_end(begin)


def _plan(points: int, settings: Training, seed: int, name: str) -> _Plan:
    if points == 0:
        raise InputError(f"{name}: there are no points to train on")
    batch_size = min(settings.batch_size, points)
    per_epoch = -(-points // batch_size)
    steps = max(settings.epochs * per_epoch, settings.min_steps) if settings.steps is None else settings.steps
    return _Plan(points, batch_size, steps, seed)


class _Run:
    """One training under way."""

    def __init__(
        self, module: nn.Module, points: Points, settings: Training, plan: _Plan, device: torch.device,
        together: Processes, work: WorkLike, name: str,
    ) -> None:  # fmt: skip
        self.module, self.points, self.settings, self.plan = module, points, settings, plan
        self.device, self.together, self.work, self.name = device, together, work, name
        self.optimiser = Adam(
            module, settings.lr, (settings.beta1, settings.beta2), settings.eps, _rates(module, settings)
        )
        self.loss = _compiled(cast("Trainable", module).loss, settings.compile, device)
        self.checkpoint = Checkpoint(work.checkpoints, name, _identity(plan, settings), settings.checkpoint_seconds)
        self.losses: list[float] = []  # means of the finished epochs
        self.epoch_loss = torch.zeros((), dtype=torch.float64, device=device)  # of the points below, added up
        self.epoch_points = 0

    def to_the_end(self, begin: Begin | None) -> TrainReport:
        plan, step = self.plan, self._resume()
        if step == 0 and begin is not None:
            begin(self.module, self.points)
        self.module.train()
        self.together.broadcast_parameters(self.module)
        total, done = plan.points_before(plan.steps), plan.points_before(step)
        with Progress(self.name, total, done, self.work.log, self.together.rank == 0) as progress:
            while step < plan.steps:
                order, end = plan.order(step), plan.end_of_epoch(step)
                while step < end:
                    rows = plan.rows(order, step)
                    self._step(step, rows)
                    step += 1
                    if self.device.type == "cpu" or step % READ_LOSS_EVERY == 0 or step == end:
                        self._check_loss(step - 1)
                    progress.advance(len(rows), self.mean_loss)
                    if self.together.rank == 0 and self.checkpoint.due():
                        self._save(step)
                self.losses.append(self.mean_loss)
                self.epoch_loss.zero_()
                self.epoch_points = 0
        self._check_parameters()
        self.module.eval()
        return TrainReport(plan.steps, progress.seconds, progress.points_per_second, tuple(self.losses))

    def _step(self, step: int, rows: Longs) -> None:
        mine, first, counts = self.together.share(rows)
        start_step(self.work.seed, step, first)
        key = next_key()
        _seed_torch(key, self.device)
        batch = self.points.cut(mine, key, self.device)
        with autocast(self.settings.precision, self.device):
            loss = self.loss(batch)
        if self.together.count > 1:
            terms = _terms(self.module, batch) if counts else 0.0
            loss = loss * (terms / float(self.together.sum_over_ranks(terms)))
        loss.backward()  # type: ignore[no-untyped-call]
        self.together.add_gradients(self.module, counts)
        self.optimiser.lr = self.settings.lr * self.settings.schedule.factor(step, self.plan.steps)
        self.optimiser.step()
        self.epoch_loss += self.together.sum_over_ranks(loss) * len(rows)
        self.epoch_points += len(rows)

    def _check_loss(self, step: int) -> None:
        self.mean_loss = self.epoch_loss.item() / self.epoch_points
        if not math.isfinite(self.mean_loss):
            raise self._diverged("the loss", step)

    def _check_parameters(self) -> None:
        for name, p in self.module.named_parameters():
            if not torch.isfinite(p.detach().sum()):
                raise self._diverged(f"parameter {name}", self.plan.steps - 1)

    def _diverged(self, what: str, step: int) -> XCBenchError:
        epochs = self.plan.epoch_of(self.plan.steps - 1) + 1
        return XCBenchError(
            f"{self.name}: {what} is no longer a finite number at step {step + 1} of {self.plan.steps} "
            f"(epoch {self.plan.epoch_of(step) + 1} of {epochs}); "
            f"a lower learning rate than {self.settings.lr:g} may help"
        )

    def _save(self, step: int) -> None:
        self._check_loss(step - 1)
        progress = {"step": step, "losses": self.losses, "loss": self.epoch_loss.item(), "points": self.epoch_points}
        self.checkpoint.save(self.module, self.optimiser, progress)

    def _resume(self) -> int:
        saved = self.checkpoint.restore(self.module, self.optimiser)
        if saved is None:
            return 0
        self.losses = list(saved["losses"])
        self.epoch_loss.fill_(saved["loss"])
        self.epoch_points = saved["points"]
        self.work.log(f"{self.name}: goes on from step {saved['step']}")
        return int(saved["step"])


def _rates(module: nn.Module, settings: Training) -> dict[str, float]:
    """The share of the learning rate that each parameter gets."""
    tables = {
        id(part.weight): 1.0 if isinstance(part, TokenEmbeddings) else settings.label_lr_factor
        for part in module.modules()
        if isinstance(part, TokenEmbeddings) or (isinstance(part, LabelBank) and part.weight.dim() == 2)
    }
    return {name: tables.get(id(p), settings.block_lr_factor) for name, p in module.named_parameters()}


@contextlib.contextmanager
def _threads_for(estimate: MemoryEstimate) -> Iterator[None]:
    """One thread where steps are so small that waiting for a second would take longer than its share of the work."""
    threads = torch.get_num_threads()
    if estimate.step < SMALL_STEP:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _seed_torch(key: int, device: torch.device) -> None:
    """For modules that draw from torch itself. (`torch.manual_seed` would walk the stack at every step.)"""
    torch.default_generator.manual_seed(key)
    if device.type == "cuda":
        torch.cuda.manual_seed(key)


def _terms(module: nn.Module, batch: Batch) -> float:
    """Over how many terms the module's loss is a mean: what a part of a batch counts against the others."""
    count: Callable[[Batch], float] | None = getattr(module, "loss_terms", None)
    return float(len(batch.rows)) if count is None else count(batch)


def _identity(plan: _Plan, settings: Training) -> dict[str, Any]:
    """What must be equal for a checkpoint to be continued."""
    kept = {k: v for k, v in asdict(settings).items() if k not in ("checkpoint_seconds", "compile")}
    return {"plan": asdict(plan), "settings": kept}


def _compiled(loss: Callable[[Batch], Tensor], wanted: str, device: torch.device) -> Callable[[Batch], Tensor]:
    """torch.compile pays on GPUs; on a CPU our kernels are compiled already."""
    if wanted not in ("auto", "on", "off"):
        raise InputError(f"compile is auto, on or off, got {wanted!r}")
    if wanted == "on" or (wanted == "auto" and device.type == "cuda"):
        return torch.compile(loss, dynamic=True)
    return loss
