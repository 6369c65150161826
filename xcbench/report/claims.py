"""Does what a paper concludes hold on our runs? Each claim is one or more differences, paired over test points.

All differences that a file claims are corrected together (Holm): the more is claimed, the more it takes to say that
something holds. What the test cannot decide is called undecided, with an estimate of how many test points would do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import NormalDist

import numpy as np

from xcbench.data import Dataset
from xcbench.evaluation import holm
from xcbench.report import paper
from xcbench.report.availability import check, unavailable
from xcbench.report.columns import column
from xcbench.report.comparison import SEEDS_FOR_NOISE
from xcbench.report.experiments import Claim, Experiment
from xcbench.report.grid import EMPTY_CELL, Grid, Notes, Text
from xcbench.report.scores import DatasetRuns, ScoreTable
from xcbench.report.tables import ALPHA, runnable

POWER = 0.8
"""The chance that a difference is found with as many test points as an undecided finding asks for."""


class Verdict(Enum):
    """What came of testing a difference."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided at this sample size"
    FEW_SEEDS = "undecided for want of seeds"
    UNAVAILABLE = "not available"


@dataclass(frozen=True)
class Part:
    """The same difference on some of the test points: shown, not tested."""

    points: str
    """Which ones, in words."""
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Finding:
    """One difference that a claim is about, and what came of testing it."""

    claim: Claim
    dataset: str
    metric: str
    weights: Mapping[str, float]
    """The difference, as rows and their signs."""
    verdict: Verdict
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p_value: float = math.nan
    """Holm-corrected over the file."""
    seeds: int = 0
    """The fewest that a row of the difference has."""
    reason: str = ""
    """Why the verdict is undecided or not available."""
    published: tuple[float, ...] = ()
    """The same difference in the paper's figures, on each of the paper's datasets."""
    parts: tuple[Part, ...] = ()

    @property
    def description(self) -> str:
        """The difference in words."""
        if len(self.weights) == 2:
            better = next(row for row, weight in self.weights.items() if weight > 0)
            worse = next(row for row, weight in self.weights.items() if weight < 0)
            return f"{better} vs {worse}"
        gain = self.claim.gain
        exceeds = self.claim.exceeds
        return f"({gain[0]} vs {gain[1]}) vs ({exceeds[0]} vs {exceeds[1]})"


def judge_claims(
    experiment: Experiment,
    dataset_runs: Sequence[DatasetRuns],
    seeds: Sequence[int],
) -> list[Finding]:
    """Test every claim of an experiment on every dataset in its scope, with what the store holds.

    Parameters
    ----------
    experiment
        The table or figure whose claims to test.
    dataset_runs
        The datasets, each with the store of its runs.
    seeds
        The seeds to average over.
    """
    check(experiment)
    metrics: list[str] = []
    for claim in experiment.claims:
        metrics += [metric for metric in claim.metrics if metric not in metrics]
    columns = [column(metric) for metric in metrics]

    findings: list[Finding] = []
    for runs in dataset_runs:
        records = {row.label: list(runs.records(row, seeds).values()) for row in runnable(experiment)}
        scores = ScoreTable(runs.data, records, columns)
        questions = _questions(experiment, runs.data.name)
        findings_of_data = [_test(question, experiment, scores) for question in questions]
        findings += [_with_parts(finding, runs.data, scores) for finding in findings_of_data]
    return _decided_together(findings)


def _questions(experiment: Experiment, dataset: str) -> Iterator[Finding]:
    """Yield every difference that is claimed for a dataset, not yet tested."""
    for claim in experiment.claims:
        if not _is_about(claim, dataset):
            continue
        for metric in claim.metrics:
            for weights in claimed_differences(claim):
                published = published_differences(experiment, claim, metric, weights)
                yield Finding(
                    claim=claim,
                    dataset=dataset,
                    metric=metric,
                    weights=weights,
                    verdict=Verdict.UNDECIDED,
                    published=tuple(published.values()),
                )


def _is_about(claim: Claim, dataset: str) -> bool:
    """Return whether a claim is made for a dataset: one without a scope is made for all."""
    if not claim.datasets:
        return True
    return dataset.lower() in [name.lower() for name in claim.datasets]


def claimed_differences(claim: Claim) -> Iterator[dict[str, float]]:
    """Yield the differences that a claim says are positive, each as rows and their signs."""
    if claim.better is not None:
        for worse in claim.worse:
            yield {claim.better: 1.0, worse: -1.0}
        return

    weights: dict[str, float] = {}
    signs = (1.0, -1.0, -1.0, 1.0)
    for row, sign in zip((*claim.gain, *claim.exceeds), signs, strict=True):
        weights[row] = weights.get(row, 0.0) + sign
    yield weights


def published_differences(
    experiment: Experiment,
    claim: Claim,
    metric: str,
    weights: Mapping[str, float],
) -> dict[str, float]:
    """Return a difference in the paper's own figures, by dataset, where it prints all that it takes.

    Parameters
    ----------
    experiment
        The table or figure.
    claim
        The claim that the difference belongs to; its scope decides about which datasets.
    metric
        The name of the metric.
    weights
        The difference, as rows and their signs.
    """
    result = {}
    for dataset in paper.datasets(experiment):
        if not _is_about(claim, dataset):
            continue
        terms = []
        for row, weight in weights.items():
            figure = paper.figure(experiment, dataset, row, metric)
            if figure is not None and figure.value is not None:
                terms.append(weight * figure.value)
        if len(terms) == len(weights):
            result[dataset] = sum(terms)
    return result


def _test(question: Finding, experiment: Experiment, scores: ScoreTable) -> Finding:
    """Return the finding with its difference, interval and raw p-value; or with why there is none."""
    for label in question.weights:
        if not scores.has(label, question.metric):
            reason = unavailable(experiment.row(label)) or f"{label} has not been run on {question.dataset}"
            return replace(question, verdict=Verdict.UNAVAILABLE, reason=reason)

    margin = question.claim.margin
    result = scores.contrast(question.metric, question.weights, margin)
    return replace(
        question,
        seeds=min(len(scores.records[label]) for label in question.weights),
        difference=result.difference + margin,
        low=result.low + margin,
        high=result.high + margin,
        p_value=result.p_value,
    )


def _with_parts(finding: Finding, data: Dataset, scores: ScoreTable) -> Finding:
    """Return a finding with what it is among points that are themselves labels, and among all others, if asked."""
    if not finding.claim.labels_apart or finding.verdict is Verdict.UNAVAILABLE:
        return finding
    are_labels = np.zeros(len(data.test), bool)
    are_labels[data.test.filter[:, 0]] = True
    parts = []
    for name, counted in (("points that are labels", are_labels), ("other points", ~are_labels)):
        count = int(counted.sum())
        if count:
            result = scores.contrast_among(counted, finding.metric, finding.weights)
            parts.append(Part(f"{count:,} {name}", result.difference, result.low, result.high))
    return replace(finding, parts=tuple(parts))


def _decided_together(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with verdicts, from p-values that are corrected for how many differences the file claims."""
    p_values = [finding.p_value for finding in findings if finding.verdict is not Verdict.UNAVAILABLE]
    if not p_values:
        return list(findings)

    corrected = iter(holm(p_values))
    result = []
    for finding in findings:
        if finding.verdict is Verdict.UNAVAILABLE:
            result.append(finding)
        else:
            result.append(_decided(finding, next(corrected)))
    return result


def _decided(finding: Finding, p_value: float) -> Finding:
    """Return a finding with the verdict that follows from its corrected p-value."""
    if p_value > ALPHA:
        return replace(finding, p_value=p_value, verdict=Verdict.UNDECIDED, reason=_more_points(finding))
    if finding.seeds < SEEDS_FOR_NOISE:
        missing = SEEDS_FOR_NOISE - finding.seeds
        reason = f"beyond chance over test points; {missing} more seeds are needed to tell it from training noise"
        return replace(finding, p_value=p_value, verdict=Verdict.FEW_SEEDS, reason=reason)
    if finding.difference - finding.claim.margin > 0:
        return replace(finding, p_value=p_value, verdict=Verdict.HOLDS)
    return replace(finding, p_value=p_value, verdict=Verdict.FAILS)


def _more_points(finding: Finding) -> str:
    """Return how many times as many test points it would take if the difference is what it seems to be."""
    half_width = (finding.high - finding.low) / 2
    beyond = abs(finding.difference - finding.claim.margin)
    if not beyond or not half_width:
        return "no difference at all"

    error = half_width / NormalDist().inv_cdf(0.975)
    needed = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(POWER)
    times = (needed * error / beyond) ** 2
    if times > 100:
        return "next to no difference"
    if times >= 10:
        shown = f"{times:.0f}"
    else:
        shown = f"{max(times, 1.1):.1f}"
    return f"a difference of this size would need about {shown} times as many test points"


CLAIMS_LEGEND = (
    "ours, paper: difference in percentage points; the paper's on its own datasets.",
    f"Intervals of 95% over test points and seeds, p Holm-corrected over the differences tested, {ALPHA:.0%}.",
    f"With fewer than {SEEDS_FOR_NOISE} seeds the noise of training is not in them, and nothing holds.",
)
_HEADER = ("", "metric", "paper", "ours", "95% interval", "p", "verdict")


def claims_grid(experiment: Experiment, findings: Sequence[Finding]) -> Grid:
    """Return findings as a table, the sentence of each claim once, above what is tested of it.

    Parameters
    ----------
    experiment
        The table or figure that makes the claims.
    findings
        What `judge_claims` returned.
    """
    datasets = list(dict.fromkeys(finding.dataset for finding in findings))
    notes = Notes()
    rows: list[tuple[Text, ...]] = []
    for number, claim in enumerate(experiment.claims, 1):
        findings_of_claim = [finding for finding in findings if finding.claim is claim]
        if not findings_of_claim:
            continue
        empty = [Text("")] * (len(_HEADER) - 1)
        rows.append((Text(f"{number}. {claim.says}"), *empty))
        for finding in findings_of_claim:
            rows.append(_finding_row(finding, notes, with_dataset=len(datasets) > 1))
            rows += [_part_row(finding, part) for part in finding.parts]

    legend = (f"{_summary(findings)}.", *CLAIMS_LEGEND)
    title = f"Claims of {experiment.name} ({', '.join(datasets)})"
    return Grid(title, _HEADER, tuple(rows), tuple(notes.texts), legend)


def _summary(findings: Sequence[Finding]) -> str:
    """Return how often each verdict was given."""
    counts = []
    for verdict in Verdict:
        number = sum(finding.verdict is verdict for finding in findings)
        if number:
            counts.append(f"{verdict.value}: {number}")
    return ", ".join(counts) or "no claim is about these datasets"


def _finding_row(
    finding: Finding,
    notes: Notes,
    with_dataset: bool,
) -> tuple[Text, ...]:
    ours = EMPTY_CELL
    interval = EMPTY_CELL
    p_value = EMPTY_CELL
    if finding.verdict is not Verdict.UNAVAILABLE:
        ours = f"{finding.difference:+.2f}"
        interval = f"{finding.low:+.2f} .. {finding.high:+.2f}"
        p_value = shown_p_value(finding.p_value)

    note = None
    if finding.reason:
        note = notes.number(finding.reason)
    return (
        Text(shown_difference(finding, with_dataset)),
        Text(finding.metric),
        Text(shown_published(finding.published)),
        Text(ours),
        Text(interval),
        Text(p_value),
        Text(finding.verdict.value, note=note),
    )


def _part_row(finding: Finding, part: Part) -> tuple[Text, ...]:
    """What a difference is on some of the points; the test is made on all of them."""
    return (
        Text(f"      {part.points}"),
        Text(finding.metric),
        Text(EMPTY_CELL),
        Text(f"{part.difference:+.2f}"),
        Text(f"{part.low:+.2f} .. {part.high:+.2f}"),
        Text(""),
        Text(""),
    )


def shown_difference(finding: Finding, with_dataset: bool) -> str:
    """Return the rows that a finding is about, indented, and the margin that their difference must exceed."""
    text = f"   {finding.description}"
    if with_dataset:
        text += f" ({finding.dataset})"
    if finding.claim.margin:
        text += f", by more than {finding.claim.margin:g}"
    return text


def shown_published(published: Sequence[float]) -> str:
    """Return the differences in the paper's figures as a range; a dash if it prints none."""
    if not published:
        return EMPTY_CELL
    low = min(published)
    high = max(published)
    if low == high:
        return f"{low:+.2f}"
    return f"{low:+.2f} .. {high:+.2f}"


def shown_p_value(p_value: float) -> str:
    """Return a p-value to two digits."""
    if p_value < 0.001:
        return "<0.001"
    return f"{p_value:.2g}"
