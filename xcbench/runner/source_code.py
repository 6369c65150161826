"""Which code made a figure: a digest of the source that can change it, and of nothing else.

A run's figures depend on the modules of its method, augmentations and reranker, on whatever these import of ours, and
on what trains and evaluates. Comments and docstrings change nothing, and neither do other methods, reports or the
command line. Imports are followed by reading the source, so that nothing has to be imported to ask.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from xcbench.plugins import registry
from xcbench.plugins.contract import PlugIn

if TYPE_CHECKING:
    from xcbench.runner.store import Record

Source: TypeAlias = str | Path
"""A module by its name, or the file of a plug-in that belongs to no package of ours."""

EVALUATION = "xcbench.evaluation.evaluator"
"""With all that it imports: it makes figures of predictions."""

TRAINING = ("xcbench.runner.context", "xcbench.runner.model", "xcbench.runner.training")
"""Without what they import, which finds, stores and locks: they decide what is trained, and with which seeds."""


@dataclass(frozen=True)
class _Module:
    """What a source file says, and which names it imports from where."""

    code: bytes
    """Without comments of their own line, docstrings and blank lines."""
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]
    """Level, module and names of each `from level.module import names`; no names for `import module`."""


class SourceTree:
    """Source files by the names of their modules.

    Parameters
    ----------
    roots
        The folder of each package; of packages inside of others, the longest name counts.
    """

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self.roots = dict(sorted(roots.items(), key=lambda root: -len(root[0])))
        self._modules: dict[Path, _Module] = {}

    def digest(self, sources: Iterable[Source], alone: Iterable[str] = ()) -> str:
        """The digest of modules and all that they import of this tree.

        Parameters
        ----------
        sources
            Where to start.
        alone
            Modules that count without what they import.
        """
        files = {path for name in alone if (path := self.path(name)) is not None}
        waiting = [path for source in sources if (path := self._start(source)) is not None]
        seen: set[Path] = set()
        while waiting:
            path = waiting.pop()
            if path not in seen:
                seen.add(path)
                waiting += self._imported(path)

        result = hashlib.sha256()
        for path in sorted(files | seen, key=self._name):
            result.update(self._name(path).encode() + b"\n" + self._module(path).code)
        return result.hexdigest()[:12]

    def path(self, name: str) -> Path | None:
        """The file of a module, or of a package's `__init__`; None if it is none of ours."""
        for package, folder in self.roots.items():
            if name == package or name.startswith(f"{package}."):
                inside = folder.joinpath(*name[len(package) :].strip(".").split("."))
                candidates = (inside.with_suffix(".py"), inside / "__init__.py")
                return next((path for path in candidates if path.is_file()), None)
        return None

    def _start(self, source: Source) -> Path | None:
        if isinstance(source, Path):
            return source
        return self.path(source)

    def _name(self, path: Path) -> str:
        """The module's name; the bare file name of a file outside of the tree."""
        for package, folder in self.roots.items():
            if path.is_relative_to(folder):
                inside = path.relative_to(folder).with_suffix("").parts
                return ".".join((package, *inside))
        return path.name

    def _module(self, path: Path) -> _Module:
        if path not in self._modules:
            self._modules[path] = _read(path)
        return self._modules[path]

    def _imported(self, path: Path) -> Iterator[Path]:
        for level, module, names in self._module(path).imports:
            base = self._absolute(path, level, module)
            if not names:
                yield from self._found(base)
            for name in names:
                yield from self._defining(base, name)

    def _absolute(self, path: Path, level: int, module: str) -> str:
        if level == 0:
            return module
        package = self._name(path).split(".")
        if path.name == "__init__.py":
            package = package[:-1]
            level -= 1
        kept = package[: len(package) - level]
        return ".".join([*kept, module]).strip(".")

    def _found(self, module: str) -> Iterator[Path]:
        path = self.path(module)
        if path is not None:
            yield path

    def _defining(self, module: str, name: str) -> Iterator[Path]:
        """The file behind `from module import name`: a submodule, or where a package has the name from."""
        submodule = self.path(f"{module}.{name}")
        if submodule is not None:
            yield submodule
            return
        path = self.path(module)
        if path is None:
            return
        if path.name == "__init__.py":
            for level, origin, names in self._module(path).imports:
                if name in names:
                    yield from self._defining(self._absolute(path, level, origin), name)
                    return
        yield path


def _read(path: Path) -> _Module:
    text = path.read_text("utf-8")
    tree = ast.parse(text, path.name)
    imports: list[tuple[int, str, tuple[str, ...]]] = []
    documentation: set[int] = set()
    inside_strings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            # A docstring, or the description below a field.
            documentation.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno != node.lineno:
            inside_strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))

    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        is_text = number in inside_strings
        is_empty = not line.strip() or line.lstrip().startswith("#")
        if number not in documentation and (is_text or not is_empty):
            lines.append(line.rstrip())
    return _Module("\n".join(lines).encode(), tuple(imports))


@lru_cache(maxsize=1)
def _our_code() -> SourceTree:
    """The code that is installed here."""
    import xcbench.methods

    core = Path(xcbench.__file__).parent
    return SourceTree({"xcbench": core, "xcbench.methods": Path(xcbench.methods.__path__[0])})


@lru_cache
def code_of(*plugins: Source) -> str:
    """The digest of what can change the figures of a run with these plug-ins.

    Parameters
    ----------
    plugins
        Their modules, or their files.
    """
    return _our_code().digest((*plugins, EVALUATION), alone=TRAINING)


def source_of(plugin: type[PlugIn[Any]]) -> Source:
    """Where a plug-in is defined: a module of ours, or a file of somebody else's."""
    module = plugin.__module__
    if _our_code().path(module) is not None:
        return module
    return Path(inspect.getfile(plugin))


def is_by_other_code(record: Record) -> bool:
    """Whether a run was made by other code than today's.

    Nobody knows of a plug-in that came from a file where that is now; its content is part of the run's id.

    Parameters
    ----------
    record
        The run.
    """
    if record.is_external:
        return False
    names: list[tuple[registry.Kind, str]] = [("method", record.method)]
    names += [("augmentation", name) for name in record.augment]
    if record.rerank is not None:
        names.append(("reranker", record.rerank))

    modules = []
    for kind, name in names:
        found = [entry.module for entry in registry.entries(kind) if entry.name == name]
        if not found:
            return False
        modules += found
    return record.environment.get("code") != code_of(*modules)
