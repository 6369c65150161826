"""The forms of a table: aligned text, Markdown, LaTeX that compiles, HTML that stands alone, tidy CSV."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xcbench.cli.console import terminal_width
from xcbench.report.columns import column
from xcbench.report.experiments import Experiment, Row
from xcbench.report.grid import Grid, Text, as_html, as_latex, as_markdown, as_text, escape_latex
from xcbench.report.paper import PaperFigure
from xcbench.report.render import CSV_COLUMNS, render
from xcbench.report.tables import Cell, Table, TableRow

ODD = 'A & B_1 100% of $x^2$ #3 {~\\} <"|`*>'


def table(note: str = "") -> Table:
    rows = (Row(ODD, "a"), Row("plain", "b"), Row("gone", "c", note="was here"))
    experiment = Experiment("mine", f"Title of {ODD}", rows, ("P@1", "predict_ms"), reference=ODD, note=note)
    good = Cell(50.0, 45.0, 55.0, best=True, tied=True)
    near = Cell(49.123, 44.0, 54.0, tied=True, difference=-0.877, p_value=0.4)
    return Table(
        experiment,
        "toy",
        2979,
        (0,),
        (column("P@1"), column("predict_ms")),
        (
            TableRow(rows[0], {"P@1": good, "predict_ms": Cell(0.25)}),
            TableRow(rows[1], {"P@1": near, "predict_ms": Cell(0.1234, best=True)}),
            TableRow(rows[2], {}, problem="not built yet", state="not available"),
        ),
        {(ODD, "P@1"): PaperFigure(33.5, "doubtful"), ("gone", "P@1"): PaperFigure(12.0)},
    )


def test_text():
    shown = render([table()])
    lines = shown.splitlines()
    assert lines[0] == f"Title of {ODD} (toy, 2,979 test points, seed 0)"
    assert lines[2].split() == ["P@1", "paper", "predict", "ms"]
    assert lines[4].removeprefix(ODD).split() == ["50.00", "±5.00", "*", "33.50", "[1]", "0.250"]
    assert lines[5].split() == ["plain", "49.12", "±5.00", "=", "–", "0.123", "*"]
    assert lines[6].split() == ["gone", "[2]", "not", "available", "12.00", "–"]
    assert lines[3] == "-" * max(len(line) for line in lines[2:7])
    # figures stand under each other whatever marks follow them
    assert lines[4].index("50.00") == lines[5].index("49.12")
    assert lines[4].index("0.250") == lines[5].index("0.123")
    assert "[1] doubtful" in lines
    assert "[2] not built yet; was here" in lines
    assert "Differences to " + ODD + " (toy)" in lines
    assert lines[-3].split() == ["plain", "-0.88", "="]


def test_markdown_has_one_shape():
    shown = render([table()], "md")
    body = [line for line in shown.splitlines() if line.startswith("|")]
    first = body[:5]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in first} == {5}
    assert "**50.00** ±5.00" in first[2]
    assert "*49.12*" in first[3]
    assert "B\\_1" in first[2]


def check_latex(source: str) -> None:
    """What a compiler would trip over: braces, environments, cells a row, and characters with a meaning."""
    bare = re.sub(r"\\[\\{}&%$#_]", "", re.sub(r"^%.*$", "", source, flags=re.M))
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"[_#^~]", bare.replace("$\\pm$", ""))
    for name in ("table", "tabular"):
        assert source.count(f"\\begin{{{name}}}") == source.count(f"\\end{{{name}}}")
    for tabular in re.findall(r"\\begin\{tabular\}\{(l+r*)\}(.*?)\\end\{tabular\}", source, re.S):
        columns, inside = tabular
        lines = [line for line in inside.split(" \\\\\n") if "&" in line]
        assert lines
        assert all(len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1 for line in lines)
    assert all(c == "\n" or (c.isprintable() and ord(c) < 0x100) for c in source)


def test_latex_structure():
    source = render([table(note="Braces {like these} survive.")], "latex")
    check_latex(source)
    assert "\\textbf{50.00}" in source
    assert "\\underline{49.12}" in source
    for rule in ("\\toprule", "\\midrule", "\\bottomrule"):
        assert source.count(rule) == 2
    assert "Braces \\{like these\\} survive." in source


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=30))
def test_any_text_is_safe_in_latex_and_html(text):
    grid = Grid("t", ("", "x"), ((Text(text), Text("1", note=1)),), (text,))
    check_latex(as_latex([grid]))
    page = as_html([grid], text)
    assert page.count("<td") == 1
    assert len(as_markdown([grid])) > 0


def test_letters_in_latex():
    assert escape_latex("a_b é ő × ± 日\t~") == "a\\_b é o $\\times$ $\\pm$ ? \\textasciitilde{}"


ENGINE = next(filter(None, map(shutil.which, ("tectonic", "pdflatex", "lualatex", "xelatex"))), None)


@pytest.mark.skipif(ENGINE is None, reason="no LaTeX engine on this machine")
def test_latex_compiles(tmp_path):
    head = "\\documentclass{article}\\usepackage[T1]{fontenc}\\usepackage{booktabs,graphicx}\\begin{document}\n"
    source = tmp_path / "table.tex"
    source.write_text(head + render([table()], "latex") + "\\end{document}\n", "utf-8")
    options = [] if "tectonic" in str(ENGINE) else ["-interaction=nonstopmode", "-halt-on-error"]
    done = subprocess.run([str(ENGINE), *options, source.name], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "table.pdf").stat().st_size > 1000


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_stands_alone():
    shown = render([table()], "html")
    page = Page()
    page.feed(shown)
    assert page.open == []
    assert page.links == []
    assert "http" not in shown
    assert page.tags.count("table") == 2
    assert 'class="best"' in shown
    assert 'title="95% interval 45.00 to 55.00"' in shown
    assert 'title="p = 0.4"' in shown
    assert "A &amp; B_1" in shown


def test_csv_is_tidy():
    frame = pd.read_csv(io.StringIO(render([table(), table()], "csv")))
    assert tuple(frame.columns) == CSV_COLUMNS
    assert len(frame) == 12
    first = frame.iloc[0]
    assert (first["row"], first["metric"], first["value"], first["low"], first["paper"]) == (ODD, "P@1", 50, 45, 33.5)
    gone = frame[frame["row"] == "gone"]
    assert gone["value"].isna().all()
    assert set(gone["state"]) == {"not available"}


def test_an_empty_grid_is_still_a_table():
    grid = Grid("nothing", ("", "P@1"), ())
    assert as_text([grid]).splitlines()[0] == "nothing"
    check_latex(as_latex([Grid("nothing", ("", "P@1"), ((Text("a"), Text("–")),))]))


def wide_grid() -> Grid:
    header = ("", *(f"metric {n}" for n in range(8)))
    rows = [(Text(f"row {n}"), *(Text(f"{n}.{column}5", "±0.10") for column in range(8))) for n in range(3)]
    sentence = (Text("1. What is claimed takes a sentence that is longer than any name."), *[Text("")] * 8)
    return Grid("A wide table", header, (sentence, *rows), notes=("a note " * 20,), legend=("{best}: the best",))


@pytest.mark.parametrize("width", [24, 40, 60, 80, 200])
def test_a_text_fits_the_terminal_and_loses_nothing(width):
    text = as_text([wide_grid()], width)
    assert max(len(line) for line in text.splitlines()) <= width
    for word in as_text([wide_grid()]).replace("-", "").split():
        assert word in text


def test_columns_that_do_not_fit_stand_below_with_the_names_again():
    assert as_text([wide_grid()], 60).count("row 2") == 2
    assert as_text([wide_grid()], 40).count("row 2") == 4
    assert as_text([wide_grid()], 200).count("row 2") == 1


def test_a_cell_that_is_wider_than_the_terminal_is_cut_and_that_is_said():
    grid = Grid("t", ("point", "labels"), ((Text("a name of many words " * 3), Text("名" * 60, best=True)),))
    lines = as_text([grid], 50).splitlines()
    assert max(len(line) for line in lines) <= 50
    assert "…" in lines[4]
    assert " ".join(line[:24].strip() for line in lines[4:] if "cut to" not in line).startswith(
        "a name of many words a name"
    )
    assert "cut to the width of the terminal" in as_text([grid], 50)
    assert "…" not in as_text([grid])


def test_negative_numbers_have_a_minus_sign_in_print():
    grid = Grid("t", ("", "P@1"), ((Text("ECLARE-8K"), Text("-0.60")), (Text("a"), Text("-1.20 .. +0.30"))))
    assert "$-$0.60" in as_latex([grid])
    assert "ECLARE-8K" in as_latex([grid])
    assert "−1.20 .. +0.30" in as_html([grid], "t")
    assert "-0.60" in as_text([grid])


def test_only_a_terminal_has_a_width(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "71")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert terminal_width(None) == 71
    assert terminal_width(tmp_path / "table.txt") is None
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert terminal_width(None) is None
