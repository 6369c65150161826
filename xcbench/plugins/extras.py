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
    extras = {name: extra for extra, requirement in _optional() if (name := _canonical(requirement.name)) in missing}
    return _install({_with_extra(extras[m]) if m in extras else m for m in missing})


def extra(name: str) -> str:
    """The command that installs one of our extras into this environment, wherever we were installed from."""
    return _install([_with_extra(name)])


def version_problem(package: str) -> str | None:
    """Why an installed package will not do, when its version is outside what we ask for; None if it will."""
    for name, requirement in _optional():
        if _canonical(requirement.name) != package:
            continue
        try:
            found = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            return f"needs {requirement.name}{requirement.specifier}, found {found}: {extra(name)}"
    return None


def _install(wanted: Iterable[str]) -> str:
    """pip of this very environment: the one that the shell finds first may belong to another."""
    environment = Path(sys.executable).parent
    found = shutil.which("pip")
    activated = found is not None and Path(found).parent == environment
    pip = "pip" if activated else f"{_short(Path(sys.executable))} -m pip"
    return " ".join([pip, "install", *sorted(wanted)])


def _with_extra(name: str) -> str:
    """Ourselves with an extra, as pip takes it: from the folder that we came from, where we came from one."""
    origin = _origin()
    if "dir_info" not in origin:
        return f"'xcbench[{name}]'"
    folder = _short(Path(url2pathname(urlparse(origin["url"]).path)))
    return f"{'-e ' if origin['dir_info'].get('editable') else ''}'{folder}[{name}]'"


def _short(path: Path) -> str:
    """A path from here, where it lies below; links stay, since an environment's Python is one."""
    here = Path.cwd()
    return os.path.relpath(path, here) if path.is_relative_to(here) else str(path)


def _origin() -> dict[str, Any]:
    """Where pip took us from, by its own note (`direct_url.json`); empty where that was an index of packages."""
    notes = (distribution.read_text("direct_url.json") for distribution in _distributions())
    return next((json.loads(note) for note in notes if note), {})


@lru_cache(maxsize=1)
def _optional() -> tuple[tuple[str, Requirement], ...]:
    """(extra, requirement) of everything that is not always installed; nothing where we run without metadata."""
    requirements = [Requirement(text) for distribution in _distributions() for text in distribution.requires or ()]
    wanted = [(r, re.search(r"extra == \W*([\w-]+)", str(r.marker))) for r in requirements if r.marker]
    # Tools of developers are no plug-in's business: `dev` may ask for the same package in other versions.
    return tuple((extra[1], r) for r, extra in wanted if extra and extra[1] != "dev")


def _distributions() -> Iterable[importlib.metadata.Distribution]:
    """All that is found of us: in a source tree the leftovers of an old build may stand before what is installed."""
    return importlib.metadata.distributions(name="xcbench")


def _canonical(name: str) -> str:
    """The name under which a package is most likely imported."""
    return {"scikit-learn": "sklearn"}.get(name, name.replace("-", "_").lower())
