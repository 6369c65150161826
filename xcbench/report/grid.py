"""A table of texts, and the forms it can take: plain text, Markdown, LaTeX and HTML.

Nothing here knows what the figures mean; `render` decides that.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

NOTHING = "–"


class Notes:
    """Footnotes, each said once and numbered from 1."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, text: str) -> int:
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
        return f"{self.figure} {self.spread}".rstrip()

    @property
    def mark(self) -> str:
        kind = " *" if self.best else " =" if self.tied else ""
        return kind + ("" if self.note is None else f" [{self.note}]")


@dataclass(frozen=True)
class Grid:
    """A title, a header, rows of cells (the first cell of a row is its name), numbered footnotes and a legend.

    A legend names the marks as `{best}` and `{tied}`; each form puts in how it shows them.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]
    notes: tuple[str, ...] = ()
    legend: tuple[str, ...] = ()

    def legend_with(self, best: str, tied: str) -> list[str]:
        return [sentence.format(best=best, tied=tied) for sentence in self.legend]


def show(grids: Sequence[Grid], form: Literal["text", "md", "latex", "html"], title: str) -> str:
    """Grids in one of the forms; the title is that of the page, where there is one."""
    if form == "html":
        return as_html(grids, title)
    return {"text": as_text, "md": as_markdown, "latex": as_latex}[form](grids)


def as_text(grids: Sequence[Grid]) -> str:
    """For a terminal: columns aligned, marks `*` and `=`."""
    return "\n\n".join(_text(grid) for grid in grids) + "\n"


def _text(grid: Grid) -> str:
    columns = [_text_column(grid, c) for c in range(len(grid.header))]
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    rule = "-" * max(map(_width, lines))
    out = [grid.title, "", lines[0], rule, *lines[1:]]
    out += [""] if grid.notes or grid.legend else []
    out += [f"[{number}] {note}" for number, note in enumerate(grid.notes, 1)]
    return "\n".join([*out, *grid.legend_with("*", "=")])


def _text_column(grid: Grid, c: int) -> list[str]:
    """One column, header first, padded. Marks hang to the right, so that the figures stand under each other."""
    cells = [row[c] for row in grid.rows]
    body = max((_width(cell.body) for cell in cells), default=0)
    mark = max((_width(cell.mark) for cell in cells), default=0)
    body = max(body, _width(grid.header[c]) - mark)
    filled = [_pad(cell.body, body, left=c == 0) + _pad(cell.mark, mark, left=True) for cell in cells]
    return [_pad(grid.header[c], body + mark, left=c == 0), *filled]


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _pad(text: str, width: int, left: bool) -> str:
    space = " " * (width - _width(text))
    return text + space if left else space + text


def as_markdown(grids: Sequence[Grid]) -> str:
    """For a README: the best figure of a column in bold, those tied with it in italics."""
    return "\n\n".join(_markdown(grid) for grid in grids) + "\n"


def _markdown(grid: Grid) -> str:
    def cell(text: Text) -> str:
        figure = _escape_markdown(text.figure)
        figure = f"**{figure}**" if text.best else f"*{figure}*" if text.tied else figure
        spread = f" {_escape_markdown(text.spread)}" if text.spread else ""
        return f"{figure}{spread}{'' if text.note is None else f' [{text.note}]'}"

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    out = [f"**{_escape_markdown(grid.title)}**", ""]
    out.append(line([_escape_markdown(name) for name in grid.header]))
    out.append(line(["---", *["---:"] * (len(grid.header) - 1)]))
    out += [line([cell(text) for text in row]) for row in grid.rows]
    for number, note in enumerate(grid.notes, 1):
        out += ["", f"[{number}] {_escape_markdown(note)}"]
    for sentence in grid.legend_with("bold", "italics"):
        out += ["", _escape_markdown(sentence)]
    return "\n".join(out)


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


def as_latex(grids: Sequence[Grid]) -> str:
    """For a paper: booktabs, best in bold, tied underlined."""
    head = "% Needs \\usepackage{booktabs}, and \\usepackage{graphicx} for tables wider than the page.\n"
    return head + "\n".join(_latex(grid) for grid in grids)


def _latex(grid: Grid) -> str:
    def cell(text: Text) -> str:
        figure = escape_latex(text.figure)
        figure = f"\\textbf{{{figure}}}" if text.best else f"\\underline{{{figure}}}" if text.tied else figure
        spread = f"{{\\scriptsize\\,{escape_latex(text.spread)}}}" if text.spread else ""
        note = "" if text.note is None else f"\\textsuperscript{{{text.note}}}"
        return figure + spread + note

    legend = grid.legend_with("bold", "underlined")
    notes = [f"\\textsuperscript{{{n}}}{escape_latex(note)}" for n, note in enumerate(grid.notes, 1)]
    below = " ".join([*notes, *map(escape_latex, legend)])
    lines = [
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{escape_latex(grid.title)}}}",
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{l{'r' * (len(grid.header) - 1)}}}",
        "\\toprule",
        " & ".join(escape_latex(name) for name in grid.header) + " \\\\",
        "\\midrule",
        *(" & ".join(cell(text) for text in row) + " \\\\" for row in grid.rows),
        "\\bottomrule",
        "\\end{tabular}}",
        *([f"\\par\\smallskip{{\\footnotesize {below}\\par}}"] if below else []),
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


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
    """Text that LaTeX prints as it is; a letter that its fonts lack loses its accent or becomes a question mark."""
    return "".join(_latex_character(c) for c in text)


def _latex_character(c: str) -> str:
    if c in _LATEX:
        return _LATEX[c]
    if c.isascii():
        return c if c.isprintable() else " "
    base = unicodedata.normalize("NFKD", c)[0]
    if not (base.isascii() and base.isalnum()):
        return "?"
    return c if "À" <= c <= "ÿ" else base


def as_html(grids: Sequence[Grid], title: str) -> str:
    """One page that needs no other file."""
    body = "\n".join(_html(grid) for grid in grids)
    return _PAGE.replace("@TITLE@", html.escape(title)).replace("@BODY@", body)


def _html(grid: Grid) -> str:
    def cell(text: Text, tag: str) -> str:
        kind = "best" if text.best else "tied" if text.tied else ""
        attributes = f' class="{kind}"' if kind else ""
        attributes += f' title="{html.escape(text.hover)}"' if text.hover else ""
        spread = f" <small>{html.escape(text.spread)}</small>" if text.spread else ""
        note = "" if text.note is None else f"<sup>{text.note}</sup>"
        return f"<{tag}{attributes}><span>{html.escape(text.figure)}</span>{spread}{note}</{tag}>"

    head = "".join(f"<th>{html.escape(name)}</th>" for name in grid.header)
    rows = ["".join([cell(row[0], "th"), *(cell(text, "td") for text in row[1:])]) for row in grid.rows]
    notes = [f"<sup>{number}</sup> {html.escape(note)}" for number, note in enumerate(grid.notes, 1)]
    legend = [html.escape(sentence) for sentence in grid.legend_with("bold", "underlined")]
    below = "".join(f"<p>{line}</p>" for line in [*notes, *legend])
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<section><h2>{html.escape(grid.title)}</h2>\n<table><thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table>\n{below}</section>"
    )


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
th:first-child { text-align: left; font-weight: 500 }
tbody tr:nth-child(even) { background: #f4f4f4 }
.best span { font-weight: 700 } .tied span { text-decoration: underline }
small { color: #555 } p { margin: .35rem 0; color: #333; font-size: .87rem }
</style></head><body>
@BODY@
</body></html>
"""
