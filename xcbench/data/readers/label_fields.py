"""The labels of a point in one field of a table: a list, or names with something between them."""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SEPARATORS = (";", "|", "\t", ",")
"""What may separate labels, where the user does not say; the first ones win ties."""


@dataclass(frozen=True)
class LabelForm:
    """How fields hold labels.

    Parameters
    ----------
    separator
        The text between two labels; None where a field is one label or a list.
    is_list
        Whether fields are lists as text: `["shoes", "red"]`, as JSON or Python write them.
    described
        The form in words, for the report of an import.
    """

    separator: str | None
    is_list: bool
    described: str

    def names(self, field: str) -> list[Any]:
        """Return the values of a field; raises `ValueError` where it should be a list and is none."""
        if self.is_list:
            return _parse_list(field)
        if self.separator is None:
            return [field]
        return field.split(self.separator)


def label_form(fields: Sequence[str], separator: str | None = None) -> LabelForm:
    """Return how the fields of a column hold labels.

    They are lists if each of them is in brackets. Otherwise the separator that most of them hold separates labels.

    Parameters
    ----------
    fields
        Every field that is a text.
    separator
        The separator, where the user gave one.
    """
    filled = [field for field in fields if field.strip()]
    if separator is not None:
        return LabelForm(separator, False, f"labels are separated by {separator!r}, as asked for")
    if filled and all(_is_in_brackets(field) for field in filled):
        return LabelForm(None, True, "labels are lists, as JSON or Python write them")

    rows = {candidate: sum(candidate in field for field in filled) for candidate in SEPARATORS}
    chosen = max(SEPARATORS, key=rows.__getitem__)
    if not rows[chosen]:
        return LabelForm(None, False, "each row has one label at most, since no separator occurs (--label-separator)")

    found = [f"{chosen!r} occurs in {rows[chosen]:,} of {len(filled):,} rows with labels"]
    found += [f"{other!r} in {rows[other]:,}" for other in SEPARATORS if other != chosen and rows[other]]
    return LabelForm(chosen, False, f"labels are separated by {chosen!r}: {', '.join(found)} (--label-separator)")


def _is_in_brackets(field: str) -> bool:
    field = field.strip()
    return field.startswith("[") and field.endswith("]")


def _parse_list(field: str) -> list[Any]:
    """Parse a list of values. Python's form is what pandas writes of a column of lists; nothing is executed."""
    field = field.strip()
    if not field:
        return []

    value = None
    for parse in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            value = parse(field)
            break
    if not isinstance(value, list):
        raise ValueError('expected a list such as ["shoes", "red"]')
    return value
