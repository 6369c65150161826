"""A label's neighbours in the label graph: which they are, how near, and as a picture (ECLARE's Figure 4)."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset
from xcbench.disk import readable_disk_errors
from xcbench.errors import InputError
from xcbench.files import atomic_file
from xcbench.labels.label_graph import LabelGraph
from xcbench.report.plot_style import INK, canvas, look
from xcbench.report.plots import FORMS

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


def neighbourhood(data: Dataset, label: str, graph: LabelGraph | None = None, seed: int = 0) -> Neighbourhood:
    """The neighbours of a label, given by its title or its number, in ECLARE's graph of a dataset."""
    own, graph = find_label(data, label), graph or LabelGraph()
    counts = graph.count(data.train.Y, seed)
    G = graph.normalise(counts)
    row = slice(G.indptr[own], G.indptr[own + 1])
    order = np.argsort(-G.data[row], kind="stable")
    labels, weights, visits = (part[row][order] for part in (G.indices, G.data, counts.data))
    near = tuple(
        Neighbour(int(m), _title(data, int(m)), float(w), float(n), int(data.label_frequency[m]))
        for m, w, n in zip(labels, weights, visits, strict=True)
    )
    return Neighbourhood(own, _title(data, own), int(data.label_frequency[own]), near, G[labels][:, labels].tocsr())


def find_label(data: Dataset, label: str) -> int:
    """The id of the label with this title, or this number, or whose title alone begins like this, or contains it."""
    asked, titles = label.casefold(), [title.casefold() for title in data.label_titles or ()]
    if asked in titles:
        return titles.index(asked)
    if label.isdecimal() and int(label) < data.label_count:
        return int(label)
    if not titles:
        raise InputError(f"{data.name} has no label titles; labels are 0 to {data.label_count - 1}, got {label!r}")
    if not label.strip():
        raise InputError("give a label's title, a part of it, or its number; got nothing")
    for fits in (str.startswith, str.__contains__):
        if len(found := [number for number, title in enumerate(titles) if fits(title, asked)]) == 1:
            return found[0]
    inside = [title for title in titles if asked in title]
    if inside:
        raise InputError(f"{len(inside)} labels have {label!r} in their titles, such as {', '.join(inside[:3])}")
    if near := difflib.get_close_matches(asked, titles, n=3, cutoff=0.5):
        raise InputError(f"unknown label {label!r}; did you mean {' or '.join(near)}?")
    numbers = f"0 to {data.label_count - 1}"
    raise InputError(f"unknown label {label!r}: no title of {data.name} has it, and numbers are {numbers}")


def draw_neighbourhood(found: Neighbourhood, path: Path) -> None:
    """The label in the middle, its neighbours around it, and what the graph has between them; wider is nearer."""
    if path.suffix.lower() not in FORMS:
        raise InputError(f"a picture is written as {', '.join(FORMS)}; got {path.name!r}")
    others = [place for place, neighbour in enumerate(found.neighbours) if neighbour.label != found.label]
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(others)) / max(len(others), 1)
    at = np.zeros((len(found.neighbours), 2))
    at[others] = np.column_stack([np.cos(angles), np.sin(angles)])
    with canvas(6.4, 4.6) as (picture, (axes,)):
        _edges(axes, found, at)
        points = np.array([neighbour.training_points for neighbour in found.neighbours])
        colours = [look(1 if neighbour.label == found.label else 2).colour for neighbour in found.neighbours]
        axes.scatter(at[:, 0], at[:, 1], s=40 + 60 * np.log1p(points), color=colours, edgecolors=INK, zorder=2)
        _names(axes, [found.neighbours[place].title for place in others], at[others])
        axes.set(xlim=(-2, 2), ylim=(-1.35, 1.35))
        axes.set_axis_off()
        picture.suptitle(f"{found.title}\nand its neighbours", fontsize=10)
        with readable_disk_errors(path.parent), atomic_file(path) as part:
            metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
            picture.savefig(part, format=path.suffix[1:].lower(), metadata=metadata)


def _edges(axes: Axes, found: Neighbourhood, at: np.ndarray) -> None:
    edges = found.G.tocoo()
    own = [neighbour.label for neighbour in found.neighbours].index(found.label)
    for i, j, weight in zip(edges.row, edges.col, edges.data, strict=True):
        if i != j:
            style = look(0 if i == own else 5)
            axes.plot(
                *at[[i, j]].T, color=style.colour, linewidth=0.4 + 6 * weight, alpha=0.9 if i == own else 0.35, zorder=1
            )


def _names(axes: Axes, titles: Sequence[str], at: np.ndarray) -> None:
    for title, (x, y) in zip(titles, at, strict=True):
        side = "center" if abs(x) < 0.1 else "left" if x > 0 else "right"
        place = (x, y + 0.14 * np.sign(y)) if side == "center" else (x + 0.1 * np.sign(x), y)
        axes.annotate(_short(title), place, ha=side, va="center", fontsize=8, zorder=3)


def _title(data: Dataset, label: int) -> str:
    return str(label) if data.label_titles is None else data.label_titles[label]


def _short(title: str) -> str:
    return title if len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 1].rstrip() + "…"
