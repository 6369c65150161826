"""The papers' figures, drawn from stored runs. Rows without runs are named below the picture, never left out."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from xcbench.data import Dataset
from xcbench.disk import readable_disk_errors
from xcbench.errors import InputError
from xcbench.evaluation import Interval, Truth, frequency_bins, parse_metric
from xcbench.files import atomic_file
from xcbench.report.availability import check, unavailable
from xcbench.report.columns import Column, column
from xcbench.report.experiments import Experiment, Figure, Row
from xcbench.report.frequency import bin_figures, bin_names
from xcbench.report.plot_style import INK, canvas, series_style
from xcbench.report.render import heading_of
from xcbench.report.scores import DatasetRuns, ScoreTable, answered_metrics
from xcbench.runner.store import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

RARE = 5
"""A label with fewer training points is called rare."""
X_LABEL_WIDTH = 60
Y_LABEL_WIDTH = 32
"""How many characters stand in a line of an axis' label."""
FORMATS = (".png", ".pdf", ".svg")
Floats = npt.NDArray[np.float64]
Runs = Mapping[str, Sequence[Record]]
"""The runs of each row, by the row's label: one per seed."""


@dataclass(frozen=True)
class Drawn:
    """The file that was written, if there was anything to draw, and which rows are missing in it, with reasons."""

    path: Path | None
    missing: Mapping[str, str]


@dataclass(frozen=True)
class _Drawing:
    """What all kinds of figures need to know."""

    experiment: Experiment
    figure: Figure
    dataset_runs: DatasetRuns
    runs: Runs
    missing: Mapping[str, str]


def draw(
    experiment: Experiment,
    dataset_runs: DatasetRuns,
    seeds: Sequence[int],
    path: Path,
) -> Drawn:
    """Draw an experiment on one dataset.

    Parameters
    ----------
    experiment
        What to draw; it must have a figure.
    dataset_runs
        The dataset and the store of its runs.
    seeds
        The seeds to average over.
    path
        The file to write: png, pdf or svg by its name.
    """
    check(experiment)
    figure = experiment.figure
    if figure is None:
        raise InputError(f"{experiment.name} is a table and has no figure; `xcbench table` prints it")
    check_picture_format(path)

    if figure.kind == "frequency":
        drawing = _Drawing(experiment, figure, dataset_runs, {}, {})
        return Drawn(save(path, _draw_frequency(drawing)), {})

    runs, missing = _find_runs(experiment, figure, dataset_runs, seeds)
    if not runs:
        return Drawn(None, missing)
    drawing = _Drawing(experiment, figure, dataset_runs, runs, missing)
    return Drawn(save(path, _DRAW[figure.kind](drawing)), missing)


def _find_runs(
    experiment: Experiment,
    figure: Figure,
    dataset_runs: DatasetRuns,
    seeds: Sequence[int],
) -> tuple[Runs, dict[str, str]]:
    """Return the runs of each row that can be drawn, and why the others cannot."""
    runs: dict[str, list[Record]] = {}
    missing: dict[str, str] = {}
    for row in experiment.rows:
        reason = unavailable(row)
        records: list[Record] = []
        if reason is None:
            records = list(dataset_runs.records(row, seeds).values())
            reason = _reason_not_to_draw(experiment, figure, records, dataset_runs.data.label_count)

        if reason is None:
            runs[row.label] = records
        else:
            missing[row.label] = reason
    return runs, missing


def _reason_not_to_draw(
    experiment: Experiment,
    figure: Figure,
    records: Sequence[Record],
    label_count: int,
) -> str | None:
    """Return why the runs of a row cannot be drawn, None if they can."""
    if not records:
        return "not run yet"
    if figure.kind == "measured":
        if not all(figure.quantity in record.reported for record in records):
            return f"its runs do not report {figure.quantity}"
        return None

    drawn_metrics = [name for name in experiment.metrics if column(name).is_metric]
    if figure.kind == "bins" and not figure.by_k:
        drawn_metrics = drawn_metrics[:1]
    answered = answered_metrics(records, drawn_metrics, label_count)
    too_deep = [metric for metric in drawn_metrics if metric not in answered]
    if too_deep:
        return f"its runs keep too few places for {', '.join(too_deep)}"
    return None


def _draw_bins(drawing: _Drawing) -> Iterator[Picture]:
    figure = drawing.figure
    metric = drawing.experiment.metrics[0]
    panel_count = 1 + figure.by_k
    with canvas(panel_count * max(5.5, 0.9 * figure.bins + 1.5), 3.4, panel_count) as (picture, panels):
        axes = panels[-1]
        bin_bars(axes, drawing.runs, drawing.dataset_runs.data, metric, figure.bins)
        _label_axes(axes, figure.x, figure.y or metric)
        if figure.by_k:
            _draw_by_k(panels[0], drawing)
        _finish(picture, axes, drawing)
        yield picture


def _draw_by_k(axes: Axes, drawing: _Drawing) -> None:
    """Draw the metrics of each row against k, which grows by factors."""
    metrics = [parse_metric(name) for name in drawing.experiment.metrics]
    by_k = {metric.k: column(str(metric)) for metric in metrics if metric.k is not None}
    ks = sorted(by_k)
    columns = [by_k[k] for k in ks]
    scores = ScoreTable(drawing.dataset_runs.data, drawing.runs, columns, resamples=2000)
    for number, label in enumerate(drawing.runs):
        values = [scores.interval(label, panel_column.name).value for panel_column in columns]
        style = series_style(number)
        axes.plot(ks, values, label=label, color=style.colour, marker=style.marker, linestyle=style.line)
    axes.set_xscale("log")
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.minorticks_off()
    _label_axes(axes, "k", f"{metrics[0].family.name}@k (%)")


def bin_bars(
    axes: Axes,
    runs: Runs,
    data: Dataset,
    metric: str,
    count: int = 5,
) -> None:
    """Draw what labels of each frequency add to a metric, as bars with 95% intervals; the legend has the sums.

    Parameters
    ----------
    axes
        Where to draw.
    runs
        Runs by name, those that differ by seed only together.
    data
        The dataset of the runs.
    metric
        The name of a metric that is a sum over hits.
    count
        How many bins of labels, equal in training pairs.
    """
    bins = frequency_bins(data.label_frequency, count)
    width = 0.8 / len(runs)
    for number, (label, found) in enumerate(bin_figures(runs, Truth.of(data), metric, bins, count).items()):
        values = found.values
        style = series_style(number)
        offset = (number - (len(runs) - 1) / 2) * width
        axes.bar(
            np.arange(count) + offset,
            values,
            width * 0.92,
            yerr=np.maximum(0, [values - found.low, found.high - values]),
            label=f"{label} ({values.sum():.1f})",
            color=style.colour,
            hatch=style.hatch,
            edgecolor="white",
            error_kw={"elinewidth": 0.8, "ecolor": INK},
        )
    names = bin_names(data.label_frequency, bins, count)
    label_counts = np.bincount(bins, minlength=count)
    ticks = [f"{name}\n{labels:,} labels" for name, labels in zip(names, label_counts, strict=True)]
    axes.set_xticks(range(count), ticks)
    axes.grid(axis="x", visible=False)


def _draw_lines(drawing: _Drawing) -> Iterator[Picture]:
    experiment = drawing.experiment
    columns = [column(metric) for metric in experiment.metrics]
    scores = ScoreTable(drawing.dataset_runs.data, drawing.runs, columns, resamples=2000)
    rows = [row for row in experiment.rows if row.label in drawing.runs]

    with canvas(3.6 * len(columns) + 0.4, 3.2, len(columns)) as (picture, panels):
        for axes, panel_column in zip(panels, columns, strict=True):
            _draw_panel_of_lines(axes, rows, scores, panel_column)
            _label_axes(axes, drawing.figure.x, f"{panel_column.title} (%)")
        _finish(picture, panels[0], drawing)
        yield picture


def _draw_panel_of_lines(
    axes: Axes,
    rows: Sequence[Row],
    scores: ScoreTable,
    panel_column: Column,
) -> None:
    rows_by_series: dict[str, list[Row]] = {}
    for row in rows:
        rows_by_series.setdefault(row.series or "", []).append(row)

    for number, (series, points) in enumerate(rows_by_series.items()):
        intervals = [scores.interval(row.label, panel_column.name) for row in points]
        _draw_line(axes, number, series, points, intervals)
    axes.set_xticks(sorted({_x(row) for row in rows}))


def _draw_line(
    axes: Axes,
    number: int,
    series: str,
    points: Sequence[Row],
    intervals: Sequence[Interval],
) -> None:
    style = series_style(number)
    values = [interval.value for interval in intervals]
    below = [interval.value - interval.low for interval in intervals]
    above = [interval.high - interval.value for interval in intervals]
    axes.errorbar(
        [_x(row) for row in points],
        np.array(values),
        yerr=np.maximum(0, np.array([below, above])),
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


def _draw_measured(drawing: _Drawing) -> Iterator[Picture]:
    figure = drawing.figure
    with canvas(5.5, 3.4) as (picture, (axes,)):
        number = 0
        for label, records in drawing.runs.items():
            for name, x, y in curves(records[0].reported[figure.quantity], label):
                style = series_style(number)
                axes.plot(x, y, label=name, color=style.colour, marker=style.marker, linestyle=style.line)
                number += 1
        if figure.log_x:
            set_log_scale(axes)
        _label_axes(axes, figure.x, figure.y)
        _finish(picture, axes, drawing)
        yield picture


def set_log_scale(axes: Axes, ticks: Sequence[int] = (1, 2, 5)) -> None:
    """Make the horizontal axis logarithmic, with plain numbers at these multiples of the powers of ten.

    Parameters
    ----------
    axes
        The panel.
    ticks
        From 1 to 9.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=ticks))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def curves(reported: Any, label: str) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yield the lines in what a method reports, each with its name, x and y.

    Parameters
    ----------
    reported
        `{"x": [...], "y": [...]}`, or `y` as a mapping of names to lists. Anything else is an `InputError`.
    label
        The row's label, with which each name begins.
    """
    if not isinstance(reported, Mapping) or "x" not in reported or "y" not in reported:
        raise InputError(f"{label}: a reported curve is a mapping of x and y, got {type(reported).__name__}")
    x = reported["x"]
    lines = reported["y"]
    if not isinstance(lines, Mapping):
        lines = {"": lines}
    for name, y in lines.items():
        if len(y) != len(x):
            raise InputError(f"{label}: a reported curve has {len(x)} values of x and {len(y)} of y")
        yield f"{label} {name}".strip(), list(x), list(y)


def _draw_frequency(drawing: _Drawing) -> Iterator[Picture]:
    frequency = np.sort(drawing.dataset_runs.data.label_frequency)
    share_rare = float((frequency < RARE).mean())
    with canvas(5.0, 3.2) as (picture, (axes,)):
        axes.step(np.arange(len(frequency)), np.maximum(frequency, 0.5), where="post", color=series_style(0).colour)
        axes.axhline(RARE, color=INK, linewidth=1.2, linestyle="--")
        axes.annotate(
            f"{share_rare:.0%} of {len(frequency):,} labels have\nfewer than {RARE} training points",
            (0.03, 0.97),
            xycoords="axes fraction",
            va="top",
        )
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.margins(x=0.01)
        _label_axes(axes, drawing.figure.x, drawing.figure.y)
        _finish(picture, axes, drawing)
        yield picture


_DRAW: dict[str, Callable[[_Drawing], Iterator[Picture]]] = {
    "bins": _draw_bins,
    "lines": _draw_lines,
    "measured": _draw_measured,
}


def _label_axes(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(textwrap.fill(x, X_LABEL_WIDTH))
    axes.set_ylabel(textwrap.fill(y, Y_LABEL_WIDTH))


def _finish(picture: Picture, first_panel: Axes, drawing: _Drawing) -> None:
    """Write the title, the legend above the first panel, and the rows that are missing."""
    experiment = drawing.experiment
    title = f"{heading_of(experiment)} ({drawing.dataset_runs.data.name})"
    if drawing.missing:
        title += f": {len(drawing.runs)} of {len(experiment.rows)} rows"
    write_title(picture, title)

    handles, labels = first_panel.get_legend_handles_labels()
    if any(labels):
        # Above the panel it hides no bar and no interval.
        first_panel.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8)
    if drawing.missing:
        write_note(picture, f"Not available: {', '.join(drawing.missing)}")


def write_title(picture: Picture, title: str, size: float = 10) -> None:
    """Write a title above a picture, in as many lines as its width asks for."""
    picture.suptitle(_wrapped(picture, title, size), fontsize=size)


def write_note(picture: Picture, note: str, size: float = 7) -> None:
    """Write what a picture lacks below it, in as many lines as its width asks for."""
    picture.supxlabel(_wrapped(picture, note, size), fontsize=size, color="#555555", x=0.01, ha="left")


def _wrapped(picture: Picture, text: str, size: float) -> str:
    # A character is 0.6 of the font's size wide, on average; a point is 1/72 of an inch.
    characters = int(0.96 * picture.get_figwidth() * 72 / (0.6 * size))
    lines = [textwrap.fill(line, characters, break_on_hyphens=False) for line in text.splitlines()]
    return "\n".join(lines)


def check_picture_format(path: Path) -> None:
    """Raise an `InputError` for a file name that is no picture's, before anything is computed for it."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"a figure is written as {', '.join(FORMATS)}; got {path.name!r}")


def save(path: Path, pictures: Iterator[Picture]) -> Path:
    """Write what a drawing yields and return the path; the same runs give the same bytes.

    Parameters
    ----------
    path
        The file to write: png, pdf or svg by its name.
    pictures
        A generator that yields one picture and closes it afterwards.
    """
    for picture in pictures:
        save_picture(picture, path)
    return path


def save_picture(picture: Picture, path: Path) -> None:
    """Write a picture as a png, pdf or svg file, without a date inside."""
    suffix = path.suffix.lower()
    metadata: dict[str, Any] = {}
    if suffix == ".svg":
        metadata = {"Date": None}
    if suffix == ".pdf":
        metadata = {"CreationDate": None}
    with readable_disk_errors(path.parent), atomic_file(path) as part:
        picture.savefig(part, format=suffix[1:], metadata=metadata)
