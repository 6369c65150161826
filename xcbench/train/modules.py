"""How a method's modules are trained on data of any size: what Astec, DECAF and ECLARE share of it."""

from __future__ import annotations

from dataclasses import dataclass

from xcbench.train.loop import Training
from xcbench.train.schedules import Schedule, halving_after


@dataclass(frozen=True)
class ModuleConfig:
    """How one module is trained."""

    training: Training
    dropout: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is at least 0 and below 1, got {self.dropout}")


def scaled_training(lr: float, epochs: int, min_steps: int) -> Training:
    """Counted in epochs, or in steps where those would be too few updates."""
    return Training(lr, 256, epochs, min_steps, schedule=Schedule("linear", warmup=0.1))


def official_training(lr: float, epochs: int) -> Training:
    """As the authors of DECAF and ECLARE train every module: the rate is halved at half time."""
    return Training(lr, 255, epochs, schedule=halving_after(epochs // 2, epochs))
