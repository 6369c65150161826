"""Kinds of options that several verbs share."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from xcbench.errors import InputError

if TYPE_CHECKING:
    from xcbench.evaluation import Thresholds
    from xcbench.runner.store import Record

Flag = Annotated[bool, Parameter(negative=())]
"""An option without a value, such as --force; there is no --no-force."""

JsonFlag = Annotated[bool, Parameter(name="--json", negative=())]
"""--json: print JSON for programs instead of text for people."""

Names = Annotated[tuple[str, ...], Parameter(negative=())]
"""An option that may be given several times."""


def thresholds_of(option: str, record: "Record | None") -> "Thresholds":
    """Return what `--threshold` asks for: a number for all labels, or what `xcbench threshold` chose for the run."""
    from xcbench.evaluation import Thresholds
    from xcbench.runner.thresholds import load_thresholds

    if option == "auto":
        if record is None:
            raise InputError("--threshold auto is what was chosen for a run: it goes with --run")
        return load_thresholds(record)
    try:
        return Thresholds.everywhere(float(option))
    except ValueError:
        raise InputError(f"--threshold is a number or auto, got {option!r}") from None
