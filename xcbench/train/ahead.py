"""Work that is done ahead, in a background thread, while the main thread waits for a device."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

Item = TypeVar("Item")

_END = object()

AHEAD = 3
"""How many finished batches wait at most."""


@contextmanager
def made_ahead(items: Iterable[Item], ahead: int = AHEAD) -> Iterator[Iterator[Item]]:
    """Return the same items in the same order, made by a background thread before they are asked for.

    An error of the iterable is raised where the item would have come. When the context ends, so does the thread.

    Parameters
    ----------
    items
        The items. They are made in one thread, in order.
    ahead
        How many finished items wait at most.
    """
    finished: queue.Queue[object] = queue.Queue(ahead)
    stop = threading.Event()

    def put(item: object) -> None:
        is_waiting = True
        while is_waiting and not stop.is_set():
            with suppress(queue.Full):
                finished.put(item, timeout=0.1)
                is_waiting = False

    def work() -> None:
        try:
            for item in items:
                put((item,))
                if stop.is_set():
                    return
        except BaseException as error:  # whatever it is, it belongs to whoever asks for the items
            put(error)
        put(_END)

    def taken() -> Iterator[Item]:
        while (item := finished.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            assert isinstance(item, tuple)
            yield item[0]

    thread = threading.Thread(target=work, name="batches", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stop.set()
        thread.join()
