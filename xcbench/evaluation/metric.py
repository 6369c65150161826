"""Metric names, parsed in one place: `P@5`, `nDCG@3`, `PSP@1`, `PSnDCG@5`, `R@100`, `PSR@10`, `MRR`, `C@5`, `Cpred@20`.

docs/metrics.md has the formulas.
"""

import difflib
import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass

from xcbench.errors import InputError

LARGEST_K = 1_000_000_000


class Norm(enum.IntEnum):
    """What the gain collected in the first k places is divided by."""

    PLACES = 0  # k
    TRUTH = 1  # the number of true labels
    IDEAL_DISCOUNT = 2  # the discounts of the first min(k, true labels) places


@dataclass(frozen=True)
class GainFamily:
    """Metrics that add up a gain for each hit: six of them differ in nothing but these three traits."""

    propensity_scored: bool
    discounted: bool
    norm: Norm


GAIN_FAMILIES = {
    "P": GainFamily(False, False, Norm.PLACES),
    "nDCG": GainFamily(False, True, Norm.IDEAL_DISCOUNT),
    "R": GainFamily(False, False, Norm.TRUTH),
    "PSP": GainFamily(True, False, Norm.PLACES),
    "PSnDCG": GainFamily(True, True, Norm.IDEAL_DISCOUNT),
    "PSR": GainFamily(True, False, Norm.TRUTH),
}
RECIPROCAL_RANK = "MRR"
COVERAGE = "C"
PREDICTED_COVERAGE = "Cpred"
FAMILIES = (*GAIN_FAMILIES, RECIPROCAL_RANK, COVERAGE, PREDICTED_COVERAGE)

DEFAULT_METRICS = (
    *(f"{family}@{k}" for family in ("P", "nDCG", "PSP", "PSnDCG") for k in (1, 3, 5)),
    *("R@10", "R@100", "MRR@10", "C@5"),
)


@dataclass(frozen=True)
class Metric:
    """A family of metrics at one k; None means every place there is, which only MRR allows."""

    family: str
    k: int | None

    def __str__(self) -> str:
        return self.family if self.k is None else f"{self.family}@{self.k}"

    @property
    def gains(self) -> GainFamily | None:
        """How hits add up, for the families that are sums over hits."""
        return GAIN_FAMILIES.get(self.family)

    @property
    def needs_propensity(self) -> bool:
        return self.gains is not None and self.gains.propensity_scored

    @property
    def is_coverage(self) -> bool:
        """Coverage is a mean over labels, everything else is about points."""
        return self.family in (COVERAGE, PREDICTED_COVERAGE)


def parse_metric(name: str) -> Metric:
    """`psp@3` -> Metric("PSP", 3). Case does not matter; an unknown name is an `InputError` with the nearest one."""
    family, at, k = name.strip().partition("@")
    known = {spelling.lower(): spelling for spelling in FAMILIES}
    if family.lower() not in known:
        near = [known[match] + at + k for match in difflib.get_close_matches(family.lower(), known, cutoff=0.4)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(FAMILIES)}, each with @k"
        raise InputError(f"unknown metric {name!r}; {hint}")
    family = known[family.lower()]
    if not at:
        if family != RECIPROCAL_RANK:
            raise InputError(f"metric {name!r} needs a k, such as {family}@5")
        return Metric(family, None)
    if not re.fullmatch("[0-9]{1,10}", k) or not 1 <= int(k) <= LARGEST_K:
        raise InputError(f"metric {name!r}: the k after @ must be a whole number from 1 to {LARGEST_K}")
    return Metric(family, int(k))


def parse_metrics(names: Sequence[str]) -> tuple[Metric, ...]:
    """Metrics by name, in order, each once."""
    return tuple(dict.fromkeys(parse_metric(name) for name in names))


def places_needed(metrics: Sequence[Metric]) -> int | None:
    """How many places of a ranking these metrics look at; None for all of them."""
    ks = [metric.k for metric in metrics if metric.k is not None]
    return max(ks, default=0) if len(ks) == len(metrics) else None
