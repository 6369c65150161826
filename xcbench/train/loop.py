"""The training loop: any module with a loss, any points, Adam, and a learning-rate schedule."""

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
from xcbench.kernels.arrays import Longs
from xcbench.kernels.memory import MemoryEstimate
from xcbench.nn import Adam, LabelBank, TokenEmbeddings
from xcbench.nn.dropout import first_key, next_key, start_step
from xcbench.train.ahead import made_ahead
from xcbench.train.batches import Batch, Points, PreparedBatch
from xcbench.train.checkpoints import Checkpoint
from xcbench.train.devices import autocast, resolve_device
from xcbench.train.memory import check_fits, estimate_memory, keep_freed_memory
from xcbench.train.processes import Processes
from xcbench.train.progress import Progress
from xcbench.train.schedules import Schedule

READ_LOSS_EVERY = 50
"""Steps between two readings of the loss from a GPU. On a CPU it is known, and checked, at every step."""

SMALL_STEP = 2 << 20
"""Bytes that a step works on, below which it runs in one thread."""


@runtime_checkable
class Trainable(Protocol):
    """What the loop needs of a module besides being one."""

    def loss(self, batch: Batch) -> Tensor:
        """Return a mean over the batch: over its points, unless a method `loss_terms(batch)` counts something else."""


Initialise: TypeAlias = Callable[[nn.Module, Points], None]
"""Called before the first step, with the module and the points. A training that continues a checkpoint skips it."""


@dataclass(frozen=True)
class Training:
    """How long and how fast to learn."""

    lr: float = 0.01
    batch_size: int = 255
    epochs: int = 20
    min_steps: int = 0
    """On small data, where `epochs` would be too few updates, training goes on until it has had this many."""
    steps: int | None = None
    """The exact number of steps. If it is given, `epochs` and `min_steps` do not count."""
    schedule: Schedule = field(default_factory=Schedule)
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    label_lr_factor: float = 1.0
    """Multiplies `lr` for the free vectors of labels."""
    block_lr_factor: float = 1.0
    """Multiplies `lr` for every parameter that is neither a free vector of a label nor the embedding of a token."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of matrix products. `bfloat16` is for GPUs; it is never chosen without being asked for."""
    compile: Literal["on", "off"] = "off"
    """Whether the loss goes through torch.compile."""
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.batch_size < 1 or min(self.epochs, self.min_steps, self.steps or 0) < 0:
            raise ValueError("a batch has at least one point, and steps and epochs are not negative")
        if min(self.lr, self.label_lr_factor, self.block_lr_factor, self.eps) < 0:
            raise ValueError("learning rates and eps are not negative")
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise ValueError(f"beta1 and beta2 are at least 0 and below 1, got {self.beta1} and {self.beta2}")

    def step_count(self, points: int) -> int:
        """Return how many steps a training on so many points takes."""
        return _BatchPlan.of(points, self, seed=0).steps


@dataclass(frozen=True)
class Work:
    """Where and with which seed to train. The work of a method's stage has the same attributes."""

    seed: int = 0
    device: str = "auto"
    """See `resolve_device`."""
    checkpoints: Path | None = None
    """A folder for checkpoints; None for no checkpoints."""
    log: Callable[[str], None] = print


class WorkLike(Protocol):
    """`Work`, or anything else with its attributes."""

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
    """How a training went. `losses` has the mean loss of every epoch."""

    steps: int
    seconds: float
    points_per_second: float
    losses: tuple[float, ...]


@dataclass(frozen=True)
class _BatchPlan:
    """Which points each step sees: every point once per epoch, in an order that follows from (seed, epoch) alone."""

    points: int
    batch_size: int
    steps: int
    seed: int

    @classmethod
    def of(cls, points: int, settings: Training, seed: int) -> _BatchPlan:
        batch_size = min(settings.batch_size, points)
        if settings.steps is not None:
            return cls(points, batch_size, settings.steps, seed)
        steps_per_epoch = -(-points // batch_size)
        steps = max(settings.epochs * steps_per_epoch, settings.min_steps)
        return cls(points, batch_size, steps, seed)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.points // self.batch_size)

    @property
    def epochs(self) -> int:
        """The number of epochs; the last one may be incomplete."""
        return self.epoch_of(self.steps - 1) + 1

    def epoch_of(self, step: int) -> int:
        return step // self.steps_per_epoch

    def end_of_epoch(self, step: int) -> int:
        """Return the number of the step after the last one of this step's epoch."""
        return min(self.steps, (self.epoch_of(step) + 1) * self.steps_per_epoch)

    def order(self, step: int) -> Longs:
        """Return the order of all points in this step's epoch."""
        generator = np.random.default_rng([self.seed, self.epoch_of(step)])
        return generator.permutation(self.points)

    def rows(self, order: Longs, step: int) -> Longs:
        """Return the points of a step, given the order of its epoch."""
        first = step % self.steps_per_epoch * self.batch_size
        return order[first : first + self.batch_size]

    def points_before(self, step: int) -> int:
        """Return how many points all earlier steps see."""
        epochs, steps = divmod(step, self.steps_per_epoch)
        return epochs * self.points + steps * self.batch_size


def train(
    module: nn.Module,
    points: Points,
    settings: Training,
    work: WorkLike | None = None,
    name: str = "module",
    initialise: Initialise | None = None,
) -> TrainReport:
    """Train a module in place and leave it in eval mode.

    The same seed and number of threads give the same parameters, bit for bit on a CPU, whether or not the process was
    killed on the way: training continues from the last checkpoint in `work.checkpoints`.

    Parameters
    ----------
    module
        A module with a method `loss(batch)`.
    points
        What it is trained on.
    settings
        How long and how fast it learns.
    work
        Seed, device, folder for checkpoints, and log; in a method, the work of its stage.
    name
        What the module is called in messages, and the name of its checkpoint.
    initialise
        Called with the module and the points before the first step.
    """
    work = work or Work()
    if not isinstance(module, Trainable):
        raise TypeError(f"{type(module).__name__} has no loss(batch) to train on")
    if len(points) == 0:
        raise InputError(f"{name}: there are no points to train on")

    plan = _BatchPlan.of(len(points), settings, work.seed)
    device = resolve_device(work.device)
    processes = Processes.join()
    estimate = estimate_memory(module, points, plan.batch_size, device)
    work.log(f"{name}: {plan.steps} steps on {device}, about {estimate}")
    check_fits(estimate, name, device)

    with keep_freed_memory(), _threads_for(estimate):
        trainer = _Trainer(module.to(device), points, settings, plan, device, processes, work, name)
        return trainer.run(initialise)


@dataclass(frozen=True)
class _StepBatch:
    """The batch of a step, as far as this rank works on it."""

    prepared: PreparedBatch
    points: int  # of the whole batch, on all ranks
    offset: int  # of this rank's shard within the batch
    counts: bool  # see `Processes.shard`


class _Trainer:
    """The state of one training."""

    def __init__(
        self,
        module: nn.Module,
        points: Points,
        settings: Training,
        plan: _BatchPlan,
        device: torch.device,
        processes: Processes,
        work: WorkLike,
        name: str,
    ) -> None:
        self.module = module
        self.points = points
        self.settings = settings
        self.plan = plan
        self.device = device
        self.processes = processes
        self.work = work
        self.name = name

        self.loss = _compiled(cast("Trainable", module).loss, settings.compile)
        self.optimiser = Adam(
            module,
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            eps=settings.eps,
            lr_factors=_lr_factors(module, settings),
        )
        self.checkpoint = Checkpoint(
            work.checkpoints,
            name,
            identity=_identity(plan, settings, device),
            every=settings.checkpoint_seconds,
        )

        self.losses: list[float] = []  # the mean loss of each finished epoch
        self.epoch_loss = torch.zeros((), dtype=torch.float64, device=device)  # sum over the points of this epoch
        self.epoch_points = 0
        self.mean_loss = math.nan  # of this epoch's points, as last read from the device

    def run(self, initialise: Initialise | None) -> TrainReport:
        plan = self.plan
        step = self._resume()
        if step == 0 and initialise is not None:
            initialise(self.module, self.points)
        self.module.train()
        self.processes.broadcast_parameters(self.module)

        with (
            Progress(
                self.name,
                total=plan.points_before(plan.steps),
                done=plan.points_before(step),
                log=self.work.log,
                shown=self.processes.rank == 0,
            ) as progress,
            self._batches_in_time(step) as batches,
        ):
            while step < plan.steps:
                self._train_epoch(step, batches, progress)
                step = plan.end_of_epoch(step)

        self._check_parameters()
        self.module.eval()
        return TrainReport(plan.steps, progress.seconds, progress.points_per_second, tuple(self.losses))

    def _train_epoch(self, first_step: int, batches: Iterator[_StepBatch], progress: Progress) -> None:
        """Train from a step to the end of its epoch. `batches` yields the batch of each step."""
        end = self.plan.end_of_epoch(first_step)
        for step in range(first_step, end):
            points = self._train_step(step, next(batches))

            done = step + 1
            if self.device.type == "cpu" or done % READ_LOSS_EVERY == 0 or done == end:
                self._read_loss(step)
            progress.advance(points, self.mean_loss)
            if self.processes.rank == 0 and self.checkpoint.due():
                self._save(done)

        self.losses.append(self.mean_loss)
        self.epoch_loss.zero_()
        self.epoch_points = 0

    def _batches(self, first_step: int) -> Iterator[_StepBatch]:
        """Yield the batches of this and all later steps. On the way to a GPU, they are in page-locked memory."""
        for step in range(first_step, self.plan.steps):
            if step == first_step or step % self.plan.steps_per_epoch == 0:
                order = self.plan.order(step)
            rows = self.plan.rows(order, step)
            shard, offset, counts = self.processes.shard(rows)
            prepared = self.points.prepare(shard, first_key(self.work.seed, step))
            if self.device.type == "cuda":
                prepared.pin()
            yield _StepBatch(prepared, len(rows), offset, counts)

    @contextlib.contextmanager
    def _batches_in_time(self, first_step: int) -> Iterator[Iterator[_StepBatch]]:
        """Return the batches: cut ahead while a device works, and one by one on the CPU, which has no time to spare."""
        batches = self._batches(first_step)
        if self.device.type == "cpu":
            yield batches
            return
        with made_ahead(batches) as ready:
            yield ready

    def _train_step(self, step: int, part: _StepBatch) -> int:
        """Train on a batch. Returns the number of its points, on all ranks."""
        counts = part.counts
        start_step(self.work.seed, step, part.offset)
        _seed_torch(next_key(), self.device)

        batch = part.prepared.finish(self.device)
        with autocast(self.settings.precision, self.device):
            loss = self.loss(batch)
        if self.processes.count > 1:
            loss = loss * self._weight_of_shard(batch, counts)
        loss.backward()  # type: ignore[no-untyped-call]
        self.processes.all_reduce_gradients(self.module, counts)

        settings = self.settings
        self.optimiser.lr = settings.lr * settings.schedule.factor(step, self.plan.steps)
        self.optimiser.betas = (settings.schedule.beta1(step, self.plan.steps, settings.beta1), settings.beta2)
        self.optimiser.step()
        self.epoch_loss += self.processes.sum_over_ranks(loss) * part.points
        self.epoch_points += part.points
        return part.points

    def _weight_of_shard(self, batch: Batch, counts: bool) -> float:
        """Return this rank's share of the terms that the loss of the whole batch is the mean of."""
        terms = _loss_terms(self.module, batch) if counts else 0.0
        return terms / float(self.processes.sum_over_ranks(terms))

    def _read_loss(self, step: int) -> None:
        """Update the mean loss, and raise an error if it is not finite."""
        self.mean_loss = self.epoch_loss.item() / self.epoch_points
        if not math.isfinite(self.mean_loss):
            raise self._diverged("the loss", step)

    def _check_parameters(self) -> None:
        for name, parameter in self.module.named_parameters():
            if not torch.isfinite(parameter.detach().sum()):
                raise self._diverged(f"parameter {name}", self.plan.steps - 1)

    def _diverged(self, what: str, step: int) -> XCBenchError:
        epoch = self.plan.epoch_of(step) + 1
        return XCBenchError(
            f"{self.name}: {what} is no longer a finite number at step {step + 1} of {self.plan.steps} "
            f"(epoch {epoch} of {self.plan.epochs}); "
            f"a lower learning rate than {self.settings.lr:g} may help"
        )

    def _save(self, step: int) -> None:
        """Save a checkpoint, after so many steps."""
        self._read_loss(step - 1)
        progress = {
            "step": step,
            "losses": self.losses,
            "loss": self.epoch_loss.item(),
            "points": self.epoch_points,
        }
        self.checkpoint.save(self.module, self.optimiser, progress)

    def _resume(self) -> int:
        """Load the checkpoint, if there is one. Returns the step to continue with."""
        progress = self.checkpoint.restore(self.module, self.optimiser)
        if progress is None:
            return 0

        step = int(progress["step"])
        self.losses = list(progress["losses"])
        self.epoch_loss.fill_(progress["loss"])
        self.epoch_points = progress["points"]
        self.work.log(f"{self.name}: goes on from step {step}")
        return step


def _lr_factors(module: nn.Module, settings: Training) -> dict[str, float]:
    """Return what the learning rate of each parameter is multiplied by."""
    of_tables: dict[int, float] = {}
    for part in module.modules():
        if isinstance(part, TokenEmbeddings):
            of_tables[id(part.weight)] = 1.0
        elif isinstance(part, LabelBank) and part.weight.dim() == 2:
            of_tables[id(part.weight)] = settings.label_lr_factor

    return {name: of_tables.get(id(p), settings.block_lr_factor) for name, p in module.named_parameters()}


@contextlib.contextmanager
def _threads_for(estimate: MemoryEstimate) -> Iterator[None]:
    """Use one thread where steps are so small that waking a second one takes longer than its share of the work."""
    threads = torch.get_num_threads()
    if estimate["a step"] < SMALL_STEP:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _seed_torch(key: int, device: torch.device) -> None:
    """Seed torch's generators, for modules that draw from them."""
    torch.default_generator.manual_seed(key)  # `torch.manual_seed` would inspect the call stack at every step
    if device.type == "cuda":
        torch.cuda.manual_seed(key)


def _loss_terms(module: nn.Module, batch: Batch) -> float:
    """Return the number of terms that the module's loss is the mean of."""
    count: Callable[[Batch], float] | None = getattr(module, "loss_terms", None)
    if count is None:
        return float(len(batch.rows))
    return count(batch)


def _identity(plan: _BatchPlan, settings: Training, device: torch.device) -> dict[str, Any]:
    """Return what must be equal for a checkpoint to be continued."""
    relevant = asdict(settings)
    del relevant["checkpoint_seconds"]
    del relevant["compile"]
    return {"plan": asdict(plan), "settings": relevant, "device": device.type}


def _compiled(loss: Callable[[Batch], Tensor], requested: str) -> Callable[[Batch], Tensor]:
    """Compile a loss with torch if requested."""
    if requested not in ("on", "off"):
        raise InputError(f"compile is on or off, got {requested!r}")
    if requested == "on":
        return torch.compile(loss, dynamic=True)
    return loss
