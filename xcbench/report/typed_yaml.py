"""YAML into frozen dataclasses, strictly: a wrong key or value is an error with its file, line and nearest key."""

from __future__ import annotations

import dataclasses
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

import yaml

from xcbench.errors import DataError, unknown_name

T = TypeVar("T")


def read_yaml(path: Path, cls: type[T], **given: Any) -> T:
    """Read the mapping in `path` as a `cls`; `given` are fields that the file does not hold, such as its own name."""
    try:
        root = yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
    except FileNotFoundError:
        raise DataError("no such file", path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", path) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise DataError(f"not valid YAML: {problem}", path, mark.line + 1 if mark else None) from None
    if root is None:
        raise DataError("the file is empty", path)
    value: T = _Reader(path).dataclass(root, cls, given)
    return value


@dataclasses.dataclass(frozen=True)
class _Reader:
    path: Path

    def dataclass(self, node: yaml.Node, cls: type[Any], given: dict[str, Any]) -> Any:
        if not isinstance(node, yaml.MappingNode):
            raise self.wrong(node, f"expected a mapping of {cls.__name__.lower()} keys")
        hints = typing.get_type_hints(cls)
        fields = {field.name: field for field in dataclasses.fields(cls) if field.name not in given}
        values = dict(given)
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key not in fields:
                raise self.wrong(key_node, str(unknown_name(f"{cls.__name__.lower()} key", key, fields)))
            if key in values:
                raise self.wrong(key_node, f"the key {key!r} stands here twice")
            values[key] = self.value(value_node, hints[key], key)
        required = (name for name, field in fields.items() if _is_required(field))
        if missing := [name for name in required if name not in values]:
            raise self.wrong(node, f"{cls.__name__.lower()} needs {', '.join(missing)}")
        try:
            return cls(**values)
        except ValueError as error:
            raise self.wrong(node, str(error)) from None

    def value(self, node: yaml.Node, hint: Any, what: str) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"):
                return None
            return self.value(node, next(a for a in arguments if a is not type(None)), what)
        if origin is tuple:
            # One value may stand for a list of one: `ablation: nograph`.
            items = node.value if isinstance(node, yaml.SequenceNode) else [node]
            return tuple(self.value(item, arguments[0], what) for item in items)
        if origin is typing.Literal:
            return self.choice(node, arguments, what)
        if dataclasses.is_dataclass(hint):
            return self.dataclass(node, typing.cast("type[Any]", hint), {})
        if origin is dict:
            return self.plain(node, dict, what)
        return self.plain(node, hint, what)

    def choice(self, node: yaml.Node, choices: tuple[Any, ...], what: str) -> Any:
        value = self.plain(node, str, what)
        if value not in choices:
            raise self.wrong(node, str(unknown_name(what, value, choices)))
        return value

    def plain(self, node: yaml.Node, cls: type[Any], what: str) -> Any:
        loader = yaml.SafeLoader("")
        try:
            value = loader.construct_object(node, deep=True)
        except yaml.YAMLError as error:
            raise self.wrong(node, f"{what}: {getattr(error, 'problem', error)}") from None
        if cls is str and isinstance(value, int | float) and not isinstance(value, bool):
            return str(node.value)  # `8k` is text to YAML but `2` is not; both are names here
        if cls is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if not isinstance(value, cls) or (isinstance(value, bool) and cls is not bool):
            raise self.wrong(node, f"{what} must be {_KINDS.get(cls, cls.__name__)}, got {value!r}")
        return value

    def wrong(self, node: yaml.Node, message: str) -> DataError:
        return DataError(message, self.path, node.start_mark.line + 1)


_KINDS: dict[type[Any], str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_KINDS[dict] = "a mapping"


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
