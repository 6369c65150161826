"""The manifest: what a dataset is, where it comes from and under which licence.

On disk a manifest is the JSON object of `Manifest.to_dict`, in a file `manifest.json` next to the data. An unknown key
is an error: a misspelt `propensity` would otherwise silently change every PSP@k.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xcbench.data.dataset import Propensity
from xcbench.data.text import TextOptions
from xcbench.errors import DataError, InputError, unknown_name

MANIFEST_FILE = "manifest.json"
_MAX_FLOAT = sys.float_info.max  # a whole number in JSON may be larger
_MAX_SHOWN = 60


@dataclass(frozen=True)
class Sizes:
    """The numbers of points, labels and features; `features` is None until text has been encoded."""

    train: int
    test: int
    labels: int
    features: int | None = None


@dataclass(frozen=True)
class Manifest:
    """The facts about one dataset. Only the name is required; an empty string means unknown."""

    name: str
    title: str = ""
    task: str = ""
    source: str = ""
    licence: str = ""
    citation: str = ""
    sizes: Sizes | None = None
    files: dict[str, str] = field(default_factory=dict)
    """sha256 of every file of the dataset, by file name."""
    propensity: Propensity | None = None
    filter_rule: str = ""
    split_rule: str = ""
    text: dict[str, Any] = field(default_factory=dict)
    """Options of `TextEncoder.fit`, for data that comes as text."""

    @classmethod
    def from_dict(cls, value: Any, source: Path | None = None) -> Manifest:
        """Read what `to_dict` returned; `source` names the file in error messages."""
        try:
            given = _object(value, "a manifest", _PARSERS)
            if "name" not in given:
                raise InputError("a manifest needs the key 'name'")

            facts = {}
            for key, item in given.items():
                parse = _PARSERS[key]
                facts[key] = parse(item, f"manifest key {key!r}")
            return cls(**facts)
        except InputError as error:
            raise DataError(str(error), source) from None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without unknown facts."""
        plain = dataclasses.asdict(self)
        if self.sizes and self.sizes.features is None:
            del plain["sizes"]["features"]
        return {key: value for key, value in plain.items() if value not in ("", None, {})}


# Each parser takes a JSON value and its description for messages, and raises InputError for a wrong value.


def _object(
    value: Any,
    what: str,
    known: Iterable[str],
) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{what} must be an object, got {_shown(value)}")

    known = list(known)
    for key in value:
        if key not in known:
            raise unknown_name(f"key in {what}:", str(key), known)
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{what} must be a text, got {_shown(value)}")
    return value


def _name(value: Any, what: str) -> str:
    name = _text(value, what)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise InputError(f"{what} must be letters, digits, '.', '_' and '-' only, got {_shown(value)}")
    return name


def _count(value: Any, what: str) -> int:
    # In Python, True is an int.
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{what} must be a whole number from 0 up, got {_shown(value)}")
    return value


def _sizes(value: Any, what: str) -> Sizes:
    given = _object(value, what, _field_names(Sizes))
    missing = [key for key in ("train", "test", "labels") if key not in given]
    if missing:
        raise InputError(f"{what} needs {', '.join(missing)}")

    counts = {key: _count(count, f"{what}, {key!r},") for key, count in given.items()}
    return Sizes(**counts)


def _propensity(value: Any, what: str) -> Propensity:
    given = _object(value, what, ("A", "B"))
    constants = {}
    for key, constant in given.items():
        if not _is_finite_number(constant):
            raise InputError(f"{what}, {key!r}, must be a finite number from 0 up, got {_shown(constant)}")
        constants[key] = float(constant)
    return Propensity(**constants)


def _is_finite_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 <= value <= _MAX_FLOAT


def _files(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InputError(f"{what} must be an object of file names and sha256 sums, got {_shown(value)}")

    for name, digest in value.items():
        path = Path(name)
        if path.is_absolute() or ".." in path.parts:
            raise InputError(f"{what} holds {name!r}, which is not a file of the dataset's own folder")
        if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise InputError(f"{what} needs the sha256 of {name!r} as 64 hex digits, got {_shown(digest)}")
    return dict(value)


def _text_options(value: Any, what: str) -> dict[str, Any]:
    given = _object(value, what, _field_names(TextOptions))
    TextOptions(**given)  # raises for a wrong value
    return dict(given)


def _field_names(kind: type[Sizes] | type[TextOptions]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _shown(value: Any) -> str:
    shown = repr(value)
    if len(shown) > _MAX_SHOWN:
        shown = shown[: _MAX_SHOWN - 3] + "..."
    return shown


_PARSERS: dict[str, Callable[[Any, str], Any]] = {
    "name": _name,
    "title": _text,
    "task": _text,
    "source": _text,
    "licence": _text,
    "citation": _text,
    "sizes": _sizes,
    "files": _files,
    "propensity": _propensity,
    "filter_rule": _text,
    "split_rule": _text,
    "text": _text_options,
}
