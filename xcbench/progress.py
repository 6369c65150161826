"""How far work is: a row on a terminal that is redrawn while the work lasts, elsewhere a plain line now and then.

Work is nested: a run has stages, and a stage counts points. The row shows the innermost work that has a title.

Loops deep inside a stage (over blocks of points, parts of a graph) count with `counted` and `PartCounter`: they show
nothing unless they last long, and take their title from the work around them, which is named by `activity` or `titled`.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TaskProgressColumn
from rich.progress import TextColumn as Column
from rich.text import Text

from xcbench.ranks import rank

LINE_EVERY = 10.0
"""Seconds between two lines where there is no terminal."""

ROW_AFTER = 2.0
"""Seconds after which a loop inside other work has a row of its own on a terminal."""

_ROW_EVERY = 0.2
"""Seconds between two changes of the row on a terminal."""

Item = TypeVar("Item")

_log = logging.getLogger(__name__)

_title: contextvars.ContextVar[str] = contextvars.ContextVar("title", default="work")
"""What loops without a title of their own are called in log lines."""


@contextlib.contextmanager
def activity(title: str) -> Iterator[None]:
    """Show on a terminal what is done during the block under `with`, and for how long already."""
    with titled(title):
        if not _has_terminal():
            yield
            return
        with _screen.row(title):
            yield


@contextlib.contextmanager
def titled(title: str) -> Iterator[None]:
    """Name the work during the block under `with`, for loops inside it that last long. Nothing is shown at once."""
    token = _title.set(title)
    try:
        yield
    finally:
        _title.reset(token)


def counted(items: Iterable[Item], title: str | None = None, total: int | None = None) -> Iterator[Item]:
    """Iterate, and show how far the loop is if it lasts long.

    Parameters
    ----------
    items
        What to iterate over.
    title
        What is counted; by default what `titled` or `activity` says.
    total
        How many items there are, if they do not know it themselves.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with PartCounter(total, title) as counter:
        for item in items:
            yield item
            counter.advance()


class Counter:
    """Shows how much of some work is done, and the time left. Used under `with`.

    Parameters
    ----------
    title
        What is counted.
    total
        How much there is to do; None if that is not known.
    log
        Called with each line where there is no terminal.
    done
        How much was done before, in a process that did not end well.
    shown
        False to count only.
    """

    def __init__(
        self,
        title: str,
        total: int | None,
        log: Callable[[str], None],
        done: int = 0,
        shown: bool = True,
    ) -> None:
        self.title = title
        self.total = total
        self.done = done
        self._log = log
        self._shown = shown
        self._on_terminal = shown and _has_terminal()
        self._every = _ROW_EVERY if self._on_terminal else LINE_EVERY
        self._rows = contextlib.ExitStack()

    def __enter__(self) -> Counter:
        self._done_before = self.done
        self._start = time.monotonic()
        self._next = self._start + self._every
        if self._on_terminal:
            self._rows.enter_context(_screen.row(_screen.title_of(self.title)))
            _screen.count(self.done, self.total, "")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rows.close()

    def advance(self, count: int = 1, remark: str = "") -> None:
        """Count what was done. The remark says something about it, such as the loss."""
        self.done += count
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + self._every
        if self._on_terminal:
            _screen.count(self.done, self.total, remark)
        else:
            self._log(self._line(remark))

    @property
    def seconds(self) -> float:
        """Seconds since this process began to count."""
        return time.monotonic() - self._start

    @property
    def per_second(self) -> float:
        """How much this process does per second."""
        return (self.done - self._done_before) / max(self.seconds, 1e-9)

    def _line(self, remark: str) -> str:
        if self.total:
            seconds_left = (self.total - self.done) / max(self.per_second, 1e-9)
            parts = [f"{self.done / self.total:.0%}", remark, f"{seconds_left:.0f} s left"]
        else:
            parts = [f"{self.done} done", remark]
        return f"{self.title}: {', '.join(part for part in parts if part)}"


class PartCounter(Counter):
    """Shows how far a loop inside other work is, if it lasts long: seconds on a terminal, `LINE_EVERY` elsewhere.

    It costs a look at the clock per item. In a thread of a pool it shows nothing: that is for the thread that waits.

    Parameters
    ----------
    total
        How much there is to do; None if that is not known.
    title
        What is counted; by default what `titled` or `activity` says.
    """

    def __init__(self, total: int | None, title: str | None = None) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        super().__init__(title or _title.get(), total, _log.info, shown=is_main and rank() == 0)

    def __enter__(self) -> PartCounter:
        self._done_before = self.done
        self._start = time.monotonic()
        self._next = self._start + (ROW_AFTER if self._on_terminal else LINE_EVERY)
        self._has_row = False
        return self

    def advance(self, count: int = 1, remark: str = "") -> None:
        if self._on_terminal and not self._has_row:
            if time.monotonic() < self._next:
                self.done += count
                return
            self._rows.enter_context(_screen.row(_screen.title_of(self.title)))
            self._has_row = True
        super().advance(count, remark)

    def reach(self, done: int) -> None:
        """Count up to so much, which other threads may have done."""
        self.advance(done - self.done)


class _Screen:
    """The row on the terminal. It is there as long as any work has a title."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: list[TaskID] = []
        self._titles: list[str] = []

    @contextlib.contextmanager
    def row(self, title: str) -> Iterator[None]:
        """Show a row in place of that of the surrounding work."""
        progress = self._progress
        if progress is None:
            progress = _new_row()
            progress.start()
            self._progress = progress
        for outer in self._tasks[-1:]:
            progress.update(outer, visible=False)
        task = progress.add_task(title, total=None, remark="")
        self._tasks.append(task)
        self._titles.append(title)
        try:
            yield
        finally:
            self._tasks.pop()
            self._titles.pop()
            progress.remove_task(task)
            for outer in self._tasks[-1:]:
                progress.update(outer, visible=True)
            if not self._tasks:
                self._progress = None
                progress.stop()

    def title_of(self, part: str) -> str:
        """Return the title of a row for a part of the work that is shown now."""
        if not self._titles:
            return part
        outer = self._titles[-1]
        if outer.endswith(part):
            return outer
        return f"{outer}, {part}"

    def count(self, done: int, total: int | None, remark: str) -> None:
        """Show in the row how much is done."""
        assert self._progress is not None
        self._progress.update(self._tasks[-1], completed=done, total=total, remark=remark)


class _Seconds(ProgressColumn):
    """The time left, or the time since the start where the end is not known."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text(f"{task.elapsed or 0:.0f} s")
        if task.time_remaining is None:
            return Text("")
        return Text(f"{task.time_remaining:.0f} s left")


def _new_row() -> Progress:
    return Progress(
        SpinnerColumn(),
        Column("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        _Seconds(),
        Column("{task.fields[remark]}", markup=False),
        console=Console(stderr=True),
        refresh_per_second=4,
        transient=True,
        # What goes to a file or a pipe must not come out on the terminal.
        redirect_stdout=sys.stdout.isatty(),
    )


def _has_terminal() -> bool:
    """Whether a row can be drawn: by the one process that prints, in the one thread that owns the screen."""
    if rank() > 0 or threading.current_thread() is not threading.main_thread():
        return False
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


_screen = _Screen()
