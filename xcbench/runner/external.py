"""Predictions of other programs as runs of the store: compared, shown in tables and reports like any other."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

from xcbench.data import Dataset, TopK
from xcbench.data.catalog import dataset_names, load_dataset
from xcbench.disk import locked, readable_disk_errors
from xcbench.errors import InputError
from xcbench.files import atomic_folder, sha256_of, write_json
from xcbench.plugins.stages import digest
from xcbench.runner.execute import measure
from xcbench.runner.expected import PREDICTIONS_PER_POINT
from xcbench.runner.naming import check_run_name
from xcbench.runner.store import Record, Store


def external_id(name: str, fingerprint: str, seed: int) -> str:
    """Return the id of the run that holds the predictions of another program.

    Parameters
    ----------
    name
        What the user calls the model.
    fingerprint
        Identifies the content of the dataset.
    seed
        Tells several trainings of the model apart.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "model"
    return f"{plain}-{digest({'external': name, 'data': fingerprint, 'seed': seed}, 12)}"


def add_predictions(
    predictions: Path,
    name: str,
    dataset: str,
    *,
    seed: int = 0,
    replace: bool = False,
    store: str | Path | None = None,
) -> Record:
    """Evaluate predictions for the test points of a dataset and keep them as a run.

    Parameters
    ----------
    predictions
        An npz: a csr of scores, or arrays `indices` and `scores` of [points, k].
    name
        What the model is called, in the place of a method's name.
    dataset
        The name of the dataset, or the path of one.
    seed
        Which of several trainings of the model it is.
    replace
        Whether predictions that were added before under this name may be replaced.
    store
        The folder of run records; by default in XCBENCH_HOME.
    """
    check_run_name(name)
    if seed < 0:
        raise InputError(f"a seed is at least 0, got {seed}")
    data = load_dataset(dataset)
    shape = (len(data.test), data.label_count)
    ranked = TopK.load(predictions, shape, PREDICTIONS_PER_POINT)

    run_store = Store(store)
    run_id = external_id(name, data.fingerprint, seed)
    folder = run_store.path(run_id)
    with readable_disk_errors(run_store.folder), locked(folder, f"run {run_id}"):
        if run_id in run_store and not replace:
            raise InputError(
                f"predictions of {name!r} for {data.name} (seed {seed}) are in the store already, as {run_id}; "
                "--force puts these in their place"
            )
        record = _record(run_id, name, data, _source(dataset), seed, predictions, ranked, folder)
        with atomic_folder(folder) as part:
            ranked.save(part / "predictions.npz")
            (part / "log.txt").write_text(f"added from {predictions}\n", "utf-8")
            write_json(part / "record.json", record.to_json())
    return record


def _source(dataset: str) -> str:
    """Return what loads a dataset from any folder."""
    if dataset in dataset_names():
        return dataset
    return str(Path(dataset).expanduser().absolute())


def _record(
    run_id: str,
    name: str,
    data: Dataset,
    source: str,
    seed: int,
    predictions: Path,
    ranked: TopK,
    folder: Path,
) -> Record:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Record(
        id=run_id,
        method=name,
        method_version="external",
        dataset=data.name,
        dataset_source=source,
        fingerprint=data.fingerprint,
        ablations=(),
        augment=(),
        rerank=None,
        preset=None,
        overrides={},
        seed=seed,
        ensemble=1,
        config={},
        metrics=measure(ranked, data),
        stages=(),
        train_seconds=0.0,
        predict_seconds=0.0,
        seconds=0.0,
        peak_memory=0,
        model_bytes=0,
        test_points=len(data.test),
        reported={"predictions": str(predictions), "sha256": sha256_of(predictions)},
        environment={},
        started=now,
        finished=now,
        folder=folder,
        name=name,
        is_external=True,
    )
