"""What accuracy costs: methods, also augmented and reranked, against the time they take to train and to predict."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from xcbench.evaluation import Interval
from xcbench.report.columns import column
from xcbench.report.costs import usual_conditions
from xcbench.report.plot_style import INK, canvas, series_style
from xcbench.report.plots import check_picture_format, save, set_log_scale, write_note, write_title
from xcbench.report.scores import DatasetRuns
from xcbench.report.variants import KINDS, Kind, Variant, variants_on
from xcbench.runner.store import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture
    from matplotlib.text import Annotation

GAINS = ("P@1", "PSP@1")
COSTS = {"train_s": "training time (s)", "predict_ms": "prediction time (ms per point)"}
DRAWN: tuple[Kind, ...] = ("method", "augmented", "reranked")
"""What is drawn; of the other kinds the picture says how many there are."""
FLOOR = 0.5
"""What is not even this share as accurate as the best is named below the picture; drawn, it would squeeze the rest."""
GREY = "#8c8c8c"
PALE_GREY = "#c8c8c8"


@dataclass(frozen=True)
class Standing:
    """How accurate and how fast one variant of a method is on a dataset; several seeds are averaged."""

    name: str
    gains: Mapping[str, Interval]
    costs: Mapping[str, float]
    is_varied: bool = False
    """Whether it is a method with an augmentation or a reranker."""
    is_timed_alike: bool = True
    """Whether its times were measured under the conditions of most others."""


def standings(variants: Sequence[Variant]) -> list[Standing]:
    """Return where each variant that is drawn stands: methods as they are, augmented ones and reranked ones.

    Parameters
    ----------
    variants
        The variants that have run on a dataset.
    """
    drawn = [variant for variant in variants if variant.kind in DRAWN]
    usual = usual_conditions(record for variant in drawn for record in variant.records)
    return [_standing(variant, variant.conditions == {usual}) for variant in drawn]


def _standing(variant: Variant, is_timed_alike: bool) -> Standing:
    gains = {}
    for name in GAINS:
        gains[name] = _mean([record.metrics[name] for record in variant.records])
    costs = {}
    for name in COSTS:
        costs[name] = _mean_cost(variant.records, name)
    return Standing(variant.name, gains, costs, variant.kind != "method", is_timed_alike)


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
    variants = variants_on(records, dataset_runs.data.fingerprint)
    found = standings(variants)
    if not found:
        return None
    return save(path, _pictures(found, dataset_runs.data.name, _not_drawn(variants)))


def _not_drawn(variants: Sequence[Variant]) -> str:
    """Return how many variants of which kinds the picture leaves out; nothing if it leaves out none."""
    counts = Counter(variant.kind for variant in variants if variant.kind not in DRAWN)
    named = [f"{KINDS[kind]} ({count})" for kind, count in sorted(counts.items())]
    return ", ".join(named)


def _pictures(found: Sequence[Standing], dataset: str, not_drawn: str = "") -> Iterator[Picture]:
    ranked = sorted(found, key=lambda standing: -_accuracy(standing))
    best = _accuracy(ranked[0])
    shown = [standing for standing in ranked if _accuracy(standing) >= FLOOR * best]
    far_below = [f"{standing.name} ({_accuracy(standing):.1f})" for standing in ranked[len(shown) :]]
    panel_contents = list(itertools.product(GAINS, COSTS))

    with canvas(11.2, 7.4, panels=len(COSTS), rows=len(GAINS)) as (picture, panels):
        for axes, (gain, cost) in zip(panels, panel_contents, strict=True):
            _draw_panel(axes, shown, gain, cost)
        write_title(picture, f"What accuracy costs on {dataset}: the line is the Pareto front", size=11)
        _write_key(picture, shown)
        notes = _notes(shown, far_below, not_drawn)
        if notes:
            write_note(picture, notes)

        picture.draw_without_rendering()  # settles the layout, on which the places of numbers depend
        for axes, (gain, cost) in zip(panels, panel_contents, strict=True):
            points = {}
            for number, standing in enumerate(shown, 1):
                points[str(number)] = (standing.costs[cost], standing.gains[gain].value)
            _write_names(axes, points)
        yield picture


def _write_key(picture: Picture, shown: Sequence[Standing]) -> None:
    """Write beside the panels what the numbers stand for: names would cover each other."""
    from matplotlib.lines import Line2D

    handles = []
    for number, standing in enumerate(shown, 1):
        label = f"{number}  {standing.name} ({_accuracy(standing):.1f})"
        handles.append(Line2D([], [], linestyle="", marker=_marker(standing), color=GREY, label=label))
    picture.legend(
        handles=handles,
        loc="outside right upper",
        fontsize=7.5,
        title=f"by {GAINS[0]}",
        title_fontsize=8,
        alignment="left",
        handletextpad=0.2,
    )


def _marker(standing: Standing) -> str:
    if not standing.is_timed_alike:
        return "^"
    if standing.is_varied:
        return "s"
    return "o"


def _notes(shown: Sequence[Standing], far_below: Sequence[str], not_drawn: str) -> str:
    notes = []
    if any(standing.is_varied for standing in shown):
        notes.append("Squares: with an augmentation or a reranker.")
    if not all(standing.is_timed_alike for standing in shown):
        notes.append(
            "Triangles: timed on another machine, with other threads or beside other work than most; their times "
            "cannot be compared, and they are not on the front."
        )
    if far_below:
        notes.append(f"Far below, by {GAINS[0]}: {', '.join(far_below)}.")
    if not_drawn:
        notes.append(f"Not drawn: {not_drawn}.")
    return " ".join(notes)


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
    timed_alike = np.array([standing.is_timed_alike for standing in shown])
    on_front = np.zeros(len(shown), bool)
    on_front[timed_alike] = front(x[timed_alike], y[timed_alike])
    from_left = np.flatnonzero(on_front)[np.argsort(x[on_front])]
    colour = series_style(0).colour

    _set_time_scale(axes, x)
    axes.vlines(x, low, high, color=PALE_GREY, lw=1)
    axes.step(x[from_left], y[from_left], where="post", color=colour, linewidth=1.2)
    for number, standing in enumerate(shown):
        fill = "white"
        edge = GREY
        if on_front[number]:
            fill = colour
            edge = colour
        axes.plot(x[number], y[number], _marker(standing), markerfacecolor=fill, color=edge)
    axes.margins(y=0.08)
    axes.set_xlabel(COSTS[cost])
    axes.set_ylabel(f"{gain} (%), with 95% intervals")


def _set_time_scale(axes: Axes, times: npt.NDArray[np.float64]) -> None:
    """Set a logarithmic axis with room for numbers on both sides; matplotlib's own limits fail at a single time."""
    span = times.max() / times.min()
    room = max(2.0, span**0.08)
    ticks: tuple[int, ...] = (1,)
    if span < 100:
        ticks = (1, 2, 5)

    set_log_scale(axes, ticks)
    axes.set_xlim(times.min() / room, times.max() * room)


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
