"""Filled tables as something to read: which figure goes where, what gets a mark, what is said below."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Literal

from xcbench.report.columns import Column
from xcbench.report.grid import NOTHING, Grid, Notes, Text, show
from xcbench.report.tables import ALPHA, Cell, Table, TableRow

Format = Literal["text", "md", "latex", "html", "csv"]


def render(tables: Sequence[Table], form: Format = "text") -> str:
    """Tables in one of the forms."""
    if form == "csv":
        return as_csv(tables)
    grids = [grid for table in tables for grid in grids_of(table)]
    return show(grids, form, heading(tables[0]) if tables else "")


def heading(table: Table) -> str:
    where = " ".join(part for part in (table.experiment.paper, place(table.experiment.place)) if part)
    return f"{where}: {table.experiment.title}" if where else table.experiment.title


def grids_of(table: Table) -> list[Grid]:
    """The figures, and where there is a reference row the differences to it."""
    notes = Notes()
    figures = _figures(table, notes)
    differences = _differences(table)
    return [figures, *([differences] if differences else [])]


def _figures(table: Table, notes: Notes) -> Grid:
    has_paper = {name for _, name in table.published}
    header = [table.experiment.paper or "", *(h for c in table.columns for h in _headings(c, has_paper))]
    rows = [tuple(_figure_row(table, row, has_paper, notes)) for row in table.rows]
    seeds = f"seed {table.seeds[0]}" if len(table.seeds) == 1 else f"{len(table.seeds)} seeds"
    title = f"{heading(table)} ({table.dataset}, {table.test_points:,} test points, {seeds})"
    return Grid(title, ("", *header[1:]), tuple(rows), tuple(notes.texts), tuple(_legend(table)))


def _headings(column: Column, has_paper: set[str]) -> list[str]:
    return [column.title, "paper"] if column.name in has_paper else [column.title]


def _figure_row(table: Table, row: TableRow, has_paper: set[str], notes: Notes) -> list[Text]:
    below = "; ".join(part for part in (row.problem, row.row.note) if part)
    cells = [Text(row.row.label, note=notes.number(below) if below else None)]
    empty = row.state if not row.cells else NOTHING
    for column in table.columns:
        cell = row.cells.get(column.name)
        cells.append(Text(empty) if cell is None else _figure(cell, column))
        empty = NOTHING
        if column.name in has_paper:
            published = table.published.get((row.row.label, column.name))
            shown = NOTHING if published is None or published.value is None else column.show(published.value)
            cells.append(Text(shown, note=notes.number(published.note) if published and published.note else None))
    return cells


def _figure(cell: Cell, column: Column) -> Text:
    hover = "" if cell.low is None or cell.high is None else f"95% interval {cell.low:.2f} to {cell.high:.2f}"
    return Text(column.show(cell.value), _spread(cell, column), cell.best, cell.tied and not cell.best, hover=hover)


def _spread(cell: Cell, column: Column) -> str:
    """Deviation over seeds where there are several, else half the width of the interval over test points."""
    if cell.deviation is not None:
        return f"±{column.show(cell.deviation)}"
    if cell.low is None or cell.high is None:
        return ""
    return f"±{column.show((cell.high - cell.low) / 2)}"


def _legend(table: Table) -> list[str]:
    several = len(table.seeds) > 1
    tested = any(cell.low is not None for row in table.rows for cell in row.cells.values())
    legend = []
    if tested:
        spread = "standard deviation over seeds" if several else "half the 95% bootstrap interval over test points"
        legend.append(
            f"±: {spread}. {{best}}: best of the column; {{tied}}: cannot be told from the best "
            f"(paired bootstrap, Holm-corrected, {ALPHA:.0%})."
        )
    if table.experiment.note:
        legend.append(_braced(table.experiment.note))
    if table.published:
        legend.append("paper: the figure that the paper prints for this dataset.")
    return legend


def _differences(table: Table) -> Grid | None:
    """Rows less the reference row; unmarked differences are significant."""
    columns = [
        c
        for c in table.columns
        if c.read is None and any(r.cells[c.name].difference is not None for r in table.rows if c.name in r.cells)
    ]
    if not columns:
        return None
    rows = []
    for row in table.rows:
        cells = [row.cells.get(c.name) for c in columns]
        if any(cell is not None and cell.difference is not None for cell in cells):
            rows.append((Text(row.row.label), *(_difference(cell, c) for cell, c in zip(cells, columns, strict=True))))
    test = f"paired bootstrap, Holm-corrected over the rows of a column, {ALPHA:.0%}"
    legend = (f"{{tied}}: cannot be told from no difference ({test}).",)
    title = f"Differences to {table.experiment.reference} ({table.dataset})"
    return Grid(title, ("", *(c.title for c in columns)), tuple(rows), (), legend)


def _difference(cell: Cell | None, column: Column) -> Text:
    if cell is None or cell.difference is None:
        return Text(NOTHING)
    hover = "" if cell.p_value is None else f"p = {cell.p_value:.2g}"
    return Text(f"{cell.difference:+.{column.digits}f}", tied=(cell.p_value or 0.0) > ALPHA, hover=hover)


CSV_COLUMNS = (
    *("experiment", "dataset", "row", "metric", "value", "low", "high", "deviation", "seeds", "best", "tied"),
    *("difference", "p_value", "paper", "paper_note", "state", "problem", "runs"),
)


def as_csv(tables: Sequence[Table]) -> str:
    """Tidy: a line for each row and metric, also for those without a figure."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for table in tables:
        for row in table.rows:
            for column in table.columns:
                writer.writerow(_csv_line(table, row, column))
    return out.getvalue()


def _csv_line(table: Table, row: TableRow, column: Column) -> dict[str, object]:
    cell = row.cells.get(column.name)
    published = table.published.get((row.row.label, column.name))
    line: dict[str, object] = {
        "experiment": table.experiment.name,
        "dataset": table.dataset,
        "row": row.row.label,
        "metric": column.name,
        "paper": published.value if published else None,
        "paper_note": published.note if published else "",
        "state": row.state,
        "problem": row.problem or "",
        "runs": " ".join(record.id for record in row.records),
        "seeds": len(row.records),
    }
    if cell is not None:
        shared = ("value", "low", "high", "deviation", "best", "tied", "difference", "p_value")
        line |= {name: getattr(cell, name) for name in shared}
    return line


def place(place: str) -> str:
    return place.replace("Fig ", "Figure ") if place.startswith("Fig") else place.replace("T", "Table ", 1)


def _braced(text: str) -> str:
    """A text that survives `str.format`."""
    return text.replace("{", "{{").replace("}", "}}")
