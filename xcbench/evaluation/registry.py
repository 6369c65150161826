"""Every metric there is, and how its name is read: `P@5`, `nDCG@3`, `MRR`.

To add a metric, add a line to `METRICS`; a metric that no class here computes is one more subclass of `MetricFamily`.
"""

import difflib
import re
from collections.abc import Sequence

from xcbench.errors import InputError
from xcbench.evaluation.coverage import Coverage
from xcbench.evaluation.gains import GainMetric, Norm
from xcbench.evaluation.metric import Metric, MetricFamily
from xcbench.evaluation.reciprocal_rank import ReciprocalRank

TITLES = {
    "P": "precision: hits in the first k places / k",
    "nDCG": "discounted gain of the hits / that of an ideal ranking",
    "R": "recall: hits in the first k places / true labels",
    "PSP": "precision, hits weighted by inverse propensity, / that of an ideal ranking",
    "PSnDCG": "nDCG, hits weighted by inverse propensity, / that of an ideal ranking",
    "PSR": "recall, hits weighted by inverse propensity, / that of an ideal ranking",
    "MRR": "1 / place of the first hit",
    "C": "share of labels that are a hit in the first k places of some point",
    "Cpred": "share of labels in the first k places of some point, hit or not",
}
"""What each metric is, in a line; docs/reference/metrics.md has the definitions."""

SYNONYMS = {
    "precision": "P",
    "prec": "P",
    "recall": "R",
    "rec": "R",
    "ps-precision": "PSP",
    "psprecision": "PSP",
    "propensity-scored-precision": "PSP",
    "ps-ndcg": "PSnDCG",
    "propensity-scored-ndcg": "PSnDCG",
    "ps-recall": "PSR",
    "psrecall": "PSR",
    "propensity-scored-recall": "PSR",
    "mean-reciprocal-rank": "MRR",
}
"""Longer names of metrics, in small letters with - between words."""
LARGEST_K = 1_000_000_000

METRICS: tuple[MetricFamily, ...] = (
    GainMetric("P", Norm.PLACES),
    GainMetric("nDCG", Norm.IDEAL_DISCOUNT, discounted=True),
    GainMetric("R", Norm.TRUTH),
    GainMetric("PSP", Norm.PLACES, propensity_scored=True),
    GainMetric("PSnDCG", Norm.IDEAL_DISCOUNT, discounted=True, propensity_scored=True),
    GainMetric("PSR", Norm.TRUTH, propensity_scored=True),
    ReciprocalRank("MRR"),
    Coverage("C", only_hits=True),
    Coverage("Cpred", only_hits=False),
)

DEFAULT_METRICS = (
    *("P@1", "P@3", "P@5"),
    *("nDCG@1", "nDCG@3", "nDCG@5"),
    *("PSP@1", "PSP@3", "PSP@5"),
    *("PSnDCG@1", "PSnDCG@3", "PSnDCG@5"),
    *("R@10", "R@100"),
    "MRR@10",
    "C@5",
)
"""What a run records, and what `evaluate` computes unless told otherwise."""


def parse_metric(name: str | Metric) -> Metric:
    """Read the name of a metric.

    Parameters
    ----------
    name
        A name such as `psp@3`, in any case. A `Metric` is returned as it is.

    Returns
    -------
    Metric
        The metric with its k.

    Raises
    ------
    InputError
        Where no metric has this name (the message names the nearest), or where the k is missing or no whole number.
    """
    if isinstance(name, Metric):
        return name

    if not isinstance(name, str):
        raise InputError(f"a metric is named by a text such as P@5, got {name!r}")
    family_name, at, k = name.strip().partition("@")
    known = {family.name.lower(): family for family in METRICS}
    long_name = family_name.strip().lower().replace("_", "-").replace(" ", "-")
    family = known.get(SYNONYMS.get(long_name, family_name).lower())
    if family is None:
        raise _unknown_metric(name, known)

    if not at:
        if family.needs_k:
            raise InputError(f"metric {name!r} needs a k, such as {family.name}@5")
        return family.at()

    if not re.fullmatch("[0-9]{1,10}", k) or not 1 <= int(k) <= LARGEST_K:
        raise InputError(f"metric {name!r}: the k after @ must be a whole number from 1 to {LARGEST_K}")
    return family.at(int(k))


def parse_metrics(names: Sequence[str | Metric]) -> tuple[Metric, ...]:
    """Read the names of several metrics (see `parse_metric`); a metric named twice is returned once."""
    metrics = [parse_metric(name) for name in names]
    return tuple(dict.fromkeys(metrics))


def places_needed(metrics: Sequence[Metric]) -> int | None:
    """How many places of a ranking these metrics look at; None if one of them looks at all places."""
    ks = [0]
    for metric in metrics:
        if metric.k is None:
            return None
        ks.append(metric.k)
    return max(ks)


def _unknown_metric(name: str, known: dict[str, MetricFamily]) -> InputError:
    family_name, at, k = name.strip().partition("@")
    matches = difflib.get_close_matches(family_name.lower(), known, cutoff=0.4)
    nearest = [known[match].name + at + k for match in matches]

    if nearest:
        hint = f"did you mean {' or '.join(nearest)}?"
    else:
        names = ", ".join(family.name for family in known.values())
        hint = f"known: {names}, each with @k"
    return InputError(f"unknown metric {name!r}; {hint}")
