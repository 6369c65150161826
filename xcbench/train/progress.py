"""How a training tells how far it is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from tqdm import tqdm

LINE_EVERY = 10.0
"""Seconds between lines where there is no terminal."""


class Progress:
    """Counts points; shows loss, points per second and time left."""

    def __init__(self, title: str, total: int, done: int, log: Callable[[str], None], shown: bool = True) -> None:
        self.title, self.total, self.done, self.log = title, total, done, log
        self._start, self._first, self._spoke = time.monotonic(), done, time.monotonic()
        self._shown = shown
        self._bar = (
            tqdm(total=total, initial=done, desc=title, unit=" points", leave=False, dynamic_ncols=True)
            if shown and sys.stderr.isatty()
            else None
        )

    def advance(self, points: int, loss: float) -> None:
        self.done += points
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
            self._bar.update(points)
        elif self._shown and time.monotonic() - self._spoke > LINE_EVERY:
            self._spoke = time.monotonic()
            left = (self.total - self.done) / max(self.points_per_second, 1e-9)
            self.log(
                f"{self.title}: {self.done / self.total:.0%}, loss {loss:.4g}, "
                f"{self.points_per_second:.0f} points/s, {left:.0f} s left"
            )

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    @property
    def points_per_second(self) -> float:
        return (self.done - self._first) / max(self.seconds, 1e-9)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
