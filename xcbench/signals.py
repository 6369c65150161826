"""Ctrl-C and SIGTERM: both end a command in good order, so that the same command goes on from there."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM, where it ends a command as Ctrl-C does."""


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end this process as Ctrl-C does, so that its children are ended and what is finished is kept."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Terminated

    previous = _replace([signal.SIGTERM], interrupt)
    try:
        yield
    finally:
        _put_back(previous)


class HeldInterrupt:
    """Holds the first Ctrl-C or SIGTERM of a block under `with` back, until the block has reached a good end.

    A second one is not held back. Neither are signals outside of the main thread, the only one that Python gives them.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> HeldInterrupt:
        self._previous = _replace(ENDING, self._hold)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._let_through()
        if error is None:
            self.deliver()

    @property
    def came(self) -> bool:
        """Whether a signal waits to be delivered."""
        return self._number is not None

    def deliver(self) -> None:
        """Do now what the signal would have done when it came, if one came."""
        number = self._number
        self._number = None
        if number is not None:
            signal.raise_signal(number)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        self._let_through()

    def _let_through(self) -> None:
        _put_back(self._previous)
        self._previous = {}


def _replace(numbers: tuple[int, ...] | list[int], handler: Any) -> dict[int, Any]:
    """Set the handler of signals; returns those that they had. Signals that are ignored stay so."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    previous = {number: signal.getsignal(number) for number in numbers}
    for number, before in list(previous.items()):
        if before in (signal.SIG_IGN, None):
            del previous[number]
        else:
            signal.signal(number, handler)
    return previous


def _put_back(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
