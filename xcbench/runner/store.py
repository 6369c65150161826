"""The store: a folder of run records, one folder per run. It is the only place that knows what was measured.

A record holds `record.json`, `predictions.npz`, `log.txt` and `model/`. A summary of one has no model, and `hits.npz`
instead of predictions (`results/runs` is a store of summaries). A record appears whole or not at all, so readers need
no lock. Tables, plots and notebooks read the store; none of them keeps figures of its own.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xcbench.data import Dataset
from xcbench.data.topk import TopK
from xcbench.errors import DataError, InputError, unknown_name
from xcbench.evaluation import DEFAULT_METRICS, Evaluation, Interval, Truth, parse_metric, parse_metrics
from xcbench.evaluation.hit_file import FirstHits
from xcbench.evaluation.hits import Hits, find_hits
from xcbench.files import home
from xcbench.runner.naming import LATEST, differences, named_runs
from xcbench.runner.record_upgrades import SCHEMA, upgraded
from xcbench.runner.spec import Curve, RunSpec

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)

_CHOICES_SHOWN = 5


@dataclass(frozen=True)
class StageReport:
    """What one stage cost, whenever it ran."""

    name: str
    key: str
    member: int
    state: str
    """`ran` in this run, or `parallel` to it in another process; `reused` from the cache, or `unused` because what
    comes after it was cached."""
    seconds: float
    """How long computing it took, in this run or in the one that it is reused from."""
    peak_memory: int
    peak_device_memory: int = 0
    """Bytes on the GPU; 0 on a CPU, and in older records."""
    threads: int | None = None
    """How many it was computed with; not known of older records."""
    other_load: float | None = None
    """How many cores other processes kept busy meanwhile, on average; not known of older records."""


@dataclass(frozen=True)
class Record:
    """One finished run. Predictions, log and model are read from its folder when they are needed."""

    id: str
    method: str
    method_version: str
    dataset: str
    dataset_source: str
    """What loads the dataset again: its name, or the path it came from."""
    fingerprint: str
    """Identifies the content of the dataset."""
    ablations: tuple[str, ...]
    augment: tuple[str, ...]
    rerank: str | None
    preset: str | None
    overrides: Mapping[str, Any]
    seed: int
    ensemble: int
    config: Mapping[str, Any]
    """The resolved config: the method's own keys, and `augment` and `rerank` where there are such."""
    metrics: Mapping[str, Interval]
    stages: tuple[StageReport, ...]
    train_seconds: float
    """Cost of training from nothing: what this run computed, and what reused stages took when they ran. Stages that ran
    parallel to it cost what it had to wait for them."""
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
    peak_device_memory: int = 0
    """The most bytes that the run had allocated on its GPU (rank 0's, under torchrun). 0 on a CPU, in older records,
    and if all stages were reused."""
    name: str | None = None
    """What a user called it, for commands that ask for a run."""
    is_external: bool = False
    """Whether its predictions were added from a file: nothing here trained it."""
    points_without_truth: int = 0
    """How many test points have no true label once filtered pairs are gone; they count as zeros. 0 in older records."""

    @property
    def spec(self) -> RunSpec:
        """What the run was asked for; with the preset that was applied."""
        return RunSpec(
            method=self.method,
            dataset=self.dataset_source,
            ablations=self.ablations,
            augment=self.augment,
            rerank=self.rerank,
            preset=self.preset or "none",
            overrides=self.overrides,
            seed=self.seed,
            ensemble=self.ensemble,
        )

    def has_curve(self, kind: Curve) -> bool:
        """Whether it has the learning curve that is asked for, if one is."""
        return kind in ("none", self.reported.get("curve"))

    @property
    def is_summary(self) -> bool:
        """Whether the run is kept by its hits: its predictions, if there are any, are cut short."""
        return self._hits_path.is_file()

    @property
    def has_predictions(self) -> bool:
        """Whether its first predictions are stored; a summary may have the hits alone."""
        return self._predictions_path.is_file()

    @property
    def depth(self) -> int:
        """How many places of each ranking the stored files can answer for."""
        if self.is_summary:
            return FirstHits.load(self._hits_path).depth
        return self.predictions().k

    def predictions(self) -> TopK:
        """Return the stored top k of every test point; a run that is kept without them is an `InputError`."""
        if self.is_summary and not self.has_predictions:
            raise InputError(
                f"run {self.id} is kept without predictions: it has the hits in the first {self.depth} places, for "
                "`record.evaluate`; run it again for predictions"
            )
        return TopK.load(self._predictions_path)

    def hits(self, truth: Truth) -> Hits:
        """Return which of the stored places are right. Figures of at most `depth` places follow from them.

        Parameters
        ----------
        truth
            The true labels of the run's dataset. A summary refuses any other truth with an `InputError`.
        """
        if not self.is_summary:
            return find_hits(self.predictions(), truth)
        try:
            return FirstHits.load(self._hits_path).hits(truth)
        except DataError:
            raise
        except InputError as error:
            raise InputError(f"run {self.id} was evaluated on other data: {error}") from None

    def evaluate(self, target: Dataset | Truth, metrics: Sequence[str] = DEFAULT_METRICS) -> Evaluation:
        """Evaluate the run from what is stored of it.

        Parameters
        ----------
        target
            The run's dataset, or the truth of its test points.
        metrics
            Names of metrics. One that looks at more places than are stored is an `InputError`.
        """
        truth = target
        if isinstance(truth, Dataset):
            truth = Truth.of(truth)

        too_deep = self.too_deep(metrics, truth.label_count)
        if too_deep:
            # Computed all the same, these would be too low, and nobody would see it.
            raise InputError(f"run {self.id} keeps {self.depth} labels per point, too few for {', '.join(too_deep)}")
        return Evaluation(parse_metrics(metrics), truth, self.hits(truth))

    def too_deep(self, metrics: Sequence[str], label_count: int) -> list[str]:
        """Return those metrics that look at more places than are stored.

        Parameters
        ----------
        metrics
            Names of metrics.
        label_count
            How many labels the dataset has; no ranking is longer.
        """
        depth = self.depth
        result = []
        for name in metrics:
            k = parse_metric(name).k
            if k is None:
                # It looks at every place that a run predicts, which a summary has cut.
                if self.is_summary:
                    result.append(name)
            elif min(k, label_count) > depth:
                result.append(name)
        return result

    def log(self) -> str:
        """Return what the run logged."""
        return (self.folder / "log.txt").read_text("utf-8")

    def to_json(self) -> dict[str, Any]:
        """Return the content of `record.json`."""
        value = asdict(self)
        del value["folder"]
        value["metrics"] = [{"name": name, **_without_nan(asdict(metric))} for name, metric in self.metrics.items()]
        return {"schema": SCHEMA, **value}

    @property
    def _predictions_path(self) -> Path:
        return self.folder / "predictions.npz"

    @property
    def _hits_path(self) -> Path:
        return self.folder / "hits.npz"


class Store:
    """Run records in a folder.

    Parameters
    ----------
    folder
        Where the records are; by default `runs` in `XCBENCH_HOME`. It need not exist yet.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        if folder is None:
            self.folder = home() / "runs"
        else:
            self.folder = Path(folder).expanduser().absolute()
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is not a folder, so it cannot be a store of runs")

    def path(self, run_id: str) -> Path:
        """Return the folder of a run, whether it exists or not."""
        return self.folder / run_id

    def __contains__(self, run_id: str) -> bool:
        return (self.path(run_id) / "record.json").is_file()

    def get(self, run_id: str) -> Record | None:
        """Return the record with exactly this id; None if there is none or, with a warning, if it cannot be read."""
        if run_id not in self:
            return None
        try:
            return read_record(self.path(run_id))
        except DataError as error:
            _log.warning("skipping a corrupted record: %s", error)
            return None

    def find(self, wanted: str) -> Record:
        """Return the record that a user means, or raise an `InputError`.

        Parameters
        ----------
        wanted
            The id of a run, the start of one, the start of its hash, or the path of the record's folder; `latest`, the
            name that a run was given, or METHOD@DATASET. Of several runs with one name the newest is taken, and said.
        """
        if (Path(wanted) / "record.json").is_file():
            return read_record(Path(wanted).absolute())

        ids = self.ids()
        if wanted in ids:
            return read_record(self.path(wanted))

        named = named_runs(list(self.records()), wanted)
        if named:
            _say_which(wanted, named)
            return named[0]

        matches = [run_id for run_id in ids if _begins_with(run_id, wanted)]
        if len(matches) > 1:
            raise InputError(f"{wanted!r} may be any of {self._choices(matches)}: write more of it")
        if not matches:
            raise unknown_name(f"run in {self.folder}:", wanted, self.names())
        return read_record(self.path(matches[0]))

    def names(self) -> list[str]:
        """Return all that `find` knows runs by: ids, given names, METHOD@DATASET."""
        names = set(self.ids())
        for record in self.records():
            names.add(f"{record.method}@{record.dataset}")
            if record.name:
                names.add(record.name)
        return sorted(names)

    def _choices(self, ids: Sequence[str]) -> str:
        """Return some ids, with what tells these runs apart."""
        records = [record for record in map(self.get, ids[:_CHOICES_SHOWN]) if record is not None]
        choices = [
            f"{record.id} ({difference})" for record, difference in zip(records, differences(records), strict=True)
        ]
        if len(ids) > _CHOICES_SHOWN:
            choices.append("...")
        return ", ".join(choices)

    def ids(self) -> list[str]:
        """Return the ids of all records, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(path.parent.name for path in self.folder.glob("[!.]*/record.json"))

    def records(self) -> Iterator[Record]:
        """Yield every readable record; log a warning for each unreadable one."""
        for run_id in self.ids():
            record = self.get(run_id)
            if record is not None:
                yield record


def _say_which(wanted: str, named: Sequence[Record]) -> None:
    """Log which of several runs a name stands for, with what tells it from the others."""
    chosen = named[0]
    if len(named) > 1:
        difference = differences(named)[0]
        _log.info("%s: %s, the newest of %d runs (%s)", wanted, chosen.id, len(named), difference)
    elif wanted == LATEST:
        _log.info("%s: %s on %s", wanted, chosen.id, chosen.dataset)


def _begins_with(run_id: str, wanted: str) -> bool:
    """Return whether a run's id or its hash begins with what a user wrote."""
    if not wanted:
        return False
    run_hash = run_id.rpartition("-")[2]
    return run_id.startswith(wanted) or run_hash.startswith(wanted)


def read_record(folder: Path) -> Record:
    """Read one record folder, of this or any older schema."""
    path = folder / "record.json"
    try:
        value = json.loads(path.read_text("utf-8"))
        if not isinstance(value, dict):
            raise DataError("expected a JSON object", path)
        _check_schema(value, path)
        return _record_of(upgraded(value), folder)
    except DataError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"not a run record ({error})", path) from error


def _record_of(value: dict[str, Any], folder: Path) -> Record:
    known = {field.name for field in fields(Record)}
    parts = {name: part for name, part in value.items() if name in known}

    parts["metrics"] = {metric.pop("name"): Interval(**_with_nan(metric)) for metric in parts["metrics"]}
    parts["stages"] = tuple(StageReport(**stage) for stage in parts["stages"])
    parts["ablations"] = tuple(parts["ablations"])
    parts["augment"] = tuple(parts["augment"])
    return Record(**parts, folder=folder)


def _check_schema(value: Mapping[str, Any], path: Path) -> None:
    schema = value.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise DataError("no schema version: not a run record", path)
    if schema > SCHEMA:
        raise DataError(f"schema {schema} is newer than this xcbench reads ({SCHEMA}); upgrade xcbench", path)


def results(store: str | Path | Store | None = None) -> pd.DataFrame:
    """Return every figure in a store as one tidy frame: a row for each run and metric.

    Parameters
    ----------
    store
        A store or the folder of one; by default the store in `XCBENCH_HOME`.
    """
    import pandas as pd

    if not isinstance(store, Store):
        store = Store(store)
    rows: list[dict[str, Any]] = []
    for record in store.records():
        rows.extend(_rows(record))
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
    "peak_device_memory": "int64",
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
        "overrides": "",
        "folder": str(record.folder),
    }
    if record.overrides:
        shared["overrides"] = json.dumps(record.overrides, sort_keys=True)
    for name, metric in record.metrics.items():
        yield shared | {"metric": name} | asdict(metric)


def load_record(wanted: str, store: str | Path | None = None) -> Record:
    """Return the record of a run.

    Parameters
    ----------
    wanted
        The run's id, or the start of it.
    store
        The folder of the store; by default the store in `XCBENCH_HOME`.
    """
    return Store(store).find(wanted)


def _without_nan(figures: Mapping[str, float]) -> dict[str, float | None]:
    """Return figures as JSON can hold them: null where there is no number."""
    result: dict[str, float | None] = dict(figures)
    for name, figure in figures.items():
        if not math.isfinite(figure):
            result[name] = None
    return result


def _with_nan(figures: Mapping[str, float | None]) -> dict[str, float]:
    """Return figures as `Interval` holds them: NaN where JSON has null."""
    result = {}
    for name, figure in figures.items():
        if figure is None:
            result[name] = math.nan
        else:
            result[name] = float(figure)
    return result
