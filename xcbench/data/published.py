"""What papers report of their datasets: sizes, and the propensity constants of their PSP figures.

The figures are in `published.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xcbench.data.dataset import Propensity

REPOSITORY = "http://manikvarma.org/downloads/XC/XMLRepository.html"
"""The public page from which the papers' datasets are downloaded."""


def published_sizes() -> dict[str, dict[str, Any]]:
    """Return, by dataset, the figures of the papers' tables of datasets."""
    sizes: dict[str, dict[str, Any]] = _read_published()["shapes"]
    return sizes


def published_propensity() -> dict[str, Propensity]:
    """Return, by dataset, the constants A and B with which its PSP figures were published."""
    constants = _read_published()["propensity"]
    return {name: Propensity(**values) for name, values in constants.items()}


def _read_published() -> dict[str, Any]:
    path = Path(__file__).with_name("published.json")
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content
