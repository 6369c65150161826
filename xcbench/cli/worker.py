"""The process in which a launcher runs one command: `python -m xcbench.cli.worker PARENT run --method ...`.

It dies with the process that started it, even when that one is killed without a chance to say so.
"""

import contextlib
import ctypes
import os
import signal
import sys


def die_with(parent: int) -> None:
    """Ask the kernel (Linux only) for SIGTERM when the parent ends."""
    if not sys.platform.startswith("linux"):
        return
    set_parent_death_signal = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit(1)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    from xcbench.cli import main

    main(sys.argv[2:])
