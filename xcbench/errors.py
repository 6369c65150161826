"""What can go wrong, sorted by whose turn it is to act. The command line turns these into one line and an exit code."""

import difflib
from collections.abc import Iterable
from pathlib import Path


class XCBenchError(Exception):
    """The work failed, with a message fit for a user. Exit code 1."""

    exit_code = 1


class InputError(XCBenchError):
    """The user's input is wrong: a name, an option, a config key. Exit code 2."""

    exit_code = 2


class DataError(InputError):
    """A data file is wrong. The message names the file, the line where there is one, and what was expected."""

    def __init__(self, message: str, path: str | Path | None = None, line: int | None = None) -> None:
        where = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(where + message)
        self.path = path
        self.line = line


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that nobody has, with the nearest names that somebody does."""
    known = sorted(known)
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        hint = f"known: {', '.join(known[:20])}{', ...' if len(known) > 20 else ''}" if known else "there are none yet"
    return InputError(f"unknown {kind} {name!r}; {hint}")
