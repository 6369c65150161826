"""How far two runs agree: in the labels that they predict, in the scores, and in every table that their stages left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from xcbench.runner.stage_cache import StageCache
from xcbench.runner.store import Record

Array: TypeAlias = npt.NDArray[Any]

FIRST = 5
"""Of how many predictions per point the labels are compared."""


@dataclass(frozen=True)
class Agreement:
    """How far two runs agree."""

    labels: float
    """The share of the first predictions that name the same label in the same place."""
    scores: float
    """The largest difference between the scores in the same place."""
    parameters: float
    """The largest difference between entries of a table of numbers, relative to the largest entry of that table."""
    same_bits: bool
    """Whether predictions and tables are equal to the last bit."""

    @classmethod
    def between(cls, record: Record, expected: Record) -> Agreement:
        """Compare two records; each has its stage cache beside its store, where `XCBENCH_HOME` has it."""
        predictions = record.predictions()
        wanted = expected.predictions()
        tables = dict(_tables(record))
        wanted_tables = dict(_tables(expected))
        same_bits = (
            np.array_equal(predictions.indices, wanted.indices)
            and np.array_equal(predictions.scores, wanted.scores)
            and tables.keys() == wanted_tables.keys()
            and all(np.array_equal(tables[name], wanted_tables[name]) for name in tables)
        )
        first = predictions.cut(FIRST)
        wanted_first = wanted.cut(FIRST)
        return cls(
            float((first.indices == wanted_first.indices).mean()),
            float(np.abs(first.scores - wanted_first.scores).max()),
            max((_difference(tables[name], wanted_tables[name]) for name in tables), default=0.0),
            same_bits,
        )

    def __str__(self) -> str:
        if self.same_bits:
            return "predictions and parameters equal to the last bit"
        return (
            f"{self.labels:.2%} of the first {FIRST} labels in the same place, scores differ by at most "
            f"{self.scores:.1g}, parameters by at most {self.parameters:.1g} of a table's largest entry"
        )


def _difference(table: Array, wanted: Array) -> float:
    if not np.issubdtype(table.dtype, np.floating):
        return 0.0
    if table.shape != wanted.shape:
        return float("inf")
    largest = float(np.abs(wanted).max(initial=0.0))
    if largest == 0:
        return float(np.abs(table).max(initial=0.0))
    return float(np.abs(table - wanted).max()) / largest


def _tables(record: Record) -> Iterator[tuple[str, Array]]:
    """Yield every table that the stages of a run left, with its name."""
    assert record.folder is not None
    cache = StageCache(record.folder.parent.parent / "stages")
    for stage in record.stages:
        finished = cache.read(record.method, stage.name, stage.key)
        if finished is not None:
            yield from _arrays(finished[1], stage.name)


def _arrays(value: Any, name: str) -> Iterator[tuple[str, Array]]:
    if isinstance(value, np.ndarray):
        yield name, value
        return
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _arrays(part, f"{name}.{key}")
        return
    if isinstance(value, Sequence) and not isinstance(value, str):
        for number, part in enumerate(value):
            yield from _arrays(part, f"{name}.{number}")
