"""Fill in the figures of README and docs from results/: `make docs-figures`.

A table stands between two comments. The first one names a table of results/, its columns and, if not all are wanted,
its rows; what stands between the comments is made by this program:

    <!-- table: lf-debian-4k/eclare/table2; PSP@1, P@1; ECLARE, DECAF -->
    <!-- end -->

Bold, italics and ± are those of the table itself. A single figure stands in a line of text in the same way:

    <!-- figure: lf-debian-4k/eclare/table2; P@1; ECLARE -->35.2<!-- end -->

`<!-- published: amazon -->` takes what is known of the field's datasets whose names contain the word, in any case.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parent.parent.parent
MARKED = re.compile(r"(<!-- (table|figure|published): ([^>]*?) -->)(.*?)(<!-- end -->)", re.DOTALL)

Cells: TypeAlias = Mapping[tuple[str, str], Mapping[str, str]]
"""The lines of a table's CSV file by row and column."""


def pages() -> Iterator[Path]:
    """Every page that may show figures."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def filled(text: str) -> str:
    """Return a page with its figures as results/ has them."""
    return MARKED.sub(_fill, text)


def _fill(found: re.Match[str]) -> str:
    start, kind, wanted, _, end = found.groups()
    if kind == "published":
        return f"{start}\n{_published(wanted)}\n{end}"
    name, columns, *rows = [_names(part) for part in wanted.split(";")]
    if kind == "figure":
        ((row,), (column,)) = (*rows, columns)
        return f"{start}{float(_cells(name[0])[row, column]['value']):.1f}{end}"
    return f"{start}\n{_table(_cells(name[0]), columns, rows[0] if rows else ())}\n{end}"


def _names(part: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in part.split(","))


@lru_cache
def _cells(name: str) -> Cells:
    with (ROOT / "results" / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return {(line["row"], line["metric"]): line for line in csv.DictReader(stream)}


def _table(cells: Cells, columns: Sequence[str], rows: Sequence[str]) -> str:
    header = " | ".join(column.replace("_", " ") for column in columns)
    lines = [f"| | {header} |", "|---" + "|---:" * len(columns) + "|"]
    for row in rows or dict.fromkeys(row for row, _ in cells):
        values = [_shown(cells[row, column]) for column in columns]
        lines.append(f"| {row} | {' | '.join(values)} |")
    return "\n".join(lines)


def _shown(cell: Mapping[str, str]) -> str:
    """Return the value, bold if it is the best, in italics if it is not significantly different, and its interval."""
    if not cell["value"]:
        return cell["state"]
    value = f"{float(cell['value']):.2f}"
    if cell["best"] == "True":
        value = f"**{value}**"
    elif cell["tied"] == "True":
        value = f"*{value}*"
    if not cell["low"]:
        return value
    return f"{value} ±{(float(cell['high']) - float(cell['low'])) / 2:.2f}"


def _published(word: str) -> str:
    known = json.loads((ROOT / "xcbench" / "data" / "published.json").read_text("utf-8"))
    lines = ["| dataset | train | test | labels | features | labels per point | A | B |", "|---" + "|---:" * 7 + "|"]
    for name, constants in known["propensity"].items():
        if word.lower() not in name.lower():
            continue
        shape = known["shapes"].get(name, {})
        sizes = [f"{shape[key]:,}" if key in shape else "" for key in ("train", "test", "labels", "features")]
        row = [f"`{name}`", *sizes, shape.get("labels_per_point", ""), constants["A"], constants["B"]]
        lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    for page in pages():
        text = page.read_text("utf-8")
        if filled(text) != text:
            page.write_text(filled(text), "utf-8")
            print(page.relative_to(ROOT), file=sys.stderr)
