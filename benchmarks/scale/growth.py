"""How the cost of each part grows with the number of labels: a process per number, then a table and a picture.

    python -m benchmarks scale --growth --picture growth.png

The data is made in memory and is not kept. The figures of each number of labels are kept when its process ends, so the
same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.scale.growth_costs import LIKE, Cost, measure
from benchmarks.scale.row import save_csv
from xcbench.files import home, write_json
from xcbench.report.plot_style import INK, canvas, series_style
from xcbench.report.plots import check_picture_format, save_picture, set_log_scale, write_title
from xcbench.threads import set_threads

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = "10000,30000,100000,300000,1000000"
FEWEST_LABELS = 1000
STEEP = 8
"""From such an expected growth on, a panel is logarithmic: on a linear one, all but the last value would be at 0."""


def main(arguments: list[str]) -> int:
    """Run the command line; returns its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if min(options.labels) < FEWEST_LABELS:
        parser.error(f"--labels are at least {FEWEST_LABELS:,} each")
    if options.picture:
        check_picture_format(options.picture)
    if options.here:
        set_threads()
        for labels in options.labels:
            _keep(labels, list(measure(labels)))
        return 0

    for labels in options.labels:
        if _kept(labels).exists():
            continue
        print(f"{labels:,} labels ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks", "scale", "--growth", "--here", "--labels", str(labels)]
        code = subprocess.run(command).returncode
        if code:
            print(f"{labels:,} labels ended with code {code}; the same command goes on there", file=sys.stderr)
            return code

    costs = [cost for labels in options.labels for cost in _read(labels)]
    print(as_markdown(costs))
    if options.csv:
        save_csv(options.csv, costs)
    if options.picture:
        draw(options.picture, costs)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale --growth")
    parser.add_argument("--labels", type=_numbers, default=LABELS, help="the numbers of labels, with commas between")
    parser.add_argument("--picture", type=Path, help="also draw the growth into this file: png, pdf or svg")
    parser.add_argument("--csv", type=Path, help="also write all figures to this file")
    parser.add_argument("--here", action="store_true", help="measure anew, in this process")
    return parser


def _numbers(text: str) -> list[int]:
    return sorted({int(number) for number in text.split(",")})


def _kept(labels: int) -> Path:
    return home() / "scale" / "growth" / f"{labels}.json"


def _keep(labels: int, costs: Sequence[Cost]) -> None:
    path = _kept(labels)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, [dataclasses.asdict(cost) for cost in costs])


def _read(labels: int) -> list[Cost]:
    return [Cost(**values) for values in json.loads(_kept(labels).read_text("utf-8"))]


def as_markdown(costs: Sequence[Cost]) -> str:
    """Return a table for people: a row per quantity, a column per number of labels."""
    lines: list[list[str]] = []
    for name, row in _by_name(costs).items():
        values = [f"{cost.value:.3g}" for cost in row]
        lines.append([name, row[0].unit, *values, f"{_growth(row):.2f}x", f"{_expected(row):.2f}x", row[0].expected])

    sizes = sorted({cost.labels for cost in costs})
    heading = ["", "", *[f"{labels:,}" for labels in sizes], "grew by", "expected", ""]
    rule = ["---", "---", *["---:"] * (len(sizes) + 2), "---"]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heading, rule, *lines])


def _by_name(costs: Sequence[Cost]) -> dict[str, list[Cost]]:
    """Return the costs of each quantity, from few labels to many."""
    rows: dict[str, list[Cost]] = {}
    for cost in sorted(costs, key=lambda cost: cost.labels):
        rows.setdefault(cost.name, []).append(cost)
    return rows


def _growth(row: Sequence[Cost]) -> float:
    return row[-1].value / row[0].value


def _expected(row: Sequence[Cost]) -> float:
    return row[-1].work / row[0].work


def draw(path: Path, costs: Sequence[Cost]) -> None:
    """Draw a panel per quantity.

    The thin lines begin at the first value. Where a part of the cost is fixed, the values stay below them.
    """
    rows = [row for name, row in _by_name(costs).items() if name != "all of it"]
    with canvas(9.5, 5.4, panels=3, rows=2) as (picture, panels):
        for axes, row in zip(panels, rows, strict=True):
            _draw_panel(axes, row)
        for axes in panels[3:]:
            axes.set_xlabel("labels")
        write_title(picture, f"Growth with the number of labels, in the shape of {LIKE} (thin: expected)")
        save_picture(picture, path)


def _draw_panel(axes: Axes, row: Sequence[Cost]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    labels = [cost.labels for cost in row]
    values = [cost.value for cost in row]
    expected = [row[0].value * cost.work / row[0].work for cost in row]
    style = series_style(0)
    axes.plot(labels, expected, color=INK, linewidth=0.8, linestyle=":")
    axes.plot(labels, values, color=style.colour, marker=style.marker, linestyle=style.line)

    set_log_scale(axes, ticks=(1,))
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    if _expected(row) >= STEEP:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0, 1.1 * max(*expected, *values))
    axes.set_title(f"{row[0].name}\n(expected: {row[0].expected})", fontsize=9)
    axes.set_ylabel(row[0].unit)


def _short(labels: float) -> str:
    """Write a number of labels as people say it: 10K, 1M."""
    if labels >= 1_000_000:
        return f"{labels / 1_000_000:g}M"
    return f"{labels / 1000:g}K"
