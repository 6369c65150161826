"""What training a stage will cost, as a method says it before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StageCost:
    """The work of a stage's training, and what the stage writes. All figures follow from shapes.

    Parameters
    ----------
    operations
        Floating-point operations of the matrix products of all steps, forward and backward.
    traffic
        Bytes that all steps read and write beside these products: tables of labels, gradients, moments.
    output
        Bytes that the stage leaves in the cache.
    checkpoint
        Bytes of a checkpoint of its training.
    """

    operations: float = 0.0
    traffic: float = 0.0
    output: int = 0
    checkpoint: int = 0

    def __add__(self, other: StageCost) -> StageCost:
        """Return the cost of both at once."""
        return StageCost(
            self.operations + other.operations,
            self.traffic + other.traffic,
            self.output + other.output,
            self.checkpoint + other.checkpoint,
        )
