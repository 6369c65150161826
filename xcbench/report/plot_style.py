"""One look for every picture: quiet, readable in print and in grey.

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
class Look:
    """How one series is drawn."""

    colour: str
    marker: str
    line: str
    hatch: str


_LOOKS = (
    Look("#0b3c5d", "o", "-", ""),
    Look("#e08e2b", "s", "--", "//"),
    Look("#b3d1ee", "^", "-.", ".."),
    Look("#7a2048", "D", ":", "xx"),
    Look("#bcc48a", "v", (0, (5, 1)), "\\\\"),  # type: ignore[arg-type]  # matplotlib takes dashes as tuples
    Look("#555555", "P", (0, (3, 1, 1, 1)), "++"),  # type: ignore[arg-type]
    Look("#f2d5a0", "X", (0, (1, 1)), "oo"),  # type: ignore[arg-type]
    Look("#2f7f6f", "*", (0, (7, 2, 1, 2)), "--"),  # type: ignore[arg-type]
)


def look(number: int) -> Look:
    """The look of the series with that number; they repeat after eight."""
    return _LOOKS[number % len(_LOOKS)]


@contextmanager
def canvas(width: float, height: float, panels: int = 1, rows: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with panels side by side, in rows if asked, closed when done. No window is ever opened."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
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
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(rows, panels, squeeze=False)
        yield figure, list(axes.flat)
