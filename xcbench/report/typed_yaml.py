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
    """Read the mapping in a file as a dataclass.

    Parameters
    ----------
    path
        The YAML file. Whatever is wrong with it is a `DataError` that names the line.
    cls
        The dataclass; the types of its fields say what the file may hold.
    **given
        Fields that the file does not hold, such as its own name.
    """
    root = _compose(path)
    if root is None:
        raise DataError("the file is empty", path)
    value: T = _Reader(path).read_dataclass(root, cls, given)
    return value


def _compose(path: Path) -> yaml.Node | None:
    """Return the content of a file as nodes, which know their lines; None if it is empty."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise DataError("no such file", path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", path) from None

    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error)
        mark = getattr(error, "problem_mark", None)
        line = None
        if mark is not None:
            line = mark.line + 1
        raise DataError(f"not valid YAML: {problem}", path, line) from None
    return root


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Reads the nodes of one file. Parameters called `what` name a value in error messages."""

    path: Path

    def read_dataclass(
        self,
        node: yaml.Node,
        cls: type[Any],
        given: dict[str, Any],
    ) -> Any:
        kind = cls.__name__.lower().lstrip("_")
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"expected a mapping of {kind} keys")

        hints = typing.get_type_hints(cls)
        fields = {field.name: field for field in dataclasses.fields(cls) if field.name not in given}
        values = dict(given)
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key not in fields:
                raise self.error(key_node, str(unknown_name(f"{kind} key", key, fields)))
            if key in values:
                raise self.error(key_node, f"the key {key!r} stands here twice")
            values[key] = self.read_value(value_node, hints[key], key)

        missing = [name for name, field in fields.items() if _is_required(field) and name not in values]
        if missing:
            raise self.error(node, f"{kind} needs {', '.join(missing)}")
        try:
            return cls(**values)
        except ValueError as error:
            raise self.error(node, str(error)) from None

    def read_value(self, node: yaml.Node, hint: Any, what: str) -> Any:
        """Return a value of the type that a hint names."""
        origin = typing.get_origin(hint)
        arguments = typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self._read_optional(node, arguments, what)
        if origin is tuple:
            return self._read_tuple(node, arguments[0], what)
        if origin is typing.Literal:
            return self._read_choice(node, arguments, what)
        if origin is dict:
            return self._read_plain(node, dict, what)
        if dataclasses.is_dataclass(hint):
            return self.read_dataclass(node, typing.cast("type[Any]", hint), {})
        return self._read_plain(node, hint, what)

    def _read_optional(
        self,
        node: yaml.Node,
        arguments: tuple[Any, ...],
        what: str,
    ) -> Any:
        if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"):
            return None
        hint = next(argument for argument in arguments if argument is not type(None))
        return self.read_value(node, hint, what)

    def _read_tuple(self, node: yaml.Node, hint: Any, what: str) -> tuple[Any, ...]:
        # A single value is a list of one: `ablation: nograph`.
        items = [node]
        if isinstance(node, yaml.SequenceNode):
            items = node.value
        return tuple(self.read_value(item, hint, what) for item in items)

    def _read_choice(
        self,
        node: yaml.Node,
        choices: tuple[Any, ...],
        what: str,
    ) -> Any:
        value = self._read_plain(node, str, what)
        if value not in choices:
            raise self.error(node, str(unknown_name(what, value, choices)))
        return value

    def _read_plain(self, node: yaml.Node, cls: type[Any], what: str) -> Any:
        """Return a text, number, truth value or mapping."""
        loader = yaml.SafeLoader("")
        try:
            value = loader.construct_object(node, deep=True)
        except yaml.YAMLError as error:
            raise self.error(node, f"{what}: {getattr(error, 'problem', error)}") from None

        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if cls is str and is_number:
            return str(node.value)  # `8k` is text to YAML but `2` is not; both are names here
        if cls is float and is_number:
            return float(value)
        is_wrong_bool = isinstance(value, bool) and cls is not bool
        if not isinstance(value, cls) or is_wrong_bool:
            raise self.error(node, f"{what} must be {_KINDS.get(cls, cls.__name__)}, got {value!r}")
        return value

    def error(self, node: yaml.Node, message: str) -> DataError:
        """Return the error that names the node's line."""
        return DataError(message, self.path, node.start_mark.line + 1)


_KINDS: dict[type[Any], str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a mapping",
}


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
