"""A table of texts, and the formats it can be written in: plain text, Markdown, LaTeX and HTML.

Nothing here knows what the figures mean; `render` decides that.
"""

from __future__ import annotations

import html
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

EMPTY_CELL = "–"
_GAP = "  "
"""What stands between the columns of a text."""


class Notes:
    """Footnotes, each printed once and numbered from 1."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, text: str) -> int:
        """Return the number of a footnote, which is added if it is new."""
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


@dataclass(frozen=True)
class Text:
    """One cell. `best` and `tied` are about its column; `note` is the number of a footnote."""

    figure: str
    spread: str = ""
    best: bool = False
    tied: bool = False
    note: int | None = None
    hover: str = ""

    @property
    def body(self) -> str:
        """The figure and its spread."""
        return f"{self.figure} {self.spread}".rstrip()

    @property
    def mark(self) -> str:
        """What follows the figure in plain text: `*` or `=`, and the number of a footnote."""
        mark = ""
        if self.best:
            mark = " *"
        elif self.tied:
            mark = " ="
        if self.note is not None:
            mark += f" [{self.note}]"
        return mark


@dataclass(frozen=True)
class Grid:
    """A title, a header, rows of cells (the first cell of a row is its name), numbered footnotes and a legend.

    A legend names the marks as `{best}` and `{tied}`; each format puts in how it shows them. Where cells are words, not
    figures, all columns begin at their left.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]
    notes: tuple[str, ...] = ()
    legend: tuple[str, ...] = ()
    is_words: bool = False

    def is_left(self, column: int) -> bool:
        """Whether a column begins at its left."""
        return self.is_words or column == 0

    def legend_with(self, best: str, tied: str) -> list[str]:
        """Return the sentences of the legend with the names of the two marks."""
        return [sentence.format(best=best, tied=tied) for sentence in self.legend]


def with_minus(text: str) -> str:
    """Return a text with a minus sign, not a hyphen, before its negative numbers.

    Parameters
    ----------
    text
        Figures; a hyphen inside a word, as in ECLARE-8K, stays.
    """
    return re.sub(r"(?<![\w-])-(?=\d)", "−", text)


def show(
    grids: Sequence[Grid],
    form: Literal["text", "md", "latex", "html"],
    title: str,
    width: int | None = None,
) -> str:
    """Return grids as text in one of the formats.

    Parameters
    ----------
    grids
        The tables.
    form
        The format.
    title
        The title of the page, which only HTML has.
    width
        How many characters a line of text may have.
    """
    if form == "text":
        return as_text(grids, width)
    if form == "md":
        return as_markdown(grids)
    if form == "latex":
        return as_latex(grids)
    return as_html(grids, title)


def as_text(grids: Sequence[Grid], width: int | None = None) -> str:
    """Return grids for a terminal: columns aligned, marks `*` and `=`.

    Parameters
    ----------
    grids
        The tables.
    width
        How many characters a line may have. Columns beyond that follow below, with the names of the rows again; long
        sentences are wrapped. None for as many as there are.
    """
    if width is not None:
        grids = [_with_short_cells(grid, width) for grid in grids]
    return "\n\n".join(_text(grid, width) for grid in grids) + "\n"


def _with_short_cells(grid: Grid, width: int) -> Grid:
    """Return a grid with every column narrow enough to stand beside the names: these are wrapped, the others cut."""
    half = width // 2 - len(_GAP)
    mark_width = max((_width(cell.mark) for row in grid.rows for cell in row), default=0)
    header = (grid.header[0], *(_cut(name, half) for name in grid.header[1:]))
    rows = [
        (row[0], *(replace(cell, figure=_cut(cell.figure, half - mark_width)) for cell in row[1:])) for row in grid.rows
    ]
    cut = replace(grid, header=header, rows=tuple(rows))
    legend = grid.legend
    if cut != grid:
        legend = (*legend, "…: cut to the width of the terminal; --output writes all of it.")

    widest = max((_text_width(cut, column) for column in range(1, len(header))), default=0)
    room = width - widest - len(_GAP) - mark_width
    wrapped = [(_with_short_name(row, room), *row[1:]) for row in cut.rows]
    return replace(cut, rows=tuple(wrapped), legend=legend)


def _with_short_name(row: Sequence[Text], room: int) -> Text:
    """Return the first cell of a row in as many lines as it needs."""
    name = row[0]
    if _is_sentence(row) or _width(name.figure) <= room:
        return name
    indent = " " * (len(name.figure) - len(name.figure.lstrip()) + 2)
    lines = textwrap.wrap(name.figure, room, subsequent_indent=indent, break_on_hyphens=False)
    return replace(name, figure="\n".join(lines))


def _cut(text: str, most: int) -> str:
    while _width(text) > most:
        text = text[:-2] + "…"
    return text


def _text(grid: Grid, width: int | None) -> str:
    blocks = [_block(grid, columns, width) for columns in _column_groups(grid, width)]
    below = [f"[{number}] {note}" for number, note in enumerate(grid.notes, 1)]
    below += grid.legend_with("*", "=")
    wrapped = [_wrap(line, width) for line in below]
    parts = [_wrap(grid.title, width), *blocks]
    if wrapped:
        parts.append("\n".join(wrapped))
    return "\n\n".join(parts)


def _column_groups(grid: Grid, width: int | None) -> list[list[int]]:
    """Return the columns that stand beside each other: all of them, or as many at a time as fit behind the names."""
    columns = list(range(1, len(grid.header)))
    if width is None or not columns:
        return [columns]
    names = _text_width(grid, 0)
    groups: list[list[int]] = []
    taken = width + 1
    for column in columns:
        needed = _text_width(grid, column) + len(_GAP)
        if taken + needed > width:
            groups.append([])
            taken = names
        groups[-1].append(column)
        taken += needed
    return groups


def _block(grid: Grid, columns: Sequence[int], width: int | None) -> str:
    """Return some columns of a grid beside the names of its rows."""
    cells = [_text_column(grid, number) for number in (0, *columns)]
    lines = [_GAP.join(line).rstrip() for line in zip(*cells, strict=True)]
    body_lines = lines[1:]
    for number, row in enumerate(grid.rows):
        if _is_sentence(row):
            body_lines[number] = _wrap(row[0].body, width)
        else:
            # The figures stand beside the first line of a name.
            body_lines[number] = "\n".join([body_lines[number], *row[0].body.split("\n")[1:]])
    table_width = max((_width(line) for text in (lines[0], *body_lines) for line in text.splitlines()), default=0)
    return "\n".join([lines[0], "-" * table_width, *body_lines])


def _is_sentence(row: Sequence[Text]) -> bool:
    """Return whether a row has nothing but its first cell, which then need not stay within its column."""
    return len(row) > 1 and not any(cell.body for cell in row[1:])


def _text_width(grid: Grid, number: int) -> int:
    return _width(_text_column(grid, number)[0])


def _wrap(text: str, width: int | None) -> str:
    if width is None:
        return text
    return textwrap.fill(text, width, break_on_hyphens=False)


def _text_column(grid: Grid, number: int) -> list[str]:
    """Return one column, header first, padded. Marks hang to the right, so that the figures are aligned."""
    cells = [Text("") if number == 0 and _is_sentence(row) else row[number] for row in grid.rows]
    header = grid.header[number]
    mark_width = max((_width(cell.mark) for cell in cells), default=0)
    body_width = max((_width(line) for cell in cells for line in cell.body.split("\n")), default=0)
    body_width = max(body_width, _width(header) - mark_width)

    align = _pad_left
    if grid.is_left(number):
        align = _pad_right
    lines = [align(header, body_width + mark_width)]
    lines += [align(cell.body.split("\n")[0], body_width) + _pad_right(cell.mark, mark_width) for cell in cells]
    return lines


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes: East Asian characters take two."""
    wide = [character for character in text if unicodedata.east_asian_width(character) in "WF"]
    return len(text) + len(wide)


def _pad_left(text: str, width: int) -> str:
    return " " * (width - _width(text)) + text


def _pad_right(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def as_markdown(grids: Sequence[Grid]) -> str:
    """Return grids for a README: the best figure of a column in bold, those tied with it in italics."""
    return "\n\n".join(_markdown(grid) for grid in grids) + "\n"


def _markdown(grid: Grid) -> str:
    out = [f"**{_escape_markdown(grid.title)}**", ""]
    out.append(_markdown_line([_escape_markdown(name) for name in grid.header]))
    out.append(_markdown_line(["---" if grid.is_left(i) else "---:" for i in range(len(grid.header))]))
    out += [_markdown_line([_markdown_cell(text) for text in row]) for row in grid.rows]
    for number, note in enumerate(grid.notes, 1):
        out += ["", f"[{number}] {_escape_markdown(note)}"]
    for sentence in grid.legend_with("bold", "italics"):
        out += ["", _escape_markdown(sentence)]
    return "\n".join(out)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(text: Text) -> str:
    cell = _escape_markdown(text.figure)
    if text.best:
        cell = f"**{cell}**"
    elif text.tied:
        cell = f"*{cell}*"
    if text.spread:
        cell += f" {_escape_markdown(text.spread)}"
    if text.note is not None:
        cell += f" [{text.note}]"
    return cell


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


def as_latex(grids: Sequence[Grid]) -> str:
    """Return grids for a paper: booktabs, best in bold, tied underlined."""
    head = "% Needs \\usepackage{booktabs}, and \\usepackage{graphicx} for tables wider than the page.\n"
    return head + "\n".join(_latex(grid) for grid in grids)


def _latex(grid: Grid) -> str:
    columns = "".join("l" if grid.is_left(i) else "r" for i in range(len(grid.header)))
    lines = [
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{escape_latex(grid.title)}}}",
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        _latex_line([escape_latex(name) for name in grid.header]),
        "\\midrule",
    ]
    lines += [_latex_line([_latex_cell(text) for text in row]) for row in grid.rows]
    lines += ["\\bottomrule", "\\end{tabular}}"]

    below = [f"\\textsuperscript{{{number}}}{escape_latex(note)}" for number, note in enumerate(grid.notes, 1)]
    below += [escape_latex(sentence) for sentence in grid.legend_with("bold", "underlined")]
    if below:
        lines.append(f"\\par\\smallskip{{\\footnotesize {' '.join(below)}\\par}}")
    lines.append("\\end{table}")
    return "\n".join(lines) + "\n"


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"


def _latex_cell(text: Text) -> str:
    cell = escape_latex(with_minus(text.figure))
    if text.best:
        cell = f"\\textbf{{{cell}}}"
    elif text.tied:
        cell = f"\\underline{{{cell}}}"
    if text.spread:
        cell += f"{{\\scriptsize\\,{escape_latex(text.spread)}}}"
    if text.note is not None:
        cell += f"\\textsuperscript{{{text.note}}}"
    return cell


_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    '"': "''",
    "±": "$\\pm$",
    "×": "$\\times$",
    "−": "$-$",
    "–": "--",
    "≤": "$\\leq$",
}


def escape_latex(text: str) -> str:
    """Return text that LaTeX prints as it is; a letter that its fonts lack loses its accent or becomes `?`."""
    return "".join(_latex_character(character) for character in text)


def _latex_character(character: str) -> str:
    if character in _LATEX:
        return _LATEX[character]
    if character.isascii():
        if character.isprintable():
            return character
        return " "
    base = unicodedata.normalize("NFKD", character)[0]
    if not (base.isascii() and base.isalnum()):
        return "?"
    if "À" <= character <= "ÿ":
        return character
    return base


def as_html(grids: Sequence[Grid], title: str) -> str:
    """Return one page that needs no other file."""
    body = "\n".join(html_section(grid) for grid in grids)
    return _PAGE.replace("@TITLE@", html.escape(title)).replace("@BODY@", body)


def html_section(grid: Grid, heading: Literal["h2", "h3"] = "h2") -> str:
    """Return one grid as a part of a page: its title, the table, and notes and legend below.

    Parameters
    ----------
    grid
        The table.
    heading
        The level of its title.
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in grid.header)
    rows = []
    for name, *figures in grid.rows:
        cells = [_html_cell(name, "th"), *[_html_cell(text, "td") for text in figures]]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    body = "\n".join(rows)

    lines = [f"<sup>{number}</sup> {html.escape(note)}" for number, note in enumerate(grid.notes, 1)]
    lines += [html.escape(sentence) for sentence in grid.legend_with("bold", "underlined")]
    below = "".join(f"<p>{line}</p>" for line in lines)
    kind = ' class="words"' if grid.is_words else ""
    return (
        f"<section><{heading}>{html.escape(grid.title)}</{heading}>\n<table{kind}><thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table>\n{below}</section>"
    )


def _html_cell(text: Text, tag: str) -> str:
    attributes = ""
    if text.best:
        attributes = ' class="best"'
    elif text.tied:
        attributes = ' class="tied"'
    if text.hover:
        attributes += f' title="{html.escape(text.hover)}"'

    content = f"<span>{html.escape(with_minus(text.figure))}</span>"
    if text.spread:
        content += f" <small>{html.escape(text.spread)}</small>"
    if text.note is not None:
        content += f"<sup>{text.note}</sup>"
    return f"<{tag}{attributes}>{content}</{tag}>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>@TITLE@</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
html { color: #111; background: #fff }
h2 { font-size: 1.05rem; margin: 2rem 0 .6rem }
table { border-collapse: collapse; border-top: 2px solid #111; border-bottom: 2px solid #111 }
table { display: block; width: fit-content; max-width: 100%; overflow-x: auto }
th, td { padding: .25rem .7rem; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
thead th { border-bottom: 1px solid #111 }
th:first-child, .words th, .words td { text-align: left; font-weight: 500 }
tbody tr:nth-child(even) { background: #f4f4f4 }
.best span { font-weight: 700 } .tied span { text-decoration: underline }
small { color: #555 } p { margin: .35rem 0; color: #333; font-size: .87rem }
</style></head><body>
@BODY@
</body></html>
"""
