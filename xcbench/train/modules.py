"""How the modules of Astec, DECAF and ECLARE are trained on data of any size."""

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
    """Return settings for data of any size: so many epochs, but on small data at least so many steps.

    Parameters
    ----------
    lr
        The learning rate. It rises for a tenth of the training and then falls, both in straight lines.
    epochs
        How often each point is seen, if this gives enough steps.
    min_steps
        The smallest number of steps.
    """
    return Training(
        lr=lr,
        batch_size=256,
        epochs=epochs,
        min_steps=min_steps,
        schedule=Schedule("linear", warmup=0.1),
    )


def official_training(lr: float, epochs: int) -> Training:
    """Return the settings with which the authors of DECAF and ECLARE train every module: `lr` is halved at half time.

    Parameters
    ----------
    lr
        The learning rate.
    epochs
        How often each point is seen.
    """
    return Training(
        lr=lr,
        batch_size=255,
        epochs=epochs,
        schedule=halving_after(epochs // 2, epochs),
    )
