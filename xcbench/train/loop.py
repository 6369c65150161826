"""The training loop: any module with a loss, any points, Adam, and a learning-rate schedule."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from xcbench.errors import InputError, XCBenchError
from xcbench.kernels.arrays import Longs
from xcbench.kernels.memory import MemoryEstimate
from xcbench.nn import LabelBank, TokenEmbeddings
from xcbench.nn.dropout import first_key, next_key, start_step
from xcbench.progress import Counter
from xcbench.signals import HeldInterrupt
from xcbench.train.ahead import made_ahead
from xcbench.train.batches import Batch, Points, PreparedBatch
from xcbench.train.checkpoints import Checkpoint
from xcbench.train.devices import autocast, resolve_device
from xcbench.train.groups import Group, GroupedAdam
from xcbench.train.kept_weights import Keeping, KeptWeights
from xcbench.train.label_shards import LabelShards
from xcbench.train.memory import WORKING_COPIES, check_fits, estimate_memory, keep_freed_memory, working_copies
from xcbench.train.processes import Processes
from xcbench.train.schedules import Schedule
from xcbench.train.stopping import last_step

READ_LOSS_EVERY = 50
"""Steps between two readings of the loss from a GPU. On a CPU it is known, and checked, at every step."""

SMALL_STEP = 2 << 20
"""Bytes that a step works on, below which it runs in one thread."""


@runtime_checkable
class Trainable(Protocol):
    """What the loop needs of a module besides being one."""

    def loss(self, batch: Batch) -> Tensor:
        """Return a mean over the batch: over its points, unless a method `loss_terms(batch)` counts something else."""


Validate: TypeAlias = Callable[[nn.Module], float]
"""Returns how well a module, in eval mode, does on held-out points: the greater, the better."""

Initialise: TypeAlias = Callable[[nn.Module, Points], None]
"""Called before the first step, with the module and the points. A training that continues a checkpoint skips it."""


@dataclass(frozen=True)
class Training:
    """How long and how fast to learn."""

    lr: float = 0.01
    batch_size: int = 255
    epochs: int = 20
    min_steps: int = 0
    """On small data, where `epochs` would be too few updates, training goes on until it has had this many. Where label
    titles are points, too, it is more in proportion."""
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

    def step_count(self, points: Points) -> int:
        """Return how many steps a training on these points takes."""
        return self.steps_on(len(points), points.titles)

    def steps_on(self, points: int, titles: int = 0) -> int:
        """Return how many steps a training on so many points takes, of which some are label titles."""
        if points == 0:
            return 0
        return _BatchPlan.of(points, self, 0, titles).steps


@dataclass(frozen=True)
class GroupedTraining(Training):
    """A training whose parameters learn in groups, and which may keep other weights than the last ones."""

    groups: dict[str, Group] = field(default_factory=dict)
    """By names of your choice. Parameters that match no pattern learn as `lr` and `schedule` say."""
    keep: Keeping = field(default_factory=Keeping)


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
    def of(cls, points: int, settings: Training, seed: int, titles: int = 0) -> _BatchPlan:
        batch_size = min(settings.batch_size, points)
        if settings.steps is not None:
            return cls(points, batch_size, settings.steps, seed)
        steps_per_epoch = -(-points // batch_size)
        min_steps = settings.min_steps
        if 0 < titles < points:
            # Label titles come on top: other points are seen as often as they would be without them.
            min_steps = -(-min_steps * points // (points - titles))
        steps = max(settings.epochs * steps_per_epoch, min_steps)
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
    validate: Validate | None = None,
) -> TrainReport:
    """Train a module in place and leave it in eval mode.

    The same seed and number of threads give the same parameters, bit for bit on a CPU, whether or not the process was
    killed on the way: training continues from the last checkpoint in `work.checkpoints`. On Ctrl-C and SIGTERM it
    writes one before it lets them have their effect.

    Parameters
    ----------
    module
        A module with a method `loss(batch)`. If it has a method `start_epoch()`, that is called before every epoch;
        what it computes belongs into buffers, so that a killed training can continue.
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
    validate
        Called with the module after every epoch, or as often as `GroupedTraining.keep` says. The module ends with the
        weights that did best; without it, with the last ones.
    """
    work = work or Work()
    if not isinstance(module, Trainable):
        raise TypeError(f"{type(module).__name__} has no loss(batch) to train on")
    if len(points) == 0:
        raise InputError(f"{name}: there are no points to train on")

    plan = _BatchPlan.of(len(points), settings, work.seed, points.titles)
    device = resolve_device(work.device)
    processes = Processes.join()
    checkpoint = Checkpoint(
        work.checkpoints,
        name,
        identity=_identity(plan, settings, device),
        every=settings.checkpoint_seconds,
    )
    shards = None
    if validate is None:  # held-out points are ranked against all labels
        shards = LabelShards.of(module, points.targets.width, processes)
    if shards is not None:
        # Until they are split, the tables of all labels are in main memory only: a device may not have room for them.
        if initialise is not None:
            initialise(module, points)
            initialise = None
        processes.broadcast_parameters(module)
        shards.split()

    estimate = estimate_memory(module, points, plan.batch_size, device, shards)
    work.log(f"{name}: {plan.steps} steps on {device}{_division(processes, shards)}, about {estimate}")
    check_fits(estimate, name, device)

    with keep_freed_memory(), _threads_for(estimate, module):
        trainer = _Trainer(
            module.to(device), points, settings, plan, device, processes, shards, checkpoint, work, name, validate
        )
        return trainer.run(initialise)


def _division(processes: Processes, shards: LabelShards | None) -> str:
    """Return what the log says about several processes."""
    if processes.count == 1:
        return ""
    if shards is None:
        return f", points split over {processes.count} processes"
    return f", points and labels split over {processes.count} processes"


@dataclass(frozen=True)
class _StepBatch:
    """The batch of a step, as far as this rank works on it."""

    prepared: PreparedBatch
    points: int  # of the whole batch, on all ranks
    offset: int  # of this rank's shard within the batch
    counts: bool  # see `Processes.shard`

    @property
    def first_label(self) -> int:
        """The position of this rank's first label among those of the batch."""
        if self.prepared.share is None:
            return 0
        return self.prepared.share.first_label


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
        shards: LabelShards | None,
        checkpoint: Checkpoint,
        work: WorkLike,
        name: str,
        validate: Validate | None = None,
    ) -> None:
        self.module = module
        self.points = points
        self.settings = settings
        self.plan = plan
        self.device = device
        self.processes = processes
        self.shards = shards
        self.checkpoint = checkpoint
        self.work = work
        self.name = name

        self.loss = _compiled(cast("Trainable", module).loss, settings.compile)
        groups: Mapping[str, Group] = {}
        keeping = Keeping()
        if isinstance(settings, GroupedTraining):
            groups = settings.groups
            keeping = settings.keep
        self.optimiser = GroupedAdam(
            module,
            groups,
            rest=Group(lr=settings.lr, schedule=settings.schedule),
            betas=(settings.beta1, settings.beta2),
            eps=settings.eps,
            lr_factors=_lr_factors(module, settings),
        )
        self.own_parameters: set[int] = set()  # the ids of those of which each rank has other rows
        if shards is not None:
            self.own_parameters = {id(parameter) for parameter in shards.parameters.values()}
        self.kept = KeptWeights(module, self.optimiser, keeping, validate, work.log)
        self.interrupt = HeldInterrupt()

        self.losses: list[float] = []  # the mean loss of each finished epoch
        self.epoch_loss = torch.zeros((), dtype=torch.float64, device=device)  # sum over the points of this epoch
        self.epoch_points = 0
        self.mean_loss = math.nan  # of this epoch's points, as last read from the device

    def run(self, initialise: Initialise | None) -> TrainReport:
        plan = self.plan
        stop = last_step(plan.steps)
        step = self._resume()
        if step == 0 and initialise is not None:
            initialise(self.module, self.points)
        self.module.train()
        if self.shards is None:
            self.processes.broadcast_parameters(self.module)

        with (
            Counter(
                self.name,
                total=plan.points_before(plan.steps),
                log=self.work.log,
                done=plan.points_before(step),
                shown=self.processes.rank == 0,
            ) as counter,
            self._batches_in_time(step) as batches,
            self._held_interrupt(),
        ):
            while step < stop:
                end = min(plan.end_of_epoch(step), stop)
                self._train_epoch(step, end, batches, counter)
                step = end

        self.optimiser.close()
        self.kept.put_in_place()
        if self.shards is not None:
            self.shards.join()
        self._check_parameters()
        self.module.eval()
        return TrainReport(stop, counter.seconds, counter.per_second, tuple(self.losses))

    def _held_interrupt(self) -> contextlib.AbstractContextManager[object]:
        """Hold Ctrl-C and SIGTERM back until a checkpoint is written, if checkpoints are."""
        if self.checkpoint.path is None:
            return contextlib.nullcontext()
        return self.interrupt

    def _train_epoch(self, first_step: int, end: int, batches: Iterator[_StepBatch], counter: Counter) -> None:
        """Train from a step to the end of its epoch, or to where training stops. `batches` has the batch of each."""
        if first_step % self.plan.steps_per_epoch == 0:
            self._start_epoch()
        for step in range(first_step, end):
            points = self._train_step(step, next(batches))

            done = step + 1
            reads_loss = self.device.type == "cpu" or done % READ_LOSS_EVERY == 0 or done == end
            if reads_loss:
                self._read_loss(step)
            counter.advance(points, f"loss {self.mean_loss:.4g}, {counter.per_second:.0f} points/s")
            if done == end:
                self._end_epoch(step)
            if self.optimiser.holds_nothing(done, self.plan.steps) and self._is_time_to_save(reads_loss):
                self._save(done)
                self._stop_if_interrupted(done)

    def _stop_if_interrupted(self, done: int) -> None:
        if self.interrupt.came:
            self.work.log(f"{self.name}: stopped after step {done} of {self.plan.steps}, with a checkpoint")
            self.interrupt.deliver()

    def _start_epoch(self) -> None:
        """Let the module compute what it computes once per epoch."""
        start: Callable[[], None] | None = getattr(self.module, "start_epoch", None)
        if start is not None:
            self.optimiser.settle()
            start()

    def _end_epoch(self, step: int) -> None:
        self.losses.append(self.mean_loss)
        self.epoch_loss.zero_()
        self.epoch_points = 0
        self.kept.after_epoch(self.plan.epoch_of(step) + 1, self.plan.epochs)

    def _batches(self, first_step: int) -> Iterator[_StepBatch]:
        """Yield the batches of this and all later steps. On the way to a GPU, they are in page-locked memory."""
        for step in range(first_step, self.plan.steps):
            if step == first_step or step % self.plan.steps_per_epoch == 0:
                order = self.plan.order(step)
            batch = self._cut(self.plan.rows(order, step), first_key(self.work.seed, step))
            if self.device.type == "cuda":
                batch.prepared.pin()
            yield batch

    def _cut(self, rows: Longs, key: int) -> _StepBatch:
        """Return this rank's part of the batch of some points."""
        if self.shards is not None:
            share = self.shards.prepare(self.points, rows, key)
            return _StepBatch(share, len(rows), self.processes.part(len(rows)).start, counts=True)

        shard, offset, counts = self.processes.shard(rows)
        return _StepBatch(self.points.prepare(shard, key), len(rows), offset, counts)

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
        start_step(self.work.seed, step, part.offset, part.first_label)
        _seed_torch(next_key(), self.device)

        batch = part.prepared.finish(self.device)
        with autocast(self.settings.precision, self.device):
            loss = self.loss(batch)
        if self.processes.count > 1 and self.shards is None:
            loss = loss * self._weight_of_shard(batch, counts)
        loss.backward()  # type: ignore[no-untyped-call]
        self.processes.all_reduce_gradients(self.module, counts, self.own_parameters)

        self.optimiser.step(step, self.plan.steps)
        self.kept.after_step(step + 1, self.plan.steps)
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

    def _is_time_to_save(self, reads_loss: bool) -> bool:
        """Whether to save a checkpoint now. All ranks agree with rank 0, at steps where they wait anyway."""
        is_time = self.checkpoint.due() or self.interrupt.came
        if self.processes.count == 1:
            return is_time
        if self.checkpoint.path is None or not reads_loss:
            return False
        return self.processes.broadcast(is_time)

    def _save(self, step: int) -> None:
        """Save a checkpoint, after so many steps. Rank 0 writes it."""
        if self.shards is None and self.processes.rank > 0:
            return
        if self.epoch_points > 0:
            self._read_loss(step - 1)
        progress = {
            "step": step,
            "losses": self.losses,
            "loss": self.epoch_loss.item(),
            "points": self.epoch_points,
            **self.kept.progress(),
        }
        self.checkpoint.save(self.module, self._state(), progress, self.shards)

    def _state(self) -> dict[str, Tensor]:
        """Return the tensors beside the module's that a continued training needs."""
        moments = {f"adam.{name}": tensor for name, tensor in self.optimiser.state().items()}
        return moments | self.kept.state()

    def _resume(self) -> int:
        """Load the checkpoint, if there is one. Returns the step to continue with."""
        progress = self.checkpoint.restore(self.module, self._state(), self.shards)
        step = 0
        if progress is not None:
            step = int(progress["step"])
        if self.processes.sum_over_ranks(step) != step * self.processes.count:
            raise XCBenchError(f"{self.name}: not all ranks see the checkpoint that rank 0 wrote")
        if progress is None:
            return 0

        self.optimiser.resume(step)
        self.kept.resume(progress)
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
def _threads_for(estimate: MemoryEstimate, module: nn.Module) -> Iterator[None]:
    """Use one thread where steps are so small that waking a second one takes longer than its share of the work."""
    threads = torch.get_num_threads()
    step = estimate["a step"]
    if not estimate.device_parts:
        # The limit was found for as many tables as text has: free vectors take less memory, but no less work.
        step = step * WORKING_COPIES // working_copies(module)
    if step < SMALL_STEP:
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
