"""Does what a paper concludes hold on our runs? Each claim is one or more differences, tested by paired bootstrap.

All differences that a file claims are corrected together (Holm): the more is claimed, the more it takes to say that
something holds. What the test cannot decide is called undecided, with a guess at how many test points would do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import NormalDist

from xcbench.evaluation import holm
from xcbench.report import paper
from xcbench.report.availability import check, unavailable
from xcbench.report.columns import column
from xcbench.report.experiments import Claim, Experiment
from xcbench.report.grid import NOTHING, Grid, Notes, Text
from xcbench.report.scores import DatasetRuns, ScoreTable
from xcbench.report.tables import ALPHA, runnable


class Verdict(Enum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided at this sample size"
    UNAVAILABLE = "not available"


@dataclass(frozen=True)
class Finding:
    """What came of one difference that a claim is about."""

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
    why: str = ""
    published: tuple[float, ...] = ()
    """The same difference in the paper's figures, on each of the paper's datasets."""

    @property
    def what(self) -> str:
        """The difference in words."""
        gains, losses = ([row for row, w in self.weights.items() if w * sign > 0] for sign in (1, -1))
        if len(self.weights) == 2:
            return f"{gains[0]} vs {losses[0]}"
        first, second = self.claim.gain, self.claim.exceeds
        return f"({first[0]} vs {first[1]}) vs ({second[0]} vs {second[1]})"


def judge_claims(experiment: Experiment, shelves: Sequence[DatasetRuns], seeds: Sequence[int]) -> list[Finding]:
    """Every claim of an experiment on every dataset in its scope, with what the store holds."""
    check(experiment)
    metrics = list(dict.fromkeys(metric for claim in experiment.claims for metric in claim.metrics))
    findings = []
    for shelf in shelves:
        records = {row.label: list(shelf.records(row, seeds).values()) for row in runnable(experiment)}
        judge = ScoreTable(shelf.data, records, [column(metric) for metric in metrics])
        findings += [_find(question, experiment, judge) for question in _questions(experiment, shelf)]
    return _corrected(findings)


judge_claims.__test__ = False  # type: ignore[attr-defined]  # pytest collects by name


def _questions(experiment: Experiment, shelf: DatasetRuns) -> Iterator[Finding]:
    name = shelf.data.name
    for claim in experiment.claims:
        if claim.datasets and name.lower() not in (scope.lower() for scope in claim.datasets):
            continue
        for metric in claim.metrics:
            for weights in _differences(claim):
                published = published_differences(experiment, claim, metric, weights)
                yield Finding(claim, name, metric, weights, Verdict.UNDECIDED, published=tuple(published.values()))


def _differences(claim: Claim) -> Iterator[dict[str, float]]:
    if claim.better is not None:
        yield from ({claim.better: 1.0, worse: -1.0} for worse in claim.worse)
        return
    weights: dict[str, float] = {}
    for row, sign in zip((*claim.gain, *claim.exceeds), (1.0, -1.0, -1.0, 1.0), strict=True):
        weights[row] = weights.get(row, 0.0) + sign
    yield weights


def published_differences(
    experiment: Experiment, claim: Claim, metric: str, weights: Mapping[str, float]
) -> dict[str, float]:
    """The difference in the paper's own figures, by dataset, where it prints all that it takes."""
    found = {}
    for dataset in paper.datasets(experiment):
        if claim.datasets and dataset not in (scope.lower() for scope in claim.datasets):
            continue
        figures = [(w, paper.figure(experiment, dataset, row, metric)) for row, w in weights.items()]
        if all(figure is not None and figure.value is not None for _, figure in figures):
            found[dataset] = sum(w * figure.value for w, figure in figures if figure and figure.value is not None)
    return found


def _find(question: Finding, experiment: Experiment, judge: ScoreTable) -> Finding:
    for label in question.weights:
        if not judge.has(label, question.metric):
            reason = unavailable(experiment.row(label)) or f"{label} has not been run on {question.dataset}"
            return replace(question, verdict=Verdict.UNAVAILABLE, why=reason)
    margin = question.claim.margin
    result = judge.contrast(question.metric, question.weights, margin)
    return replace(
        question,
        difference=result.difference + margin,
        low=result.low + margin,
        high=result.high + margin,
        p_value=result.p_value,
    )


def _corrected(findings: Sequence[Finding]) -> list[Finding]:
    """Verdicts from p-values that are corrected for how many differences the file claims."""
    tested = [finding for finding in findings if finding.verdict is not Verdict.UNAVAILABLE]
    corrected = iter(holm([finding.p_value for finding in tested]) if tested else [])
    return [
        finding if finding.verdict is Verdict.UNAVAILABLE else _decided(finding, next(corrected))
        for finding in findings
    ]


def _decided(finding: Finding, p_value: float) -> Finding:
    beyond = finding.difference - finding.claim.margin
    if p_value <= ALPHA:
        return replace(finding, p_value=p_value, verdict=Verdict.HOLDS if beyond > 0 else Verdict.FAILS)
    return replace(finding, p_value=p_value, verdict=Verdict.UNDECIDED, why=_more_points(finding))


def _more_points(finding: Finding) -> str:
    """How many times as many test points it would take if the difference is what it seems to be."""
    half_width = (finding.high - finding.low) / 2
    beyond = abs(finding.difference - finding.claim.margin)
    if not beyond or not half_width:
        return "no difference at all"
    error = half_width / NormalDist().inv_cdf(0.975)
    needed = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    times = (needed * error / beyond) ** 2
    if times > 100:
        return "next to no difference"
    shown = f"{times:.0f}" if times >= 10 else f"{max(times, 1.1):.1f}"
    return f"a difference of this size would need about {shown} times as many test points"


def claims_grid(experiment: Experiment, findings: Sequence[Finding]) -> Grid:
    """Findings as a table, the sentence of each claim once, above what is tested of it."""
    rows: list[tuple[Text, ...]] = []
    notes = Notes()
    several = len({finding.dataset for finding in findings}) > 1
    for number, claim in enumerate(experiment.claims, 1):
        of_claim = [finding for finding in findings if finding.claim is claim]
        if of_claim:
            rows.append((Text(f"{number}. {claim.says}"), *[Text("")] * (len(_HEADER) - 1)))
            rows += [_finding_row(finding, several, notes) for finding in of_claim]
    count = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Verdict}
    summary = ", ".join(f"{verdict.value}: {number}" for verdict, number in count.items() if number)
    legend = (
        f"{summary or 'no claim is about these datasets'}.",
        "ours, paper: difference in percentage points; the paper's on its own datasets.",
        f"Paired bootstrap over test points, 95% intervals, p Holm-corrected over the differences tested, {ALPHA:.0%}.",
    )
    datasets = ", ".join(dict.fromkeys(finding.dataset for finding in findings))
    return Grid(f"Claims of {experiment.name} ({datasets})", _HEADER, tuple(rows), tuple(notes.texts), legend)


_HEADER = ("", "metric", "paper", "ours", "95% interval", "p", "verdict")


def _finding_row(finding: Finding, several: bool, notes: Notes) -> tuple[Text, ...]:
    what = f"   {finding.what}{f' ({finding.dataset})' if several else ''}"
    if finding.claim.margin:
        what += f", by more than {finding.claim.margin:g}"
    published = NOTHING
    if finding.published:
        low, high = min(finding.published), max(finding.published)
        published = f"{low:+.2f}" if low == high else f"{low:+.2f} .. {high:+.2f}"
    ours, interval, p_value = NOTHING, NOTHING, NOTHING
    if finding.verdict is not Verdict.UNAVAILABLE:
        ours, interval = f"{finding.difference:+.2f}", f"{finding.low:+.2f} .. {finding.high:+.2f}"
        p_value = f"{finding.p_value:.2g}" if finding.p_value >= 0.001 else "<0.001"
    verdict = Text(finding.verdict.value, note=notes.number(finding.why) if finding.why else None)
    return (*(Text(text) for text in (what, finding.metric, published, ours, interval, p_value)), verdict)
