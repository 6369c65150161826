"""Which runs are pinned, and how they are made."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.methods.problems import quick
from xcbench.data import Dataset
from xcbench.plugins.registry import entries, get_method, get_reranker
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec
from xcbench.runner.store import Record, Store
from xcbench.runner.toy import toy_dataset

RUNS = Path(__file__).with_name("runs")
VERSION = "version.txt"
"""Beside a record: the version of the plug-in that was pinned."""
POINTS = 20
FIRST = "knn"
"""The method whose predictions the rerankers are given."""
SMALLER = {"word_dim": 64, "hidden": 16, "buckets": 16}
"""Settings that keep stored models small, where a method has them."""


def data() -> Dataset:
    """The dataset that all of them are trained on."""
    return toy_dataset(labels=15, train=60, test=POINTS)


def names() -> list[str]:
    """Every built-in method and reranker. XR-Linear's library reads its own files, in an environment of its own."""
    plugins = [*entries("method"), *entries("reranker")]
    return sorted(entry.name for entry in plugins if entry.name != "xrlinear")


def specification(name: str) -> RunSpec:
    """The run that is pinned for a plug-in."""
    if any(entry.name == name for entry in entries("reranker")):
        return RunSpec(FIRST, rerank=name, preset="none")
    plugin = get_method(name)
    smaller = {key: value for key, value in SMALLER.items() if hasattr(plugin.config_type(), key)}
    return RunSpec(name, overrides=quick(plugin) | smaller, preset="none")


def version(name: str) -> str:
    """The version of a plug-in's code."""
    if any(entry.name == name for entry in entries("reranker")):
        return get_reranker(name).version
    return get_method(name).version


def pinned() -> dict[str, Record]:
    """The stored runs, by plug-in."""
    return {record.rerank or record.method: record for record in Store(RUNS).records()}


def pin(name: str) -> Record:
    """Train a plug-in and store its model and predictions in the place of those that are there."""
    spec = specification(name)
    with tempfile.TemporaryDirectory() as scratch:
        record = run(spec, data=data(), store=RUNS, cache=Path(scratch))
    (record.folder / VERSION).write_text(version(name))
    return record
