"""The common face of all metrics: what a metric declares about itself, and how it scores points or labels.

The metrics themselves are in `gains`, `reciprocal_rank` and `coverage`; `registry` lists them.
docs/reference/metrics.md has the formulas, and shows how to add a metric.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcbench.evaluation.arrays import FloatArray
from xcbench.evaluation.hits import Hits
from xcbench.evaluation.truth import Truth

ALL_PLACES = int(np.iinfo(np.int32).max)


class Unit(enum.Enum):
    """What a metric is averaged over, and what the bootstrap therefore resamples."""

    POINTS = "points"
    LABELS = "labels"


@dataclass(frozen=True)
class MetricFamily(ABC):
    """One metric, such as P or nDCG, at any k.

    A subclass computes `unit_scores`. Where many k can share work, it also overrides `values`.

    Parameters
    ----------
    name
        What users write before the @, in the spelling that tables show.
    """

    name: str

    unit: ClassVar[Unit] = Unit.POINTS

    needs_k: ClassVar[bool] = True
    """Whether the name must be followed by @k. Without a k, a metric looks at all places."""

    is_sum_over_hits: ClassVar[bool] = False
    """Whether each hit adds something of its own, so that the contributions of groups of labels add up."""

    @property
    def needs_propensities(self) -> bool:
        """Whether the metric weighs labels by their inverse propensities."""
        return False

    @abstractmethod
    def unit_scores(self, hits: Hits, truth: Truth, k: int) -> tuple[FloatArray, FloatArray | None]:
        """Numerators and denominators of all units; the metric is sum(numerators) / sum(denominators).

        Parameters
        ----------
        hits
            The correct predictions.
        truth
            The true labels.
        k
            How many places count. `ALL_PLACES` if the user gave no k.

        Returns
        -------
        tuple
            One numerator per unit, and one denominator per unit. None as denominators makes the metric a plain mean.
        """

    def values(self, hits: Hits, truth: Truth, ks: Sequence[int]) -> list[float]:
        """The metric in percent for each k of a list."""
        return [percent(*self.unit_scores(hits, truth, k)) for k in ks]

    def at(self, k: int | None = None) -> Metric:
        """This metric at one k; None means all places."""
        return Metric(self, k)


@dataclass(frozen=True)
class Metric:
    """A metric at one k, such as P@5.

    Parameters
    ----------
    family
        Which metric.
    k
        How many places count. None means all places, which only some metrics allow.
    """

    family: MetricFamily
    k: int | None

    def __str__(self) -> str:
        if self.k is None:
            return self.family.name
        return f"{self.family.name}@{self.k}"

    @property
    def places(self) -> int:
        """How many places of a ranking count."""
        if self.k is None:
            return ALL_PLACES
        return self.k


def percent(numerators: FloatArray, denominators: FloatArray | None) -> float:
    """The metric that unit scores add up to, in percent; 0 where there is nothing to find."""
    if denominators is None:
        total = float(len(numerators))
    else:
        total = float(denominators.sum())

    if not total:
        return 0.0
    return 100 * float(numerators.sum()) / total
