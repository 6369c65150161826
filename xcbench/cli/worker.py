"""The process in which a launcher runs one command: `python -m xcbench.cli.worker PARENT run --method ...`.

It ends when the process that started it ends, even if that one is killed. PARENT is the number of that process.
"""

import contextlib
import ctypes
import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1
"""The first argument of Linux's `prctl`: send this process a signal when its parent ends."""


def die_with(parent: int) -> None:
    """Ask the kernel to send SIGTERM when the parent ends. Works on Linux only; elsewhere it does nothing."""
    if not sys.platform.startswith("linux"):
        return

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)

    # The parent may have ended before the kernel was asked.
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    from xcbench.cli import main

    main(sys.argv[2:])
