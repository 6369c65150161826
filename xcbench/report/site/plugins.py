"""What is known of a method, augmentation or reranker: its words, its paper, its ablations and settings."""

from __future__ import annotations

import ast
import importlib.util
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xcbench.errors import XCBenchError
from xcbench.plugins import registry
from xcbench.plugins.config import build, changes, leaves
from xcbench.plugins.contract import Method, PlugIn

KINDS: dict[registry.Kind, str] = {
    "method": "Methods",
    "augmentation": "Augmentations",
    "reranker": "Rerankers",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setting:
    """A key of a config and its value."""

    key: str
    value: str


@dataclass(frozen=True)
class ShownAblation:
    """A variation of a method, with what it changes."""

    name: str
    title: str
    changes: tuple[tuple[str, str, str], ...]
    """Key, value before and value after."""


@dataclass(frozen=True)
class PlugInPage:
    """What a page says about a plug-in."""

    kind: registry.Kind
    name: str
    title: str
    paragraphs: tuple[str, ...] = ()
    citation: str = ""
    problem: str = ""
    """Why it cannot be used here, if so."""
    ablations: tuple[ShownAblation, ...] = ()
    settings: tuple[Setting, ...] = ()


def plugin_pages() -> Iterator[PlugInPage]:
    """Yield a page for every registered plug-in, methods first."""
    for kind in KINDS:
        for entry in registry.entries(kind):
            yield _page(entry)


def _page(entry: registry.Entry) -> PlugInPage:
    paragraphs = tuple(_paragraphs(entry.module))
    problem = registry.unavailable_reason(entry) or ""
    plugin = _plugin(entry)
    if plugin is None:
        return PlugInPage(entry.kind, entry.name, entry.title, paragraphs, problem=problem)
    return PlugInPage(
        kind=entry.kind,
        name=entry.name,
        title=entry.title,
        paragraphs=paragraphs,
        citation=plugin.citation,
        problem=problem,
        ablations=tuple(_ablations(plugin)),
        settings=tuple(_settings(plugin)),
    )


def _plugin(entry: registry.Entry) -> type[PlugIn[Any]] | None:
    """Return the class; None if it cannot be imported."""
    get = {
        "method": registry.get_method,
        "augmentation": registry.get_augmentation,
        "reranker": registry.get_reranker,
    }
    try:
        return get[entry.kind](entry.name)
    except XCBenchError as error:
        _log.warning("%s is shown without its settings: %s", entry.name, error)
        return None


def _ablations(plugin: type[PlugIn[Any]]) -> Iterator[ShownAblation]:
    if not issubclass(plugin, Method):
        return
    for name, ablation in plugin.ablations.items():
        changed = [
            (change.key, _shown(change.old), _shown(change.new))
            for change in changes(plugin.config_type, ablation.patch)
        ]
        yield ShownAblation(name, ablation.title, tuple(changed))


def _settings(plugin: type[PlugIn[Any]]) -> Iterator[Setting]:
    for key, value in leaves(build(plugin.config_type)).items():
        yield Setting(key, _shown(value))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _paragraphs(module: str) -> Iterator[str]:
    """Yield the paragraphs of a module's docstring, which is read without importing the module."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text("utf-8")))
    for paragraph in (docstring or "").split("\n\n"):
        if paragraph.strip():
            yield " ".join(paragraph.split())
