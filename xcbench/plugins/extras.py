"""What our own metadata says of packages that plug-ins may need: which extra brings them, which versions, and how."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

from packaging.requirements import Requirement


def install_command(missing: tuple[str, ...]) -> str:
    """What to install so that these packages are there: the extra that brings them, else the packages themselves."""
    extras: dict[str, str] = {}
    for extra_name, requirement in _optional():
        extras.setdefault(_import_name(requirement.name), extra_name)

    wanted = set()
    for package in missing:
        if package in extras:
            wanted.add(_with_extra(extras[package]))
        else:
            wanted.add(package)
    return _pip_install(wanted)


def extra(name: str) -> str:
    """The command that installs one of our extras into this environment, wherever we were installed from."""
    return _pip_install([_with_extra(name)])


def version_problem(package: str) -> str | None:
    """What is wrong with the version of an installed package that we need; None if it will do."""
    for extra_name, requirement in _optional():
        if _import_name(requirement.name) != package:
            continue
        try:
            installed = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            needed = f"{requirement.name}{requirement.specifier}"
            return f"needs {needed}, found {installed}: {extra(extra_name)}"
    return None


def _pip_install(wanted: Iterable[str]) -> str:
    """pip of this very environment: the one that the shell finds first may belong to another."""
    python = Path(sys.executable)
    pip = f"{_from_here(python)} -m pip"
    on_path = shutil.which("pip")
    if on_path is not None and Path(on_path).parent == python.parent:
        pip = "pip"
    return " ".join([pip, "install", *sorted(wanted)])


def _with_extra(name: str) -> str:
    """Ourselves with an extra, as pip takes it: from the folder that we came from, where we came from one."""
    origin = _origin()
    if "dir_info" not in origin:
        return f"'xcbench[{name}]'"
    folder = _from_here(Path(url2pathname(urlparse(origin["url"]).path)))
    editable = "-e " if origin["dir_info"].get("editable") else ""
    return f"{editable}'{folder}[{name}]'"


def _from_here(path: Path) -> str:
    """A path relative to the current folder, where it lies below; links stay, since an environment's Python is one."""
    here = Path.cwd()
    if path.is_relative_to(here):
        return os.path.relpath(path, here)
    return str(path)


def _origin() -> dict[str, Any]:
    """Where pip took us from, by its own note (`direct_url.json`); empty where that was an index of packages."""
    for distribution in _distributions():
        note = distribution.read_text("direct_url.json")
        if note:
            origin: dict[str, Any] = json.loads(note)
            return origin
    return {}


@lru_cache(maxsize=1)
def _optional() -> tuple[tuple[str, Requirement], ...]:
    """(extra, requirement) of everything that is not always installed; nothing where we run without metadata."""
    found = []
    for distribution in _distributions():
        for text in distribution.requires or ():
            requirement = Requirement(text)
            extra_of = re.search(r"extra == \W*([\w-]+)", str(requirement.marker))
            # Tools of developers do not concern plug-ins: `dev` may ask for the same package in other versions.
            if extra_of and extra_of[1] != "dev":
                found.append((extra_of[1], requirement))
    return tuple(found)


def _distributions() -> Iterable[importlib.metadata.Distribution]:
    """All that is found of us: in a source tree the leftovers of an old build may come before what is installed."""
    return importlib.metadata.distributions(name="xcbench")


def _import_name(package: str) -> str:
    """The name under which a package is most likely imported."""
    if package == "scikit-learn":
        return "sklearn"
    return package.replace("-", "_").lower()
