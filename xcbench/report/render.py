"""Filled tables as something to read: which figure goes where, what gets a mark, what the legend says."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Literal

from xcbench.report.columns import Column
from xcbench.report.experiments import Experiment
from xcbench.report.grid import EMPTY_CELL, Grid, Notes, Text, show
from xcbench.report.tables import ALPHA, Cell, Table, TableRow

Format = Literal["text", "md", "latex", "html", "csv"]

ONE_SEED = "One seed: the noise of training is not in the intervals."
BY_OTHER_CODE = "made by other code than this (`--run stale` runs it again)"


def render(tables: Sequence[Table], form: Format = "text", width: int | None = None) -> str:
    """Return tables as text in one of the formats.

    Parameters
    ----------
    tables
        Filled tables.
    form
        `text` for a terminal, `md`, `latex`, `html`, or `csv` for tidy data.
    width
        How many characters a line of text may have; None for as many as there are.
    """
    if form == "csv":
        return as_csv(tables)
    grids: list[Grid] = []
    for table in tables:
        grids += grids_of(table)
    page_title = ""
    if tables:
        page_title = heading(tables[0])
    return show(grids, form, page_title, width)


def heading(table: Table) -> str:
    """Return where in which paper the table is, and its title."""
    return heading_of(table.experiment)


def heading_of(experiment: Experiment) -> str:
    """Return where in which paper an experiment is, and its title."""
    where = f"{experiment.paper} {place_in_paper(experiment.place)}".strip()
    if not where:
        return experiment.title
    return f"{where}: {experiment.title}"


def place_in_paper(place: str) -> str:
    """Return `T5` as `Table 5` and `Fig 6` as `Figure 6`."""
    if place.startswith("Fig"):
        return place.replace("Fig ", "Figure ")
    return place.replace("T", "Table ", 1)


def grids_of(table: Table) -> list[Grid]:
    """Return the figures, and where there is a reference row the differences to it."""
    grids = [_figures(table)]
    differences = _differences(table)
    if differences is not None:
        grids.append(differences)
    return grids


def _figures(table: Table) -> Grid:
    columns_of_paper = {name for _, name in table.published}
    header = [""]
    for column in table.columns:
        header.append(column.title)
        if column.name in columns_of_paper:
            header.append("paper")

    notes = Notes()
    rows = [tuple(_figure_row(table, row, columns_of_paper, notes)) for row in table.rows]
    title = f"{heading(table)} ({table.dataset}, {sample(table)})"
    return Grid(title, tuple(header), tuple(rows), tuple(notes.texts), tuple(_legend(table)))


def sample(table: Table) -> str:
    """Return how many test points and which seeds the figures are of."""
    seeds = f"{len(table.seeds)} seeds"
    if len(table.seeds) == 1:
        seeds = f"seed {table.seeds[0]}"
    return f"{table.test_points:,} test points, {seeds}"


def _figure_row(
    table: Table,
    row: TableRow,
    columns_of_paper: set[str],
    notes: Notes,
) -> list[Text]:
    remarks = [remark for remark in (row.problem, row.row.note) if remark]
    if row.is_by_other_code:
        remarks.append(BY_OTHER_CODE)
    cells = [Text(row.row.label, note=_numbered(notes, "; ".join(remarks)))]

    for column in table.columns:
        cell = row.cells.get(column.name)
        if cell is not None:
            cells.append(_figure(cell, column, notes))
        elif len(cells) == 1 and not row.cells:
            # The first cell of an empty row says why it is empty.
            cells.append(Text(row.state))
        else:
            cells.append(Text(EMPTY_CELL))
        if column.name in columns_of_paper:
            cells.append(_published_figure(table, row, column, notes))
    return cells


def _numbered(notes: Notes, text: str) -> int | None:
    """Return the number of a footnote; None if there is nothing to note."""
    if not text:
        return None
    return notes.number(text)


def _published_figure(
    table: Table,
    row: TableRow,
    column: Column,
    notes: Notes,
) -> Text:
    published = table.published.get((row.row.label, column.name))
    if published is None:
        return Text(EMPTY_CELL)
    note = _numbered(notes, published.note)
    if published.value is None:
        return Text(EMPTY_CELL, note=note)
    return Text(column.show(published.value), note=note)


def _figure(cell: Cell, column: Column, notes: Notes) -> Text:
    hover = ""
    if cell.low is not None and cell.high is not None:
        hover = f"95% interval {cell.low:.2f} to {cell.high:.2f}"
    return Text(
        column.show(cell.value),
        spread=_spread(cell, column),
        best=cell.best,
        tied=cell.tied and not cell.best,
        note=_numbered(notes, cell.remark),
        hover=hover,
    )


def _spread(cell: Cell, column: Column) -> str:
    """Return half the width of the interval; where there is none, the deviation over seeds."""
    if cell.low is not None and cell.high is not None:
        return f"±{column.show((cell.high - cell.low) / 2)}"
    if cell.deviation is not None:
        return f"±{column.show(cell.deviation)}"
    return ""


def _legend(table: Table) -> list[str]:
    legend = []
    if _has_intervals(table):
        over = "test points"
        test = "paired bootstrap"
        if len(table.seeds) > 1:
            over = f"test points and {len(table.seeds)} seeds; of times, the deviation over seeds"
            test = "t test over points and seeds"
        legend.append(
            f"±: half the 95% interval over {over}. {{best}}: best of the column; {{tied}}: not significantly "
            f"different from the best ({test}, Holm-corrected, {ALPHA:.0%})."
        )
        if len(table.seeds) == 1:
            legend.append(_training_noise(table))
    if table.experiment.note:
        legend.append(_escape_braces(table.experiment.note))
    if table.published:
        legend.append("paper: the figure that the paper prints for this dataset.")
    return legend


def _training_noise(table: Table) -> str:
    """What the intervals of one seed leave out, and how large it is where the store has other seeds of a row."""
    metric = next(column.name for column in table.columns if column.is_metric)
    measured = [
        f"{row.row.label} {row.noise.deviation:.2f} ({row.noise.count} seeds)"
        for row in table.rows
        if row.noise is not None and row.noise.deviation is not None
    ]
    if not measured:
        return f"{ONE_SEED} It has not been measured here (--seeds 0,1,2 does)."
    return f"{ONE_SEED} Its standard deviation in {metric}: {', '.join(measured)}; other rows: not measured."


def _has_intervals(table: Table) -> bool:
    cells = [cell for row in table.rows for cell in row.cells.values()]
    return any(cell.low is not None for cell in cells)


def _differences(table: Table) -> Grid | None:
    """Return rows less the reference row; unmarked differences are significant."""
    columns = [column for column in table.columns if column.is_metric and _has_differences(table, column)]
    if not columns:
        return None

    rows = []
    for row in table.rows:
        cells = [row.cells.get(column.name) for column in columns]
        if any(cell is not None and cell.difference is not None for cell in cells):
            shown = [_difference(cell, column) for cell, column in zip(cells, columns, strict=True)]
            rows.append((Text(row.row.label), *shown))

    kind = "t test over points and seeds" if len(table.seeds) > 1 else "paired bootstrap"
    test = f"{kind}, Holm-corrected over the rows of a column, {ALPHA:.0%}"
    return Grid(
        title=f"Differences to {table.experiment.reference} ({table.dataset})",
        header=("", *(column.title for column in columns)),
        rows=tuple(rows),
        legend=(f"{{tied}}: not significantly different from no difference ({test}).",),
    )


def _has_differences(table: Table, column: Column) -> bool:
    for row in table.rows:
        cell = row.cells.get(column.name)
        if cell is not None and cell.difference is not None:
            return True
    return False


def _difference(cell: Cell | None, column: Column) -> Text:
    if cell is None or cell.difference is None:
        return Text(EMPTY_CELL)
    shown = f"{cell.difference:+.{column.digits}f}"
    if cell.p_value is None:
        return Text(shown)
    return Text(shown, tied=cell.p_value > ALPHA, hover=f"p = {cell.p_value:.2g}")


CSV_COLUMNS = (
    "experiment",
    "dataset",
    "row",
    "metric",
    "value",
    "low",
    "high",
    "deviation",
    "seeds",
    "best",
    "tied",
    "difference",
    "p_value",
    "paper",
    "paper_note",
    "state",
    "problem",
    "runs",
)


def as_csv(tables: Sequence[Table]) -> str:
    """Return tidy data: a line for each row and metric, also for those without a figure."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for table in tables:
        for row in table.rows:
            for column in table.columns:
                writer.writerow(_csv_line(table, row, column))
    return out.getvalue()


def _csv_line(table: Table, row: TableRow, column: Column) -> dict[str, object]:
    line: dict[str, object] = {
        "experiment": table.experiment.name,
        "dataset": table.dataset,
        "row": row.row.label,
        "metric": column.name,
        "paper": None,
        "paper_note": "",
        "state": row.state,
        "problem": row.problem or "",
        "runs": " ".join(record.id for record in row.records),
        "seeds": len(row.records),
    }
    published = table.published.get((row.row.label, column.name))
    if published is not None:
        line["paper"] = published.value
        line["paper_note"] = published.note
    cell = row.cells.get(column.name)
    if cell is not None:
        for name in ("value", "low", "high", "deviation", "best", "tied", "difference", "p_value"):
            line[name] = getattr(cell, name)
    return line


def _escape_braces(text: str) -> str:
    """Return a text that `str.format` leaves as it is."""
    return text.replace("{", "{{").replace("}", "}}")
