"""The papers' figures, drawn from stored runs. What is not there yet is named below the picture, never left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from xcbench.data import Dataset
from xcbench.disk import readable_disk_errors
from xcbench.errors import InputError
from xcbench.evaluation import Bootstrap, PointScores, Truth, contributions, evaluate, frequency_bins
from xcbench.files import atomic_file
from xcbench.report.availability import check, unavailable
from xcbench.report.columns import column
from xcbench.report.experiments import Experiment, Figure, Row
from xcbench.report.plot_style import INK, canvas, look
from xcbench.report.render import place
from xcbench.report.scores import DatasetRuns, ScoreTable
from xcbench.runner.store import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

RARE = 5
FORMS = (".png", ".pdf", ".svg")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Drawn:
    """The file that was written, if there was anything to draw, and which rows are missing in it, with reasons."""

    path: Path | None
    missing: Mapping[str, str]


def draw(experiment: Experiment, shelf: DatasetRuns, seeds: Sequence[int], path: Path) -> Drawn:
    """Draw an experiment on one dataset into a png, pdf or svg file."""
    check(experiment)
    if experiment.figure is None:
        raise InputError(f"{experiment.name} is a table and has no figure; `xcbench table` prints it")
    check_form(path)
    if experiment.figure.kind == "frequency":
        return Drawn(save(path, _draw_frequency(experiment, shelf)), {})
    runs, missing = _runs(experiment, shelf, seeds)
    if not runs:
        return Drawn(None, missing)
    drawing = {"bins": _draw_bins, "lines": _draw_lines, "measured": _draw_measured}[experiment.figure.kind]
    return Drawn(save(path, drawing(experiment, experiment.figure, shelf, runs, missing)), missing)


Runs = Mapping[str, Sequence[Record]]


def _runs(experiment: Experiment, shelf: DatasetRuns, seeds: Sequence[int]) -> tuple[Runs, dict[str, str]]:
    runs: dict[str, list[Record]] = {}
    missing: dict[str, str] = {}
    for row in experiment.rows:
        reason = unavailable(row)
        found = [] if reason else list(shelf.records(row, seeds).values())
        if found and not _lacks(experiment.figure, found):
            runs[row.label] = found
        else:
            missing[row.label] = reason or (_lacks(experiment.figure, found) if found else "not run yet")
    return runs, missing


def _lacks(figure: Figure | None, records: Sequence[Record]) -> str:
    """Why records cannot be drawn although they are there."""
    if figure and figure.kind == "measured" and not all(figure.quantity in record.reported for record in records):
        return f"its runs do not report {figure.quantity}"
    return ""


def _draw_bins(
    experiment: Experiment, figure: Figure, shelf: DatasetRuns, runs: Runs, missing: Mapping[str, str]
) -> Iterator[Picture]:
    metric = experiment.metrics[0]
    with canvas(max(5.5, 0.9 * figure.bins + 1.5), 3.4) as (picture, (axes,)):
        bin_bars(axes, runs, shelf.data, metric, figure.bins)
        _finish(picture, axes, experiment, shelf, figure.x, figure.y or metric, missing)
        yield picture


def bin_bars(axes: Axes, runs: Runs, data: Dataset, metric: str, count: int = 5) -> None:
    """What labels of each frequency add to a metric, as bars with 95% intervals; the legend has the sums."""
    bins = frequency_bins(data.label_frequency, count)
    truth = Truth.of(data)
    width = 0.8 / len(runs)
    for number, (label, records) in enumerate(runs.items()):
        values, low, high = bin_contributions(records, truth, metric, bins, count)
        style = look(number)
        axes.bar(
            np.arange(count) + (number - (len(runs) - 1) / 2) * width,
            values,
            width * 0.92,
            yerr=np.maximum(0, [values - low, high - values]),
            label=f"{label} ({values.sum():.1f})",
            color=style.colour,
            hatch=style.hatch,
            edgecolor="white",
            error_kw={"elinewidth": 0.8, "ecolor": INK},
        )
    axes.set_xticks(range(count), _bin_names(data.label_frequency, bins, count))
    axes.grid(axis="x", visible=False)


def bin_contributions(
    records: Sequence[Record], truth: Truth, metric: str, bins: npt.NDArray[np.int64], count: int
) -> tuple[Floats, Floats, Floats]:
    """What each bin of labels adds to a metric: values and the ends of their 95% intervals, seeds averaged."""
    of_seeds = [
        contributions(evaluate(record.predictions(), truth, [metric]), metric, bins, count) for record in records
    ]
    scores = [PointScores.average(same_bin) for same_bin in zip(*of_seeds, strict=True)]
    bootstrap = Bootstrap(scores)
    intervals = [bootstrap.interval(number) for number in range(count)]
    values, low, high = (np.array([getattr(i, part) for i in intervals]) for part in ("value", "low", "high"))
    return values, low, high


def _bin_names(frequency: npt.NDArray[np.int64], bins: npt.NDArray[np.int64], count: int) -> list[str]:
    names = []
    for number in range(count):
        inside = frequency[bins == number]
        span = (
            "–"
            if not len(inside)
            else f"{inside.min()}"
            if inside.min() == inside.max()
            else f"{inside.min()}–{inside.max()}"
        )
        names.append(f"{span}\n{len(inside):,} labels")
    return names


def _draw_lines(
    experiment: Experiment, figure: Figure, shelf: DatasetRuns, runs: Runs, missing: Mapping[str, str]
) -> Iterator[Picture]:
    columns = [column(metric) for metric in experiment.metrics]
    judge = ScoreTable(shelf.data, runs, columns, resamples=2000)
    rows = [row for row in experiment.rows if row.label in runs]
    with canvas(3.6 * len(columns) + 0.4, 3.2, len(columns)) as (picture, panels):
        for axes, c in zip(panels, columns, strict=True):
            for number, series in enumerate(dict.fromkeys(row.series or "" for row in rows)):
                points = [row for row in rows if (row.series or "") == series]
                _line(axes, number, series, points, [judge.interval(row.label, c.name) for row in points])
            axes.set_xticks(sorted({_x(row) for row in rows}))
            _finish(picture, axes, experiment, shelf, figure.x, f"{c.title} (%)", missing, title=axes is panels[0])
        yield picture


def _line(axes: Axes, number: int, series: str, points: Sequence[Row], intervals: Sequence[Any]) -> None:
    style = look(number)
    values = np.array([interval.value for interval in intervals])
    spans = np.array([(i.value - i.low, i.high - i.value) for i in intervals]).T
    axes.errorbar(
        [_x(row) for row in points],
        values,
        yerr=np.maximum(0, spans),
        label=series,
        color=style.colour,
        marker=style.marker,
        linestyle=style.line,
        capsize=2,
        elinewidth=0.8,
    )


def _x(row: Row) -> float:
    if row.x is None:
        raise InputError(f"row {row.label!r} of a figure of lines needs an x")
    return row.x


def _draw_measured(
    experiment: Experiment, figure: Figure, shelf: DatasetRuns, runs: Runs, missing: Mapping[str, str]
) -> Iterator[Picture]:
    with canvas(5.5, 3.4) as (picture, (axes,)):
        number = 0
        for label, records in runs.items():
            for name, x, y in curves(records[0].reported[figure.quantity], label):
                style = look(number)
                axes.plot(x, y, label=name, color=style.colour, marker=style.marker, linestyle=style.line)
                number += 1
        _finish(picture, axes, experiment, shelf, figure.x, figure.y, missing)
        yield picture


def curves(reported: Any, label: str) -> Iterator[tuple[str, list[float], list[float]]]:
    """The lines in what a method reports: `{"x": [...], "y": [...]}`, or `y` as a mapping of names to lists."""
    if not isinstance(reported, Mapping) or "x" not in reported or "y" not in reported:
        raise InputError(f"{label}: a reported curve is a mapping of x and y, got {type(reported).__name__}")
    lines = reported["y"] if isinstance(reported["y"], Mapping) else {"": reported["y"]}
    for name, y in lines.items():
        if len(y) != len(reported["x"]):
            raise InputError(f"{label}: a reported curve has {len(reported['x'])} values of x and {len(y)} of y")
        yield f"{label} {name}".strip(), list(reported["x"]), list(y)


def _draw_frequency(experiment: Experiment, shelf: DatasetRuns) -> Iterator[Picture]:
    figure = experiment.figure
    assert figure is not None
    frequency = np.sort(shelf.data.label_frequency)
    with canvas(5.0, 3.2) as (picture, (axes,)):
        axes.step(np.arange(len(frequency)), np.maximum(frequency, 0.5), where="post", color=look(0).colour)
        axes.axhline(RARE, color=INK, linewidth=1.2, linestyle="--")
        share = float((frequency < RARE).mean())
        axes.annotate(
            f"{share:.0%} of {len(frequency):,} labels have\nfewer than {RARE} training points",
            (0.03, 0.97),
            xycoords="axes fraction",
            va="top",
        )
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.margins(x=0.01)
        _finish(picture, axes, experiment, shelf, figure.x, figure.y, {})
        yield picture


def _finish(
    picture: Picture,
    axes: Axes,
    experiment: Experiment,
    shelf: DatasetRuns,
    x: str,
    y: str,
    missing: Mapping[str, str],
    title: bool = True,
) -> None:
    if title:
        where = f"{experiment.paper} {place(experiment.place)}: " if experiment.paper else ""
        picture.suptitle(f"{where}{experiment.title} ({shelf.data.name})", fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    handles, labels = axes.get_legend_handles_labels()
    if any(labels) and title:
        # Above the panel: there it hides no bar and no interval.
        axes.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8)
    if missing and title:
        picture.supxlabel(f"not available: {', '.join(missing)}", fontsize=7, color="#555555", x=0.01, ha="left")


def check_form(path: Path) -> None:
    """Refuse a file name that is no picture's before anything is computed for it."""
    if path.suffix.lower() not in FORMS:
        raise InputError(f"a figure is written as {', '.join(FORMS)}; got {path.name!r}")


def save(path: Path, pictures: Iterator[Picture]) -> Path:
    """Write what a drawing yields as a png, pdf or svg file; the same runs give the same bytes."""
    for picture in pictures:
        with readable_disk_errors(path.parent), atomic_file(path) as part:
            # No dates inside.
            metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
            picture.savefig(part, format=path.suffix[1:].lower(), metadata=metadata)
    return path
