"""What papers say of their datasets: sizes, and the propensity constants of their PSP figures (`published.json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xcbench.data.dataset import Propensity


def published_sizes() -> dict[str, dict[str, Any]]:
    """By dataset: the figures of the papers' tables of data."""
    sizes: dict[str, dict[str, Any]] = _published()["shapes"]
    return sizes


def published_propensity() -> dict[str, Propensity]:
    """By dataset: the constants A and B with which its PSP figures were published."""
    return {name: Propensity(**constants) for name, constants in _published()["propensity"].items()}


def _published() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))
    return stored
