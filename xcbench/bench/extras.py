"""What our own metadata says of packages that plug-ins may need: which extra brings them, in which versions."""

from __future__ import annotations

import importlib.metadata
import re
from functools import lru_cache

from packaging.requirements import Requirement


def remedy(missing: tuple[str, ...]) -> str:
    """What to install so that these packages are there: the extra that brings them, else the packages themselves."""
    extras = {name: extra for extra, requirement in _optional() if (name := _canonical(requirement.name)) in missing}
    return "pip install " + " ".join(sorted({f"xcbench[{extras[m]}]" if m in extras else m for m in missing}))


def misfit(package: str) -> str | None:
    """Why an installed package will not do, when its version is outside what we ask for; None if it will."""
    for extra, requirement in _optional():
        if _canonical(requirement.name) != package:
            continue
        try:
            found = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            return f"needs {requirement.name}{requirement.specifier}, found {found}: pip install xcbench[{extra}]"
    return None


@lru_cache(maxsize=1)
def _optional() -> tuple[tuple[str, Requirement], ...]:
    """(extra, requirement) of everything that is not always installed; nothing where we run without metadata."""
    # All that is found: in a source tree the leftovers of an old build may stand before what is installed.
    found = importlib.metadata.distributions(name="xcbench")
    requirements = [Requirement(text) for distribution in found for text in distribution.requires or ()]
    wanted = [(r, re.search(r"extra == \W*([\w-]+)", str(r.marker))) for r in requirements if r.marker]
    # Tools of developers are no plug-in's business: `dev` may ask for the same package in other versions.
    return tuple((extra[1], r) for r, extra in wanted if extra and extra[1] != "dev")


def _canonical(name: str) -> str:
    """The name under which a package is most likely imported."""
    return {"scikit-learn": "sklearn"}.get(name, name.replace("-", "_").lower())
