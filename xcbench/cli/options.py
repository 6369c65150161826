"""Kinds of options that several verbs share."""

from typing import Annotated

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative=())]
"""An option without a value, such as --force; there is no --no-force."""

JsonFlag = Annotated[bool, Parameter(name="--json", negative=())]
"""--json: print JSON for programs instead of text for people."""

Names = Annotated[tuple[str, ...], Parameter(negative=())]
"""An option that may be given several times."""
