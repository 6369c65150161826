"""What verbs print: log lines to stderr, results to stdout."""

import contextlib
import json
import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from xcbench.ranks import rank


class _LineHandler(logging.Handler):
    """Prints plain lines to stderr, which is looked up each time: a row of progress takes its place to make room."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        print(text, file=sys.stderr)


def show_log() -> None:
    """Print what xcbench logs to stderr. Under `torchrun` only rank 0 prints."""
    logger = logging.getLogger("xcbench")
    if rank() > 0:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        return

    if not any(isinstance(handler, _LineHandler) for handler in logger.handlers):
        logger.addHandler(_LineHandler())
    logger.setLevel(logging.INFO)


@contextlib.contextmanager
def goes_on() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM say that the command can be continued."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.args = ("interrupted; the same command goes on where it stopped",)
        raise


def terminal_width(output: Path | None) -> int | None:
    """Return how many characters a line on the terminal has; None where text goes to a file or another program.

    Parameters
    ----------
    output
        The file that is written instead of stdout, if any.
    """
    if output is not None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2))


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Return lines of aligned columns.

    Parameters
    ----------
    header
        The title of each column.
    rows
        The cells, as texts.
    right
        A character per column: `r` aligns the column right, a space aligns it left.
    """
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    alignments = right.ljust(len(header))
    return "\n".join(_aligned(line, widths, alignments) for line in lines)


def _aligned(cells: Sequence[str], widths: Sequence[int], alignments: str) -> str:
    padded = []
    for text, width, alignment in zip(cells, widths, alignments, strict=False):
        if alignment == "r":
            padded.append(text.rjust(width))
        else:
            padded.append(text.ljust(width))
    return "  ".join(padded).rstrip()


def size(byte_count: int) -> str:
    """Return a number of bytes as people write it: 3 MiB."""
    amount = float(byte_count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def duration(seconds: float) -> str:
    """Return a time as people write it: 12.3 s, 2 min 5 s, 2 h 10 min."""
    if seconds < 100:
        return f"{seconds:.1f} s"

    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
