"""The page of a paper's table or figure: ours on each dataset, its claims, and what the paper prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xcbench.errors import InputError
from xcbench.report import paper
from xcbench.report.claims import Finding, Verdict, judge_claims, shown_difference, shown_p_value, shown_published
from xcbench.report.columns import Column, column
from xcbench.report.examples import examples_grid
from xcbench.report.experiments import Experiment
from xcbench.report.grid import EMPTY_CELL, html_section
from xcbench.report.plots import draw
from xcbench.report.render import grids_of, sample
from xcbench.report.scores import DatasetRuns
from xcbench.report.site.leaderboard import Bar
from xcbench.report.tables import Table, fill

CSS = {
    Verdict.HOLDS: "holds",
    Verdict.FAILS: "fails",
    Verdict.UNDECIDED: "undecided",
    Verdict.FEW_SEEDS: "undecided",
    Verdict.UNAVAILABLE: "unavailable",
}


@dataclass(frozen=True)
class PaperTable:
    """A table or figure on one dataset, with what came of its claims."""

    runs: DatasetRuns
    table: Table
    findings: tuple[Finding, ...]

    @property
    def rows_with_runs(self) -> int:
        """How many rows have a run."""
        return sum(bool(row.records) for row in self.table.rows)


def paper_tables(experiment: Experiment, datasets: Sequence[DatasetRuns]) -> list[PaperTable]:
    """Return a table on each of these datasets.

    Parameters
    ----------
    experiment
        The table or figure.
    datasets
        The datasets, each with the store of its runs.
    """
    filled = []
    for runs in datasets:
        table = fill(experiment, runs, experiment.seeds)
        findings: list[Finding] = []
        if experiment.claims and any(row.records for row in table.rows):
            findings = judge_claims(experiment, [runs], experiment.seeds)
        filled.append(PaperTable(runs, table, tuple(findings)))
    return filled


@dataclass(frozen=True)
class ShownFinding:
    """A finding as texts, and where its interval is drawn around zero."""

    difference: str
    metric: str
    paper: str
    verdict: str
    css: str
    reason: str
    ours: str = EMPTY_CELL
    interval: str = EMPTY_CELL
    p: str = EMPTY_CELL
    bar: Bar | None = None


@dataclass(frozen=True)
class ShownClaim:
    """A claim and what was found about it."""

    number: int
    says: str
    findings: tuple[ShownFinding, ...]


@dataclass(frozen=True)
class Part:
    """What a page shows of one dataset."""

    name: str
    anchor: str
    grids: tuple[str, ...]
    """As HTML."""
    claims: tuple[ShownClaim, ...]
    picture: str
    """The path of the picture from the site's root, if there is one."""
    notice: str = ""


def part_of(filled: PaperTable, folder: Path, stem: str) -> Part:
    """Return what a page shows of a table on one dataset, and draw its picture if it has one.

    Parameters
    ----------
    filled
        The table with figures and findings.
    folder
        The root of the site.
    stem
        How the names of the files of this page begin.
    """
    experiment = filled.table.experiment
    runs = filled.runs
    picture = ""
    if experiment.figure is not None:
        path = Path("figures") / f"{stem}.svg"
        if draw(experiment, runs, experiment.seeds, folder / path).path is not None:
            picture = path.as_posix()

    notice = ""
    grids: list[str] = []
    if experiment.examples:
        try:
            shown = examples_grid(experiment, runs, experiment.seeds)
            grids.append(html_section(shown, "h3"))
        except InputError as error:
            notice = str(error)
    elif experiment.rows:
        figures, *others = grids_of(filled.table)
        # The page says already which table it is, and the heading above which dataset.
        shown_grids = [replace(figures, title=f"Our figures: {sample(filled.table)}"), *others]
        grids = [html_section(grid, "h3") for grid in shown_grids]
    return Part(
        name=runs.data.name,
        anchor=stem,
        grids=tuple(grids),
        claims=tuple(_claims(filled)),
        picture=picture,
        notice=notice,
    )


def _claims(filled: PaperTable) -> Iterator[ShownClaim]:
    reach = _reach(filled.findings)
    for number, claim in enumerate(filled.table.experiment.claims, 1):
        findings = [_shown(finding, reach) for finding in filled.findings if finding.claim is claim]
        if findings:
            yield ShownClaim(number, claim.says, tuple(findings))


def _reach(findings: Sequence[Finding]) -> float:
    """Return how far from zero the intervals of a table reach."""
    ends = [0.0]
    for finding in findings:
        if finding.verdict is not Verdict.UNAVAILABLE:
            ends += [abs(finding.low), abs(finding.high)]
    return max(ends)


def _shown(finding: Finding, reach: float) -> ShownFinding:
    shown = ShownFinding(
        difference=shown_difference(finding, with_dataset=False).strip(),
        metric=finding.metric,
        paper=shown_published(finding.published),
        verdict=finding.verdict.value,
        css=CSS[finding.verdict],
        reason=finding.reason,
    )
    if finding.verdict is Verdict.UNAVAILABLE:
        return shown
    bar = None
    if reach > 0:
        low, value, high = (50 + 50 * figure / reach for figure in (finding.low, finding.difference, finding.high))
        bar = Bar(low, value, high)
    return replace(
        shown,
        ours=f"{finding.difference:+.2f}",
        interval=f"{finding.low:+.2f} to {finding.high:+.2f}",
        p=shown_p_value(finding.p_value),
        bar=bar,
    )


@dataclass(frozen=True)
class VerdictCount:
    """How often a verdict was given."""

    text: str
    css: str
    count: int


def verdict_counts(filled: Sequence[PaperTable]) -> list[VerdictCount]:
    """Return how often each verdict was given, over all datasets; nothing of what could not be tested."""
    counts = Counter(finding.verdict for of_dataset in filled for finding in of_dataset.findings)
    undecided = counts[Verdict.UNDECIDED] + counts[Verdict.FEW_SEEDS]
    shown = [
        VerdictCount("hold", "holds", counts[Verdict.HOLDS]),
        VerdictCount("do not hold", "fails", counts[Verdict.FAILS]),
        VerdictCount("undecided", "undecided", undecided),
    ]
    return [verdict for verdict in shown if verdict.count]


@dataclass(frozen=True)
class Line:
    """A row of figures as texts."""

    label: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class BesidePaper:
    """One metric: our figures on our datasets, then the paper's on its own."""

    metric: str
    ours: tuple[str, ...]
    papers: tuple[str, ...]
    lines: tuple[Line, ...]


def beside_paper(experiment: Experiment, filled: Sequence[PaperTable]) -> list[BesidePaper]:
    """Return a block for each metric that the paper prints figures of.

    Parameters
    ----------
    experiment
        The table or figure.
    filled
        The same on our datasets.
    """
    blocks = []
    for name in experiment.metrics:
        shown = column(name)
        papers = [dataset for dataset in paper.datasets(experiment) if _is_printed(experiment, dataset, shown)]
        if papers:
            blocks.append(_block(experiment, shown, filled, papers))
    return blocks


def _is_printed(experiment: Experiment, dataset: str, shown: Column) -> bool:
    return any(paper.figure(experiment, dataset, row.label, shown.name) for row in experiment.rows)


def _block(
    experiment: Experiment,
    shown: Column,
    filled: Sequence[PaperTable],
    papers: Sequence[str],
) -> BesidePaper:
    lines = []
    for row in experiment.rows:
        cells = [_our_figure(of_dataset.table, row.label, shown) for of_dataset in filled]
        cells += [_their_figure(experiment, dataset, row.label, shown) for dataset in papers]
        lines.append(Line(row.label, tuple(cells)))
    ours = tuple(of_dataset.table.dataset for of_dataset in filled)
    return BesidePaper(shown.title, ours, tuple(paper.printed_name(dataset) for dataset in papers), tuple(lines))


def _our_figure(table: Table, label: str, shown: Column) -> str:
    row = next(row for row in table.rows if row.row.label == label)
    cell = row.cells.get(shown.name)
    if cell is None:
        return EMPTY_CELL
    return shown.show(cell.value)


def _their_figure(experiment: Experiment, dataset: str, label: str, shown: Column) -> str:
    figure = paper.figure(experiment, dataset, label, shown.name)
    if figure is None or figure.value is None:
        return EMPTY_CELL
    return shown.show(figure.value)
