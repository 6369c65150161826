"""What accuracy costs: every method on a dataset against the time it takes to train and to predict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from xcbench.report.columns import column
from xcbench.report.plot_style import INK, canvas, look
from xcbench.report.plots import check_form, save
from xcbench.report.scores import DatasetRuns
from xcbench.runner.store import Measure, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

GAINS = ("P@1", "PSP@1")
COSTS = {"train_s": "training time (s)", "predict_ms": "prediction time (ms a point)"}
FLOOR = 0.5
"""What is not even this share as accurate as the best is named below the picture; drawn, it would squeeze the rest."""


@dataclass(frozen=True)
class Standing:
    """Where one method stands on a dataset; several seeds are averaged."""

    method: str
    gains: Mapping[str, Measure]
    costs: Mapping[str, float]


def standings(records: Iterable[Record], fingerprint: str) -> list[Standing]:
    """The newest plain runs of each method: without ablation, augmentation, reranker, override or ensemble."""
    plain: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.finished):
        varied = record.ablations or record.augment or record.rerank or record.overrides or record.ensemble > 1
        if record.fingerprint == fingerprint and not varied:
            plain.setdefault(record.method, []).append(record)
    return [_standing(method, plain[method]) for method in sorted(plain)]


def _standing(method: str, records: Sequence[Record]) -> Standing:
    newest = records[-1]
    alike = [r for r in records if (r.method_version, r.config) == (newest.method_version, newest.config)]
    of_seed = {record.seed: record for record in alike}.values()
    costs = {name: float(np.mean([(column(name).read or (lambda _: None))(r) for r in of_seed])) for name in COSTS}
    gains = {gain: _mean([record.metrics[gain] for record in of_seed]) for gain in GAINS}
    return Standing(method, gains, costs)


def _mean(measures: Sequence[Measure]) -> Measure:
    return Measure(*(float(np.mean([getattr(m, part) for m in measures])) for part in ("value", "low", "high")))


def front(costs: npt.ArrayLike, gains: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Which are on the Pareto front: nothing else is as cheap and as good, and better in one of the two."""
    cost, gain = np.asarray(costs, float), np.asarray(gains, float)
    as_cheap, as_good = cost[None] <= cost[:, None], gain[None] >= gain[:, None]
    better = (cost[None] < cost[:, None]) | (gain[None] > gain[:, None])
    return np.asarray(~(as_cheap & as_good & better).any(axis=1))


def draw_tradeoff(shelf: DatasetRuns, path: Path, seeds: Sequence[int] | None = None) -> Path | None:
    """Four panels, accuracy up and time to the right; None where the store has no plain run on this dataset.

    `seeds` are those to average over, by default all that there are.
    """
    check_form(path)
    records = [record for record in shelf.store.records() if seeds is None or record.seed in seeds]
    found = standings(records, shelf.data.fingerprint)
    return save(path, _pictures(found, shelf.data.name)) if found else None


def _pictures(found: Sequence[Standing], dataset: str) -> Iterator[Picture]:
    best = max(s.gains[GAINS[0]].value for s in found)
    shown = [s for s in found if s.gains[GAINS[0]].value >= FLOOR * best]
    below = [f"{s.method} ({s.gains[GAINS[0]].value:.1f})" for s in found if s not in shown]
    with canvas(9.6, 7.2, panels=len(COSTS), rows=len(GAINS)) as (picture, panels):
        places = [(gain, cost) for gain in GAINS for cost in COSTS]
        for axes, (gain, cost) in zip(panels, places, strict=True):
            _panel(axes, shown, gain, cost)
        picture.suptitle(f"What accuracy costs on {dataset}: the line is the Pareto front", fontsize=11)
        if below:
            picture.supxlabel(f"far below, by {GAINS[0]}: {', '.join(below)}", fontsize=7, x=0.01, ha="left")
        picture.draw_without_rendering()  # settles the layout, on which the places of names depend
        for axes, (gain, cost) in zip(panels, places, strict=True):
            _write_names(axes, {s.method: (s.costs[cost], s.gains[gain].value) for s in shown})
        yield picture


def _panel(axes: Axes, shown: Sequence[Standing], gain: str, cost: str) -> None:
    x, y = np.array([s.costs[cost] for s in shown]), np.array([s.gains[gain].value for s in shown])
    ahead, style = front(x, y), look(0)
    order = np.flatnonzero(ahead)[np.argsort(x[ahead])]
    _time_scale(axes, x)
    axes.vlines(x, [s.gains[gain].low for s in shown], [s.gains[gain].high for s in shown], color="#c8c8c8", lw=1)
    axes.step(x[order], y[order], where="post", color=style.colour, linewidth=1.2)
    axes.plot(x[ahead], y[ahead], "o", color=style.colour)
    axes.plot(x[~ahead], y[~ahead], "o", markerfacecolor="white", color="#8c8c8c")
    axes.margins(y=0.08)
    axes.set_xlabel(COSTS[cost])
    axes.set_ylabel(f"{gain} (%), with 95% intervals")


def _time_scale(axes: Axes, times: npt.NDArray[np.float64]) -> None:
    """A logarithmic axis with room for names on both sides; left to itself, matplotlib fails at a single time."""
    from matplotlib.ticker import LogLocator, NullFormatter

    span = times.max() / times.min()
    room = max(2.0, span**0.2)
    axes.set_xscale("log")
    axes.set_xlim(times.min() / room, times.max() * room)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if span < 100 else (1,)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _write_names(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Write each name beside its point, as near as points and the names already written allow."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    centres = axes.transData.transform(list(points.values()))
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in centres]
    heights = sorted(range(-90, 91, 3), key=lambda height: abs(height - 6))  # rather above a line than on it
    for name, point in sorted(points.items(), key=lambda pair: -pair[1][1]):
        for height, side in [(height, side) for height in heights for side in ("left", "right")]:
            text = axes.annotate(
                name, point, (7 if side == "left" else -7, height), textcoords="offset points", ha=side, va="center",
                fontsize=7.5, color=INK, path_effects=[withStroke(linewidth=2, foreground="white")],
                arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "#8c8c8c"} if abs(height) > 9 else None,
            )  # fmt: skip
            box = text.get_window_extent()
            if height == heights[-1] or not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()
