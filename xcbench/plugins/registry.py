"""Finding plug-ins by name: built in, installed by somebody else (entry points), or in a file that a user names.

Nothing is imported to list them: the names stand literally in `@register_method("...")`, so reading the source is
enough, and a method whose optional package is missing is listed with what to install.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.metadata
import importlib.util
import logging
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from xcbench.errors import InputError, XCBenchError, unknown_name
from xcbench.plugins.contract import Augmentation, Method, PlugIn, Reranker
from xcbench.plugins.extras import install_command, version_problem

Kind = Literal["method", "augmentation", "reranker"]

_KINDS: dict[Kind, type[PlugIn[Any]]] = {"method": Method, "augmentation": Augmentation, "reranker": Reranker}
_DECORATORS: dict[str, Kind] = {f"register_{kind}": kind for kind in _KINDS}
_PACKAGE = "xcbench.methods"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """A plug-in that has been found but not imported."""

    kind: Kind
    name: str
    title: str
    origin: str
    """`built-in`, or the distribution that brings it."""
    module: str
    missing: tuple[str, ...] = ()
    """Packages that it imports and that are not installed."""
    version_problems: tuple[str, ...] = ()
    """What is wrong with the versions of packages that it imports."""

    @property
    def problem(self) -> str | None:
        """Why it cannot be used, with what would help; None if it can."""
        if self.missing:
            return f"not available: {install_command(self.missing)}"
        if self.version_problems:
            return f"not available: {'; '.join(self.version_problems)}"
        return None


def entries(kind: Kind) -> list[Entry]:
    """All plug-ins of a kind, sorted by name; a built-in name wins over an installed one."""
    found = {entry.name: entry for entry in _installed(kind)}
    for entry in _built_in():
        if entry.kind == kind:
            found[entry.name] = entry
    return [found[name] for name in sorted(found)]


def method_folders() -> list[Path]:
    """The folders in which built-in plug-ins are."""
    return [Path(folder) for folder in importlib.import_module(_PACKAGE).__path__]


def unavailable_reason(entry: Entry) -> str | None:
    """Why a plug-in cannot be used. Unlike `Entry.problem` this imports it, and so finds libraries that are broken."""
    if entry.problem:
        return entry.problem
    try:
        module = importlib.import_module(entry.module)
    except Exception as error:  # a library that was built for another numpy fails in whatever way it likes
        message = " ".join(str(error).split())
        return f"not available: cannot be imported ({type(error).__name__}: {message})"
    reason = _pick(module, entry.kind, entry.name).unavailable()
    if reason is None:
        return None
    return f"not available: {reason}"


def get_method(name: str) -> type[Method[Any]]:
    """The method of that name, or in that file (`mine.py`, or `mine.py:name` if it registers several)."""
    return _get("method", name)  # type: ignore[return-value]


def get_augmentation(name: str) -> type[Augmentation[Any]]:
    """The augmentation of that name, or in that file."""
    return _get("augmentation", name)  # type: ignore[return-value]


def get_reranker(name: str) -> type[Reranker[Any]]:
    """The reranker of that name, or in that file."""
    return _get("reranker", name)  # type: ignore[return-value]


def _get(kind: Kind, name: str) -> type[PlugIn[Any]]:
    if _is_path(name):
        return _from_file(kind, name)
    known = {entry.name: entry for entry in entries(kind)}
    if name not in known:
        raise unknown_name(kind, name, known)
    entry = known[name]
    problem = unavailable_reason(entry)
    if problem:
        raise InputError(f"{kind} {name!r} is {problem}")

    plugin = _pick(importlib.import_module(entry.module), kind, name)
    if entry.origin != "built-in":
        plugin.code_version = f"{plugin.version}+{entry.origin.replace(' ', '-')}"
    return plugin


def _pick(module: ModuleType, kind: Kind, name: str) -> type[PlugIn[Any]]:
    plugins = _plugins(module, kind)
    if name not in plugins:
        raise XCBenchError(f"{module.__name__} does not register a {kind} called {name!r}")
    return plugins[name]


def _plugins(module: ModuleType, kind: Kind) -> dict[str, type[PlugIn[Any]]]:
    """The plug-ins of a kind that a module registers, by name."""
    found = {}
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, _KINDS[kind]) and "name" in vars(value):
            found[value.name] = value
    return found


@lru_cache(maxsize=1)
def _built_in() -> tuple[Entry, ...]:
    found: list[Entry] = []
    for folder in method_folders():
        for path in sorted(folder.rglob("[!_]*.py")):
            inside = path.relative_to(folder).with_suffix("")
            found += _scan(path, ".".join([_PACKAGE, *inside.parts]))
    return tuple(found)


@lru_cache
def _installed(kind: Kind) -> tuple[Entry, ...]:
    found = []
    for point in importlib.metadata.entry_points(group=f"xcbench.{kind}s"):
        origin = point.module
        if point.dist:
            origin = f"{point.dist.name} {point.dist.version}"
        found.append(Entry(kind, point.name, f"from {origin}", origin, point.module))
    return tuple(found)


def _scan(path: Path, module: str) -> list[Entry]:
    """The plug-ins that a source file registers, and what it needs, without running it."""
    try:
        tree = ast.parse(path.read_text("utf-8"), path.name)
    except (SyntaxError, UnicodeDecodeError) as error:
        _log.warning("%s: cannot be read: %s", path, error)
        return []

    imported = sorted(_imported(tree))
    missing = tuple(root for root in imported if not _importable(root))
    problems = [version_problem(root) for root in imported]
    version_problems = tuple(problem for problem in problems if problem)
    found = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        title = (ast.get_docstring(node) or "").partition("\n")[0]
        for decorator in node.decorator_list:
            registration = _registration(decorator)
            if registration is not None:
                kind, name = registration
                found.append(Entry(kind, name, title, "built-in", module, missing, version_problems))
    return found


def _registration(decorator: ast.expr) -> tuple[Kind, str] | None:
    """Kind and name if this decorator is `@register_...("name")`."""
    if not isinstance(decorator, ast.Call) or not decorator.args:
        return None
    argument = decorator.args[0]
    if not isinstance(argument, ast.Constant):
        return None
    called = ""
    if isinstance(decorator.func, ast.Attribute):
        called = decorator.func.attr
    elif isinstance(decorator.func, ast.Name):
        called = decorator.func.id
    kind = _DECORATORS.get(called)
    if kind is None:
        return None
    return kind, str(argument.value)


def _imported(tree: ast.Module) -> set[str]:
    """The top-level packages that a module imports unconditionally."""
    roots: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            roots.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            roots.add(node.module.partition(".")[0])
    return roots


def _importable(root: str) -> bool:
    return root in sys.modules or importlib.util.find_spec(root) is not None


def _is_path(name: str) -> bool:
    """Whether this is `some/file.py` or `some/file.py:name`."""
    _, suffix, rest = name.partition(".py")
    return suffix == ".py" and rest[:1] in ("", ":")


def _from_file(kind: Kind, wanted: str) -> type[PlugIn[Any]]:
    before, suffix, rest = wanted.rpartition(".py")
    path = Path(before + suffix).expanduser().absolute()
    name = rest.removeprefix(":")
    plugins = _plugins(_load_file(path), kind)
    if not plugins:
        raise InputError(f"{path}: registers no {kind}; expected a class under @register_{kind}('name')")
    if name and name not in plugins:
        raise unknown_name(f"{kind} in {path}:", name, plugins)
    if not name and len(plugins) > 1:
        known = ", ".join(sorted(plugins))
        raise InputError(f"{path}: registers {known}; say which, as in {path.name}:{min(plugins)}")

    plugin = plugins[name or min(plugins)]
    # Whoever edits the file expects another result: its content is part of the identity of its runs.
    content = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    plugin.code_version = f"{plugin.version}+{content}"
    return plugin


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    name = f"xcbench_plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"{path}{_line_of(error, path)}: {type(error).__name__}: {error}") from error
    return module


def _line_of(error: Exception, path: Path) -> str:
    """Where in a user's file an error came from."""
    line = None
    if isinstance(error, SyntaxError):
        line = error.lineno
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    if line is None:
        return ""
    return f", line {line}"
