"""What accuracy costs: every method on a dataset against the time it takes to train and to predict."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from xcbench.evaluation import Interval
from xcbench.report.columns import column
from xcbench.report.plot_style import INK, canvas, series_style
from xcbench.report.plots import check_picture_format, save
from xcbench.report.scores import DatasetRuns
from xcbench.runner.store import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture
    from matplotlib.text import Annotation

GAINS = ("P@1", "PSP@1")
COSTS = {"train_s": "training time (s)", "predict_ms": "prediction time (ms per point)"}
FLOOR = 0.5
"""What is not even this share as accurate as the best is named below the picture; drawn, it would squeeze the rest."""
GREY = "#8c8c8c"
PALE_GREY = "#c8c8c8"


@dataclass(frozen=True)
class Standing:
    """How accurate and how fast one method is on a dataset; several seeds are averaged."""

    method: str
    gains: Mapping[str, Interval]
    costs: Mapping[str, float]


def standings(records: Iterable[Record], fingerprint: str) -> list[Standing]:
    """Return where each method stands, by its newest plain runs.

    A plain run has no ablation, augmentation, reranker, override or ensemble.

    Parameters
    ----------
    records
        Runs of any kind.
    fingerprint
        That of the dataset; runs on other data are left out.
    """
    plain_runs: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.finished):
        if record.fingerprint == fingerprint and _is_plain(record):
            plain_runs.setdefault(record.method, []).append(record)
    return [_standing(method, plain_runs[method]) for method in sorted(plain_runs)]


def _is_plain(record: Record) -> bool:
    if record.is_external:
        # Nobody here measured what it costs.
        return False
    is_varied = record.ablations or record.augment or record.rerank or record.overrides or record.ensemble > 1
    return not is_varied


def _standing(method: str, records: Sequence[Record]) -> Standing:
    """Average the runs that are like the newest, one per seed; `records` are in the order in which they finished."""
    newest = records[-1]
    newest_by_seed: dict[int, Record] = {}
    for record in records:
        is_like_newest = record.method_version == newest.method_version and record.config == newest.config
        if is_like_newest:
            newest_by_seed[record.seed] = record
    averaged = list(newest_by_seed.values())

    gains = {}
    for name in GAINS:
        gains[name] = _mean([record.metrics[name] for record in averaged])
    costs = {}
    for name in COSTS:
        costs[name] = _mean_cost(averaged, name)
    return Standing(method, gains, costs)


def _mean_cost(records: Sequence[Record], name: str) -> float:
    value_of = column(name).value_of
    assert value_of is not None
    values: list[Any] = [value_of(record) for record in records]
    return float(np.mean(values))


def _mean(intervals: Sequence[Interval]) -> Interval:
    return Interval(
        value=float(np.mean([interval.value for interval in intervals])),
        low=float(np.mean([interval.low for interval in intervals])),
        high=float(np.mean([interval.high for interval in intervals])),
    )


def front(costs: npt.ArrayLike, gains: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return which are on the Pareto front: nothing else is as cheap and as good, and better in one of the two.

    Parameters
    ----------
    costs
        What each costs; less is better.
    gains
        What each gains; more is better.
    """
    cost = np.asarray(costs, float)
    gain = np.asarray(gains, float)
    as_cheap = cost[None] <= cost[:, None]
    as_good = gain[None] >= gain[:, None]
    better = (cost[None] < cost[:, None]) | (gain[None] > gain[:, None])
    beaten = (as_cheap & as_good & better).any(axis=1)
    return np.asarray(~beaten)


def draw_tradeoff(
    dataset_runs: DatasetRuns,
    path: Path,
    seeds: Sequence[int] | None = None,
) -> Path | None:
    """Draw four panels, accuracy up and time to the right; return the path.

    Returns None where the store has no plain run on this dataset.

    Parameters
    ----------
    dataset_runs
        The dataset and the store of its runs.
    path
        The file to write: png, pdf or svg by its name.
    seeds
        The seeds to average over, by default all that there are.
    """
    check_picture_format(path)
    records = dataset_runs.store.records()
    if seeds is not None:
        records = (record for record in records if record.seed in seeds)
    methods = standings(records, dataset_runs.data.fingerprint)
    if not methods:
        return None
    return save(path, _pictures(methods, dataset_runs.data.name))


def _pictures(methods: Sequence[Standing], dataset: str) -> Iterator[Picture]:
    best = max(_accuracy(standing) for standing in methods)
    shown = []
    far_below = []
    for standing in methods:
        if _accuracy(standing) >= FLOOR * best:
            shown.append(standing)
        else:
            far_below.append(f"{standing.method} ({_accuracy(standing):.1f})")
    panel_contents = list(itertools.product(GAINS, COSTS))

    with canvas(9.6, 7.2, panels=len(COSTS), rows=len(GAINS)) as (picture, panels):
        for axes, (gain, cost) in zip(panels, panel_contents, strict=True):
            _draw_panel(axes, shown, gain, cost)
        picture.suptitle(f"What accuracy costs on {dataset}: the line is the Pareto front", fontsize=11)
        if far_below:
            picture.supxlabel(f"far below, by {GAINS[0]}: {', '.join(far_below)}", fontsize=7, x=0.01, ha="left")

        picture.draw_without_rendering()  # settles the layout, on which the places of names depend
        for axes, (gain, cost) in zip(panels, panel_contents, strict=True):
            points = {}
            for standing in shown:
                points[standing.method] = (standing.costs[cost], standing.gains[gain].value)
            _write_names(axes, points)
        yield picture


def _accuracy(standing: Standing) -> float:
    return standing.gains[GAINS[0]].value


def _draw_panel(
    axes: Axes,
    shown: Sequence[Standing],
    gain: str,
    cost: str,
) -> None:
    x = np.array([standing.costs[cost] for standing in shown])
    y = np.array([standing.gains[gain].value for standing in shown])
    low = [standing.gains[gain].low for standing in shown]
    high = [standing.gains[gain].high for standing in shown]
    on_front = front(x, y)
    from_left = np.flatnonzero(on_front)[np.argsort(x[on_front])]
    colour = series_style(0).colour

    _set_time_scale(axes, x)
    axes.vlines(x, low, high, color=PALE_GREY, lw=1)
    axes.step(x[from_left], y[from_left], where="post", color=colour, linewidth=1.2)
    axes.plot(x[on_front], y[on_front], "o", color=colour)
    axes.plot(x[~on_front], y[~on_front], "o", markerfacecolor="white", color=GREY)
    axes.margins(y=0.08)
    axes.set_xlabel(COSTS[cost])
    axes.set_ylabel(f"{gain} (%), with 95% intervals")


def _set_time_scale(axes: Axes, times: npt.NDArray[np.float64]) -> None:
    """Set a logarithmic axis with room for names on both sides; matplotlib's own limits fail at a single time."""
    from matplotlib.ticker import LogLocator, NullFormatter

    span = times.max() / times.min()
    room = max(2.0, span**0.2)
    ticks: tuple[int, ...] = (1,)
    if span < 100:
        ticks = (1, 2, 5)

    axes.set_xscale("log")
    axes.set_xlim(times.min() / room, times.max() * room)
    axes.xaxis.set_major_locator(LogLocator(subs=ticks))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _write_names(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Write each name beside its point, as near as points and the names already written allow."""
    from matplotlib.transforms import Bbox

    centres = axes.transData.transform(list(points.values()))
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in centres]
    heights = sorted(range(-90, 91, 3), key=lambda height: abs(height - 6))  # rather above a line than on it
    places = list(itertools.product(heights, ("left", "right")))

    for name, point in sorted(points.items(), key=lambda item: -item[1][1]):
        for height, side in places:
            text = _write_name(axes, name, point, height, side)
            box = text.get_window_extent()
            is_last_resort = height == heights[-1]
            if is_last_resort or not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


def _write_name(
    axes: Axes,
    name: str,
    point: tuple[float, float],
    height: int,
    side: str,
) -> Annotation:
    """Write a name to one side of its point; with a line to it if it is not right beside."""
    from matplotlib.patheffects import withStroke

    offset = 7
    if side == "right":
        offset = -7
    line: dict[str, Any] | None = None
    if abs(height) > 9:
        line = {"arrowstyle": "-", "lw": 0.4, "color": GREY}
    return axes.annotate(
        name,
        point,
        (offset, height),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=7.5,
        color=INK,
        path_effects=[withStroke(linewidth=2, foreground="white")],
        arrowprops=line,
    )
