"""What a column of a table can show: a metric of predictions, what a run cost, or a quantity that a method reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xcbench.errors import InputError, unknown_name
from xcbench.evaluation import parse_metric
from xcbench.runner.store import Record


@dataclass(frozen=True)
class Column:
    """How a figure is called, read and shown. Without `read` it is computed from stored predictions."""

    name: str
    title: str
    digits: int = 2
    lower_is_better: bool = False
    read: Callable[[Record], float | None] | None = None

    def show(self, value: float) -> str:
        return f"{value:.{self.digits}f}"


def _quantity(name: str) -> Callable[[Record], float | None]:
    def read(record: Record) -> float | None:
        value = record.reported.get(name)
        return float(value) if isinstance(value, int | float) else None

    return read


_READ = (
    Column("train_s", "train s", 2, True, lambda record: record.train_seconds),
    Column(
        "predict_ms", "predict ms", 3, True, lambda record: 1000 * record.predict_seconds / max(1, record.test_points)
    ),
    Column("model_mb", "model MB", 1, True, lambda record: record.model_bytes / 1e6),
    Column("memory_mb", "peak MB", 0, True, lambda record: record.peak_memory / 1e6),
    Column("LMI", "LMI %", 2, True, _quantity("LMI")),
)
READ = {column.name: column for column in _READ}


def column(name: str) -> Column:
    """The column of that name; an unknown one is an error that names the nearest."""
    if name in READ:
        return READ[name]
    try:
        metric = str(parse_metric(name))
    except InputError as error:
        if "@" in name:
            raise
        raise unknown_name("metric", name, [*READ, "P@1", "nDCG@5", "PSP@1", "R@10", "C@5"]) from error
    return Column(metric, metric)
