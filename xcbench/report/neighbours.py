"""A label's neighbours in the label graph: which they are, how near, and as a picture (ECLARE's Figure 4)."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset
from xcbench.errors import InputError
from xcbench.labels.label_graph import LabelGraph
from xcbench.report.plot_style import INK, canvas, series_style
from xcbench.report.plots import FORMATS, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST_TITLE = 28


@dataclass(frozen=True)
class Neighbour:
    """One label as seen from another."""

    label: int
    title: str
    weight: float
    """G_lm, normalised on both sides."""
    count: float
    """Visits of the random walk, or points in common."""
    training_points: int


@dataclass(frozen=True)
class Neighbourhood:
    """A label and those that the graph leads to from it, nearest first; itself among them."""

    label: int
    title: str
    training_points: int
    neighbours: tuple[Neighbour, ...]
    G: sp.csr_array
    """The weights among these neighbours, in their order."""


def neighbourhood(
    data: Dataset,
    label: str,
    graph: LabelGraph | None = None,
    seed: int = 0,
) -> Neighbourhood:
    """Return the neighbours of a label in ECLARE's graph of a dataset.

    Parameters
    ----------
    data
        The dataset; the graph is made from its training pairs.
    label
        The label's title, a part of it, or its number.
    graph
        How to make the graph; ECLARE's way by default.
    seed
        That of the random walk.
    """
    number = find_label(data, label)
    if graph is None:
        graph = LabelGraph()
    counts = graph.count(data.train.Y, seed)
    G = graph.normalise(counts)

    row = slice(G.indptr[number], G.indptr[number + 1])
    nearest_first = np.argsort(-G.data[row], kind="stable")
    labels = G.indices[row][nearest_first]
    weights = G.data[row][nearest_first]
    visits = counts.data[row][nearest_first]

    neighbours = []
    for other, weight, count in zip(labels.tolist(), weights, visits, strict=True):
        neighbour = Neighbour(
            label=other,
            title=_title(data, other),
            weight=float(weight),
            count=float(count),
            training_points=int(data.label_frequency[other]),
        )
        neighbours.append(neighbour)
    return Neighbourhood(
        label=number,
        title=_title(data, number),
        training_points=int(data.label_frequency[number]),
        neighbours=tuple(neighbours),
        G=G[labels][:, labels].tocsr(),
    )


def find_label(data: Dataset, label: str) -> int:
    """Return the id of the label that a user means, or raise an `InputError`.

    Parameters
    ----------
    data
        The dataset.
    label
        A title, a number, the beginning of a single title, or a part of a single title; case does not matter.
    """
    wanted = label.casefold()
    titles = [title.casefold() for title in data.label_titles or ()]
    if wanted in titles:
        return titles.index(wanted)
    if label.isdecimal() and int(label) < data.label_count:
        return int(label)
    if not titles:
        raise InputError(f"{data.name} has no label titles; labels are 0 to {data.label_count - 1}, got {label!r}")
    if not label.strip():
        raise InputError("give a label's title, a part of it, or its number; got nothing")

    beginning = [number for number, title in enumerate(titles) if title.startswith(wanted)]
    if len(beginning) == 1:
        return beginning[0]
    containing = [number for number, title in enumerate(titles) if wanted in title]
    if len(containing) == 1:
        return containing[0]
    raise _unknown_label(data, label, titles, containing)


def _unknown_label(
    data: Dataset,
    label: str,
    titles: Sequence[str],
    containing: Sequence[int],
) -> InputError:
    """Return the error for a label that is not clear or does not exist."""
    if containing:
        examples = ", ".join(titles[number] for number in containing[:3])
        return InputError(f"{len(containing)} labels have {label!r} in their titles, such as {examples}")
    similar = difflib.get_close_matches(label.casefold(), titles, n=3, cutoff=0.5)
    if similar:
        return InputError(f"unknown label {label!r}; did you mean {' or '.join(similar)}?")
    numbers = f"0 to {data.label_count - 1}"
    return InputError(f"unknown label {label!r}: no title of {data.name} has it, and numbers are {numbers}")


def draw_neighbourhood(centre: Neighbourhood, path: Path) -> None:
    """Draw a label in the middle, its neighbours around it, and the edges between them; wider is nearer.

    Parameters
    ----------
    centre
        What `neighbourhood` returned.
    path
        The file to write: png, pdf or svg by its name.
    """
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"a picture is written as {', '.join(FORMATS)}; got {path.name!r}")

    others = [place for place, neighbour in enumerate(centre.neighbours) if neighbour.label != centre.label]
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(others)) / max(len(others), 1)
    positions = np.zeros((len(centre.neighbours), 2))
    positions[others] = np.column_stack([np.cos(angles), np.sin(angles)])

    with canvas(6.4, 4.6) as (picture, (axes,)):
        _draw_edges(axes, centre, positions)
        _draw_labels(axes, centre, positions)
        _write_titles(axes, [centre.neighbours[place].title for place in others], positions[others])
        axes.set(xlim=(-2, 2), ylim=(-1.35, 1.35))
        axes.set_axis_off()
        picture.suptitle(f"{centre.title}\nand its neighbours", fontsize=10)
        save_picture(picture, path)


def _draw_edges(
    axes: Axes,
    centre: Neighbourhood,
    positions: npt.NDArray[np.float64],
) -> None:
    edges = centre.G.tocoo()
    middle = [neighbour.label for neighbour in centre.neighbours].index(centre.label)
    for start, end, weight in zip(edges.row, edges.col, edges.data, strict=True):
        if start == end:
            continue
        colour = series_style(5).colour
        alpha = 0.35
        if start == middle:
            colour = series_style(0).colour
            alpha = 0.9
        x, y = positions[[start, end]].T
        axes.plot(x, y, color=colour, linewidth=0.4 + 6 * weight, alpha=alpha, zorder=1)


def _draw_labels(
    axes: Axes,
    centre: Neighbourhood,
    positions: npt.NDArray[np.float64],
) -> None:
    colours = []
    for neighbour in centre.neighbours:
        style_number = 2
        if neighbour.label == centre.label:
            style_number = 1
        colours.append(series_style(style_number).colour)
    training_points = np.array([neighbour.training_points for neighbour in centre.neighbours])
    sizes = 40 + 60 * np.log1p(training_points)
    axes.scatter(positions[:, 0], positions[:, 1], s=sizes, color=colours, edgecolors=INK, zorder=2)


def _write_titles(
    axes: Axes,
    titles: Sequence[str],
    positions: npt.NDArray[np.float64],
) -> None:
    for title, (x, y) in zip(titles, positions, strict=True):
        if abs(x) < 0.1:
            side = "center"
            place = (x, y + 0.14 * np.sign(y))
        else:
            side = "left"
            if x < 0:
                side = "right"
            place = (x + 0.1 * np.sign(x), y)
        axes.annotate(_shortened(title), place, ha=side, va="center", fontsize=8, zorder=3)


def _title(data: Dataset, label: int) -> str:
    if data.label_titles is None:
        return str(label)
    return data.label_titles[label]


def _shortened(title: str) -> str:
    if len(title) <= LONGEST_TITLE:
        return title
    return title[: LONGEST_TITLE - 1].rstrip() + "…"
