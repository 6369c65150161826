"""What a column of a table can show: a metric of predictions, what a run cost, or a quantity that a method reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xcbench.errors import InputError, unknown_name
from xcbench.evaluation import parse_metric
from xcbench.runner.store import Record

ValueOf = Callable[[Record], float | None]


@dataclass(frozen=True)
class Column:
    """What a figure is called, where it comes from and how it is shown."""

    name: str
    title: str
    digits: int = 2
    lower_is_better: bool = False
    value_of: ValueOf | None = None
    """Reads the figure from a record, None where it has none. Metrics are computed from stored hits instead."""
    is_time: bool = False
    """Whether it depends on the number of threads and on what else ran."""

    @property
    def is_metric(self) -> bool:
        """Whether the figure is computed over test points, so that it has intervals and can be tested."""
        return self.value_of is None

    def show(self, value: float) -> str:
        """Return a figure as text."""
        return f"{value:.{self.digits}f}"


def _train_seconds(record: Record) -> float:
    return record.train_seconds


def _predict_milliseconds(record: Record) -> float:
    return 1000 * record.predict_seconds / max(1, record.test_points)


def _model_megabytes(record: Record) -> float:
    return record.model_bytes / 1e6


def _memory_megabytes(record: Record) -> float:
    return record.peak_memory / 1e6


def _information_loss(record: Record) -> float | None:
    value = record.reported.get("LMI")
    if isinstance(value, int | float):
        return float(value)
    return None


RECORDED = {
    "train_s": Column("train_s", "train s", 2, True, _train_seconds, is_time=True),
    "predict_ms": Column("predict_ms", "predict ms", 3, True, _predict_milliseconds, is_time=True),
    "model_mb": Column("model_mb", "model MB", 1, True, _model_megabytes),
    "memory_mb": Column("memory_mb", "peak MB", 0, True, _memory_megabytes),
    "LMI": Column("LMI", "LMI %", 2, True, _information_loss),
}
"""Columns that are read from records, by name."""


def column(name: str) -> Column:
    """Return the column of a name: one of `RECORDED`, or a metric. An unknown name is an `InputError`."""
    if name in RECORDED:
        return RECORDED[name]
    try:
        metric = str(parse_metric(name))
    except InputError as error:
        if "@" in name:
            raise
        raise unknown_name("metric", name, [*RECORDED, "P@1", "nDCG@5", "PSP@1", "R@10", "C@5"]) from error
    return Column(metric, metric)
