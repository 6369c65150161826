"""Which weights a training ends with: the last ones, the average of many, or those that did best on held-out points."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from xcbench.train.groups import GroupedAdam


@dataclass(frozen=True)
class Keeping:
    """Which weights to keep."""

    average_from: float | None = None
    """The share of the training after which the averaging of weights begins; None for no averaging."""
    average_every: int = 1
    """Steps between two weights that enter the average. The last ones always do."""
    validate_every: int = 1
    """Epochs between two validations, if there are any. One always comes after the last epoch."""

    def __post_init__(self) -> None:
        if min(self.average_every, self.validate_every) < 1:
            raise ValueError("average_every and validate_every are at least 1")
        if self.average_from is not None and not 0 <= self.average_from < 1:
            raise ValueError(f"average_from is at least 0 and below 1, got {self.average_from}")

    def averages(self, done: int, total: int) -> bool:
        """Whether the weights after `done` of `total` steps enter the average."""
        if self.average_from is None or done <= self.average_from * total:
            return False
        return (total - done) % self.average_every == 0

    def validates(self, done: int, total: int) -> bool:
        """Whether there is a validation after `done` of `total` epochs."""
        return done % self.validate_every == 0 or done == total


class KeptWeights:
    """The average of the weights that a training passes through, and the best weights so far.

    Parameters
    ----------
    module
        The module that is trained.
    optimiser
        Knows which parameters are averaged, and brings rows up to date before they are read.
    keeping
        Which weights are kept.
    validate
        Returns how well the module does on held-out points, the greater the better; None to keep the last weights.
    log
        Told about every validation.
    """

    def __init__(
        self,
        module: nn.Module,
        optimiser: GroupedAdam,
        keeping: Keeping,
        validate: Callable[[nn.Module], float] | None,
        log: Callable[[str], None],
    ) -> None:
        self.module = module
        self.optimiser = optimiser
        self.keeping = keeping
        self.validate = validate
        self.log = log

        self.averaged: dict[str, nn.Parameter] = {}
        if keeping.average_from is not None:
            self.averaged = optimiser.averaged()
        self.means = {name: parameter.detach().clone() for name, parameter in self.averaged.items()}
        self.count = 0  # of the weights in the average

        self.best: dict[str, Tensor] = {}
        if validate is not None:
            self.best = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        self.best_score = -math.inf

    @torch.no_grad()
    def after_step(self, done: int, total: int) -> None:
        """Let the weights of this moment enter the average, if they are to."""
        if not self.keeping.averages(done, total):
            return
        self.optimiser.settle()
        self.count += 1
        for name, mean in self.means.items():
            mean.lerp_(self.averaged[name], 1 / self.count)

    @torch.no_grad()
    def after_epoch(self, done: int, total: int) -> None:
        """Validate the module, if it is time, and keep its weights if they are the best so far."""
        if self.validate is None or not self.keeping.validates(done, total):
            return
        self.optimiser.settle()
        with self._means_in_place():
            self.module.eval()
            score = self.validate(self.module)
            self.module.train()
            self.log(f"epoch {done} of {total}: {score:.4f} on held-out points")
            if score > self.best_score:
                self.best_score = score
                for name, tensor in self.module.state_dict().items():
                    self.best[name].copy_(tensor)

    @torch.no_grad()
    def put_in_place(self) -> None:
        """Replace the module's weights by those that are kept."""
        if self.validate is not None:
            for name, tensor in self.module.state_dict().items():
                tensor.copy_(self.best[name])
        elif self.count > 0:
            for name, mean in self.means.items():
                self.averaged[name].copy_(mean)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint needs, by name."""
        state = {f"mean.{name}": tensor for name, tensor in self.means.items()}
        state |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        return state

    def progress(self) -> dict[str, float]:
        """Return what else a checkpoint needs."""
        return {"averaged": self.count, "best_score": self.best_score}

    def resume(self, progress: Mapping[str, Any]) -> None:
        """Continue from what `progress` returned."""
        self.count = int(progress["averaged"])
        self.best_score = float(progress["best_score"])

    @contextlib.contextmanager
    def _means_in_place(self) -> Iterator[None]:
        """Replace the weights by their average for a while, if there is one."""
        if self.count == 0:
            yield
            return
        last = {name: parameter.detach().clone() for name, parameter in self.averaged.items()}
        for name, mean in self.means.items():
            self.averaged[name].copy_(mean)
        try:
            yield
        finally:
            for name, value in last.items():
                self.averaged[name].copy_(value)
