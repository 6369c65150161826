"""How verbs speak: log lines to stderr (around a progress bar, if there is one), results to stdout."""

import logging
import sys
from collections.abc import Sequence

from xcbench.ranks import rank


class _Lines(logging.Handler):
    """Plain lines; `tqdm` is asked to make room for them only if something uses it."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        if tqdm := sys.modules.get("tqdm"):
            tqdm.tqdm.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr)


def show_log() -> None:
    """Send what xcbench logs to stderr; of the processes of `torchrun` only the first speaks."""
    logger = logging.getLogger("xcbench")
    if rank() > 0:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        return
    if not any(isinstance(handler, _Lines) for handler in logger.handlers):
        logger.addHandler(_Lines())
    logger.setLevel(logging.INFO)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Lines of aligned columns; `right` holds an `r` at the place of each column that is aligned right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(header))]
    right = right.ljust(len(header))
    lines = (
        "  ".join(text.rjust(w) if r == "r" else text.ljust(w) for text, w, r in zip(row, widths, right, strict=False))
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def size(count: int) -> str:
    """Bytes for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 100 else f"{minutes} min {rest} s"
