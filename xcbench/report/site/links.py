"""Which file of the site shows what. All paths are from the site's root."""

from __future__ import annotations

import re
from urllib.parse import quote

from xcbench.plugins import registry


def dataset_page(dataset: str) -> str:
    """Return the page of a dataset."""
    return f"datasets/{file_name(dataset)}.html"


def predictions_page(dataset: str) -> str:
    """Return the page that shows predictions on a dataset."""
    return f"datasets/{file_name(dataset)}-predictions.html"


def run_file(dataset: str, number: int) -> str:
    """Return the file with what a run says of a dataset's points."""
    return f"predictions/{file_name(dataset)}/{number}.js"


def plugin_page(kind: registry.Kind, name: str) -> str:
    """Return the page of a method, augmentation or reranker."""
    return f"{kind}s/{file_name(name)}.html"


def table_page(experiment: str) -> str:
    """Return the page of a table or figure."""
    return f"tables/{file_name(experiment)}.html"


def file_name(name: str) -> str:
    """Return a name as part of a file name and of a link: two names never share one."""
    plain = re.sub(r"[^A-Za-z0-9._+/-]", _as_code, name)
    return plain.replace("/", "-")


def _as_code(character: re.Match[str]) -> str:
    return quote(character[0], safe="").replace("%", "_")
