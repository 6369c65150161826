"""How a method's modules are trained on data of any size: what DECAF and ECLARE share of it."""

from __future__ import annotations

from dataclasses import dataclass

from xcbench.train.loop import Training
from xcbench.train.schedules import Schedule, halving_after

FEW_POINTS = 20_000


@dataclass(frozen=True)
class ModuleConfig:
    """How one module is trained."""

    training: Training
    dropout: float | None = None
    """None: 0.5, but 0.3 from 20,000 training points on, which are harder to learn by heart."""

    def __post_init__(self) -> None:
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is at least 0 and below 1, got {self.dropout}")

    def dropout_for(self, points: int) -> float:
        if self.dropout is not None:
            return self.dropout
        return 0.5 if points < FEW_POINTS else 0.3


def short_training(lr: float, least_steps: int) -> Training:
    """Four epochs, counted in steps where those would be too few updates.

    What all points share learns slower than what few of them do: small data is learnt by heart there first.
    """
    schedule = Schedule("linear", warmup=0.1)
    return Training(lr, 256, 4, least_steps, schedule=schedule, free_rate=0.3, block_rate=0.1)


def official_training(lr: float, epochs: int) -> Training:
    """As the authors of DECAF and ECLARE train every module: the rate is halved at half time."""
    return Training(lr, 255, epochs, schedule=halving_after(epochs // 2, epochs))
