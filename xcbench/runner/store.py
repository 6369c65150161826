"""The store: a folder of run records, one folder a run, which is the only truth about what was measured.

A record holds `record.json`, `predictions.npz`, `log.txt` and `model/`. It appears whole or not at all, so readers
need no lock. Tables, plots and notebooks read the store; none of them keeps figures of its own.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xcbench.data.topk import TopK
from xcbench.errors import DataError, InputError, unknown_name
from xcbench.files import home

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measure:
    """A figure in percent with its 95% interval; NaN where the data does not define it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class StageReport:
    """What one stage cost, whenever it ran."""

    name: str
    key: str
    member: int
    state: str
    """`ran` in this run, or `beside` it in another process; `reused` from the cache, or `unused` because what comes
    after it was cached."""
    seconds: float
    """How long computing it took, in this run or in the one that it is reused from."""
    peak_memory: int


@dataclass(frozen=True)
class Record:
    """One finished run. Everything but predictions, log and model is here; those are read when asked for."""

    id: str
    method: str
    method_version: str
    dataset: str
    dataset_source: str
    """What loads the dataset again: its name, or the path it came from."""
    fingerprint: str
    ablations: tuple[str, ...]
    augment: tuple[str, ...]
    rerank: str | None
    preset: str | None
    overrides: Mapping[str, Any]
    seed: int
    ensemble: int
    config: Mapping[str, Any]
    """The resolved config: the method's own keys, and `augment` and `rerank` where there are such."""
    metrics: Mapping[str, Measure]
    stages: tuple[StageReport, ...]
    train_seconds: float
    """Cost of training from nothing: what this run computed, and what reused stages took when they ran. Stages that ran
    beside it cost what it had to wait for them."""
    predict_seconds: float
    seconds: float
    """Wall time of this run, with whatever it could reuse."""
    peak_memory: int
    model_bytes: int
    test_points: int
    reported: Mapping[str, Any]
    """What the method measured of itself (`run.report`)."""
    environment: Mapping[str, Any]
    started: str
    finished: str
    folder: Path = field(compare=False)

    def predictions(self) -> TopK:
        """The stored top k of every test point."""
        return TopK.load(self.folder / "predictions.npz")

    def log(self) -> str:
        """What the run said while it worked."""
        return (self.folder / "log.txt").read_text("utf-8")

    def to_json(self) -> dict[str, Any]:
        value = asdict(self)
        del value["folder"]
        value["metrics"] = [{"name": name, **_finite(asdict(metric))} for name, metric in self.metrics.items()]
        return {"schema": SCHEMA, **value}


class Store:
    """Run records in a folder; the default one lives in `XCBENCH_HOME`."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = home() / "runs" if folder is None else Path(folder).expanduser().absolute()
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is not a folder, so it cannot be a store of runs")

    def path(self, run_id: str) -> Path:
        return self.folder / run_id

    def __contains__(self, run_id: str) -> bool:
        return (self.path(run_id) / "record.json").is_file()

    def get(self, run_id: str) -> Record | None:
        """The record with exactly this id; None if there is none or it cannot be read (which is said)."""
        if run_id not in self:
            return None
        try:
            return read_record(self.path(run_id))
        except DataError as error:
            _log.warning("skipping a corrupted record: %s", error)
            return None

    def find(self, wanted: str) -> Record:
        """The record that a user means: by id, by the start of one, by its hash, or by the folder's path."""
        if (Path(wanted) / "record.json").is_file():
            return read_record(Path(wanted).absolute())
        ids = self.ids()
        matches = [i for i in ids if i == wanted] or [
            i for i in ids if wanted and wanted in (i[: len(wanted)], _hash(i)[: len(wanted)])
        ]
        if len(matches) > 1:
            raise InputError(f"{wanted!r} may be any of {', '.join(matches[:5])}: write more of it")
        if not matches:
            raise unknown_name(f"run in {self.folder}:", wanted, ids)
        return read_record(self.path(matches[0]))

    def ids(self) -> list[str]:
        """The ids of all records, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(p.parent.name for p in self.folder.glob("[!.]*/record.json"))

    def records(self) -> Iterator[Record]:
        """Every readable record; each unreadable one costs a warning line."""
        for run_id in self.ids():
            record = self.get(run_id)
            if record is not None:
                yield record


def read_record(folder: Path) -> Record:
    """Read one record folder, of this or any older schema."""
    path = folder / "record.json"
    try:
        value = json.loads(path.read_text("utf-8"))
        if not isinstance(value, dict):
            raise DataError("expected a JSON object", path)
        value = _upgrade(value, path)
        value["metrics"] = {metric.pop("name"): Measure(**_nan(metric)) for metric in value["metrics"]}
        value["stages"] = tuple(StageReport(**stage) for stage in value["stages"])
        for name in ("ablations", "augment"):
            value[name] = tuple(value[name])
        known = {f.name for f in fields(Record)}
        return Record(**{k: v for k, v in value.items() if k in known}, folder=folder)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"not a run record ({error})", path) from error


_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""By schema: what makes a record of it one of the next schema. Samples of every schema are in the tests."""


def _upgrade(value: dict[str, Any], path: Path) -> dict[str, Any]:
    schema = value.pop("schema", None)
    if not isinstance(schema, int) or schema < 1:
        raise DataError("no schema version: not a run record", path)
    if schema > SCHEMA:
        raise DataError(f"schema {schema} is newer than this xcbench reads ({SCHEMA}); upgrade xcbench", path)
    for step in range(schema, SCHEMA):
        value = _UPGRADES[step](value)
    return value


def results(store: str | Path | Store | None = None) -> pd.DataFrame:
    """Every figure in a store as one tidy frame: a row for each run and metric."""
    import pandas as pd

    store = store if isinstance(store, Store) else Store(store)
    rows = [row for record in store.records() for row in _rows(record)]
    frame: pd.DataFrame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
    return frame


COLUMNS = {
    "run": "str",
    "method": "str",
    "ablation": "str",
    "augment": "str",
    "rerank": "str",
    "preset": "str",
    "overrides": "str",
    "dataset": "str",
    "seed": "int64",
    "ensemble": "int64",
    "metric": "str",
    "value": "float64",
    "low": "float64",
    "high": "float64",
    "train_seconds": "float64",
    "predict_seconds": "float64",
    "seconds": "float64",
    "peak_memory": "int64",
    "model_bytes": "int64",
    "test_points": "int64",
    "finished": "str",
    "folder": "str",
}
"""The columns of `results()`. Several ablations or augmentations are joined by `+`; none is the empty string."""


def _rows(record: Record) -> Iterator[dict[str, Any]]:
    shared = {name: getattr(record, name) for name in COLUMNS if hasattr(record, name)}
    shared |= {
        "run": record.id,
        "ablation": "+".join(record.ablations),
        "augment": "+".join(record.augment),
        "rerank": record.rerank or "",
        "preset": record.preset or "",
        "overrides": json.dumps(record.overrides, sort_keys=True) if record.overrides else "",
        "folder": str(record.folder),
    }
    for name, metric in record.metrics.items():
        yield shared | {"metric": name} | asdict(metric)


def load_record(wanted: str, store: str | Path | None = None) -> Record:
    """The record of a run by its id (or the start of it)."""
    return Store(store).find(wanted)


def _hash(run_id: str) -> str:
    return run_id.rpartition("-")[2]


def _finite(figures: dict[str, float]) -> dict[str, float | None]:
    return {name: figure if math.isfinite(figure) else None for name, figure in figures.items()}


def _nan(figures: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if figure is None else float(figure) for name, figure in figures.items()}
