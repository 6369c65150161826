"""How a training shows its progress: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from tqdm import tqdm

LINE_EVERY = 10.0
"""Seconds between lines where there is no terminal."""


class Progress:
    """Counts points, and shows the loss, points per second and the time left.

    Parameters
    ----------
    title
        The name of the training.
    total
        How many points there are to train on, all epochs together.
    done
        How many of them a resumed training has behind it.
    log
        Called with each line.
    shown
        False to count only.
    """

    def __init__(
        self,
        title: str,
        total: int,
        done: int,
        log: Callable[[str], None],
        shown: bool = True,
    ) -> None:
        self.title = title
        self.total = total
        self.done = done
        self.log = log
        self._shown = shown
        self._done_before = done
        self._start = time.monotonic()
        self._last_line = self._start
        self._bar = None
        if shown and sys.stderr.isatty():
            self._bar = tqdm(
                total=total,
                initial=done,
                desc=title,
                unit=" points",
                leave=False,
                dynamic_ncols=True,
            )

    def advance(self, points: int, loss: float) -> None:
        """Count points, and show the mean loss of the epoch so far."""
        self.done += points
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
            self._bar.update(points)
        elif self._shown and time.monotonic() - self._last_line > LINE_EVERY:
            self._last_line = time.monotonic()
            self._log_line(loss)

    def _log_line(self, loss: float) -> None:
        speed = self.points_per_second
        seconds_left = (self.total - self.done) / max(speed, 1e-9)
        self.log(
            f"{self.title}: {self.done / self.total:.0%}, loss {loss:.4g}, "
            f"{speed:.0f} points/s, {seconds_left:.0f} s left"
        )

    @property
    def seconds(self) -> float:
        """Seconds since the start of this process's training."""
        return time.monotonic() - self._start

    @property
    def points_per_second(self) -> float:
        """Points per second in this process."""
        return (self.done - self._done_before) / max(self.seconds, 1e-9)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
