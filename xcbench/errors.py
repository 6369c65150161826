"""The errors that users see. The command line turns each into one line on stderr and an exit code."""

import difflib
from collections.abc import Iterable
from pathlib import Path

_NAMES_SHOWN = 20


class XCBenchError(Exception):
    """The work failed, with a message that is written for users. Exit code 1."""

    exit_code = 1


class InputError(XCBenchError):
    """The user's input is wrong: a name, an option, a config key. Exit code 2."""

    exit_code = 2


class DataError(InputError):
    """A data file is wrong. The message names the file, the line if there is one, and what was expected.

    Where a file has no lines, `place` is the word for what its numbers count, such as "row".
    """

    def __init__(
        self,
        message: str,
        path: str | Path | None = None,
        line: int | None = None,
        place: str = "line",
    ) -> None:
        super().__init__(_with_place(message, path, line, place))
        self.path = path
        self.line = line


def _with_place(message: str, path: str | Path | None, line: int | None, place: str) -> str:
    if path is None:
        return message
    if line is None:
        return f"{path}: {message}"
    return f"{path}, {place} {line}: {message}"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that does not exist; it suggests similar names, or lists the known ones.

    Parameters
    ----------
    kind
        What the name should be a name of, such as "method".
    name
        The name that was given.
    known
        The names that exist.
    """
    hint = _hint(name, sorted(known))
    return InputError(f"unknown {kind} {name!r}; {hint}")


def _hint(name: str, known: list[str]) -> str:
    similar = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    if similar:
        return f"did you mean {' or '.join(similar)}?"
    if not known:
        return "there are none yet"

    names = ", ".join(known[:_NAMES_SHOWN])
    if len(known) > _NAMES_SHOWN:
        names += ", ..."
    return f"known: {names}"
