"""The pages of the reference that are made from the code: commands, settings, functions; and the list of results."""

from __future__ import annotations

import ast
import dataclasses
import html
import importlib
import inspect
import itertools
import json
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent

ROOMS = {
    "xcbench": "Where to begin.",
    "xcbench.data": "Datasets, predictions, readers and writers.",
    "xcbench.evaluation": "Metrics, intervals, paired tests.",
    "xcbench.plugins": "What the author of a method imports.",
    "xcbench.train": "The training loop.",
    "xcbench.nn": "Parts of models.",
    "xcbench.labels": "Label graphs, centroids, clusters.",
    "xcbench.shortlist": "Which labels a point may have.",
}
MODULES = ("xcbench.runner.spec", "xcbench.runner.execute", "xcbench.runner.store", "xcbench.runner.model")


def commands() -> str:
    """Every verb with its options."""
    from xcbench.cli import app

    text = app.generate_docs(output_format="markdown")
    return text.replace("# xcbench\n", "# Commands\n", 1)


def settings() -> str:
    """Every setting of every plug-in."""
    from xcbench.plugins import registry

    lines = [
        "# Settings",
        "",
        "Each can be changed on the command line (`--set key=value`) or in Python",
        '(`RunSpec(method, overrides={"key": value})`).',
        "",
        "A preset is named like the dataset that it is for. It is applied to runs on that dataset, unless they say",
        "`--preset none`.",
    ]
    for kind in ("method", "augmentation", "reranker"):
        lines += ["", f"## {kind.capitalize()}s"]
        for entry in registry.entries(kind):
            lines += ["", f"### {entry.name}", ""]
            if registry.unavailable_reason(entry):
                lines.append(f"Not described here: {registry.unavailable_reason(entry)}.")
                continue
            lines += _plugin(getattr(registry, f"get_{kind}")(entry.name))
    return "\n".join(lines) + "\n"


def _plugin(plugin: Any) -> Iterator[str]:
    source = Path(inspect.getfile(plugin)).resolve().relative_to(ROOT)
    title = (inspect.getdoc(plugin) or "").partition("\n")[0]
    yield f"{title}. Source: `{source}`."
    explanation = plugin.config_type.__doc__ or ""
    if not explanation.startswith(f"{plugin.config_type.__name__}("):
        yield f"\n{inspect.cleandoc(explanation)}"

    rows = list(_rows(plugin.config_type()))
    if not rows:
        yield "\nThere is nothing to set."
        return
    yield "\n| setting | type | default | what it does |\n|---|---|---|---|"
    yield from rows

    ablations = getattr(plugin, "ablations", {})
    if ablations:
        yield "\n| ablation | | changes |\n|---|---|---|"
    for name, ablation in ablations.items():
        yield f"| `{name}` | {_cell(ablation.title)} | {_patch(ablation.patch)} |"
    presets = getattr(plugin, "presets", {})
    if presets:
        yield "\n| preset | settings |\n|---|---|"
    for name, patch in presets.items():
        yield f"| `{name}` | {_patch(patch)} |"


def _rows(config: Any, prefix: str = "") -> Iterator[str]:
    """A row per setting, with what its source says about it; of a group, one for each setting in it."""
    from xcbench.plugins.config import type_name

    words = _field_words(type(config))
    types = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        key = prefix + field.name
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            if field.name in words:
                yield f"| `{key}` | | | {_cell(words[field.name])} |"
            yield from _rows(value, f"{key}.")
        else:
            kind = _cell(type_name(types[field.name]))
            yield f"| `{key}` | {kind} | {_code(_plain(value))} | {_cell(words.get(field.name, ''))} |"


def _field_words(config_type: type) -> dict[str, str]:
    """The string below each field of a dataclass, and of those that it extends."""
    words: dict[str, str] = {}
    for base in reversed(config_type.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for field, below in itertools.pairwise(body):
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and is_text:
                words[field.target.id] = inspect.cleandoc(below.value.value)
    return words


def _patch(patch: Any) -> str:
    return _cell(", ".join(f"`{key}` {_code(_plain(value))}" for key, value in patch.items()))


def _plain(value: Any) -> Any:
    from xcbench.plugins.stages import canonical

    return canonical(value)


def _code(value: Any) -> str:
    return f"`{json.dumps(value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def functions() -> str:
    """Every public function and class."""
    lines = [
        "# Python",
        "",
        "What each part of the package offers.",
    ]
    for name, title in ROOMS.items():
        lines += ["", f"## {name}", "", title]
        room = importlib.import_module(name)
        for member in room.__all__:
            value = getattr(room, member)
            if inspect.isclass(value) or inspect.isfunction(value):
                lines += ["", f"::: {value.__module__}.{value.__qualname__}"]
    for name in MODULES:
        lines += ["", f"## {name}", "", f"::: {name}", "    options:", "      show_root_heading: false"]
    return "\n".join(lines) + "\n"


def results() -> str:
    """Links to every table and figure in results/."""
    lines = ["# Tables and figures", "", "Everything that `make results` has made of our runs, by dataset and paper."]
    for dataset in sorted(path for path in (ROOT / "results").glob("lf-*") if path.is_dir()):
        lines += ["", f"## {dataset.name}", "", f"![Accuracy and cost](../results/{dataset.name}/tradeoff.png)"]
        for paper in sorted(path for path in dataset.iterdir() if path.is_dir()):
            links = [_link(page) for page in sorted(paper.iterdir()) if page.suffix == ".md"]
            links += [_link(page) for page in sorted(paper.glob("*.png")) if not page.with_suffix(".md").exists()]
            lines += ["", f"**{paper.name}**: {', '.join(links)}"]
    return "\n".join(lines) + "\n"


def _link(page: Path) -> str:
    return f"[{html.escape(page.stem)}](../{page.relative_to(ROOT).as_posix()})"


PAGES = {
    "reference/cli.md": commands,
    "reference/settings.md": settings,
    "reference/api.md": functions,
    "findings/tables.md": results,
}
