"""One style for every picture: quiet, readable in print and in grey.

Series differ by lightness and by marker, line style or hatch, never by hue alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1a1a1a"
PALE = "#d9d9d9"


@dataclass(frozen=True)
class SeriesStyle:
    """How one series is drawn."""

    colour: str
    marker: str
    line: Any
    """What matplotlib takes as a line style: a name, or a tuple of dashes."""
    hatch: str


_SERIES_STYLES = (
    SeriesStyle("#0b3c5d", "o", "-", ""),
    SeriesStyle("#e08e2b", "s", "--", "//"),
    SeriesStyle("#b3d1ee", "^", "-.", ".."),
    SeriesStyle("#7a2048", "D", ":", "xx"),
    SeriesStyle("#bcc48a", "v", (0, (5, 1)), "\\\\"),
    SeriesStyle("#555555", "P", (0, (3, 1, 1, 1)), "++"),
    SeriesStyle("#f2d5a0", "X", (0, (1, 1)), "oo"),
    SeriesStyle("#2f7f6f", "*", (0, (7, 2, 1, 2)), "--"),
)

_MATPLOTLIB_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "savefig.dpi": 160,
    "svg.hashsalt": "xcbench",
}


def series_style(number: int) -> SeriesStyle:
    """Return the style of a series, by its number from 0; the styles repeat after eight."""
    return _SERIES_STYLES[number % len(_SERIES_STYLES)]


@contextmanager
def canvas(
    width: float,
    height: float,
    panels: int = 1,
    rows: int = 1,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure and its panels, in our style. No window is ever opened.

    Parameters
    ----------
    width, height
        The size of the figure in inches.
    panels
        How many panels stand side by side.
    rows
        How many rows of them there are.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_MATPLOTLIB_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(rows, panels, squeeze=False)
        yield figure, list(axes.flat)
