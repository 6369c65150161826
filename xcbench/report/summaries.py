"""Summaries: copies of runs that are small enough for a repository.

A summary keeps `record.json`, `log.txt` and `hits.npz`: where the true labels are among the first places. Tables,
paired tests, frequency bins and notebooks give the same figures from it as from the whole record.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from xcbench.data import Dataset, TopK
from xcbench.errors import InputError
from xcbench.evaluation import Truth
from xcbench.evaluation.hit_file import FirstHits
from xcbench.files import atomic_folder, write_json
from xcbench.runner.store import Record, Store

DEPTH = 100
"""How many places a summary answers for: as many as a run keeps. Most true labels are not among them, or far up."""


def keep_summary(
    record: Record,
    store: Store,
    data: Dataset,
    depth: int = DEPTH,
    predictions: int = 0,
) -> None:
    """Copy a run into another store, without its model and with hits instead of predictions.

    Parameters
    ----------
    record
        The run, whole or itself a summary.
    store
        Where the summary goes; an earlier one of the same run is replaced.
    data
        The dataset of the run.
    depth
        How many places of each ranking the hits are kept for.
    predictions
        How many predictions of each point are kept beside the hits, with scores to three digits; by default none.
    """
    if data.fingerprint != record.fingerprint:
        raise InputError(f"run {record.id} was made on other data than this {data.name!r}")
    truth = Truth.of(data)
    hits = FirstHits.of(record.hits(truth), truth, min(depth, record.depth))

    with atomic_folder(store.path(record.id)) as part:
        hits.save(part / "hits.npz")
        if predictions:
            _save_small(record.predictions().cut(predictions), part / "predictions.npz")
        (part / "log.txt").write_text(record.log(), "utf-8")
        write_json(part / "record.json", record.to_json())


def _save_small(predictions: TopK, path: Path) -> None:
    # Rounded towards 0, scores stay in order, and a file of them shrinks by half.
    bits = predictions.scores.view(np.uint32) & np.uint32(0xFFFFE000)
    with path.open("wb") as stream:
        np.savez_compressed(
            stream,
            indices=predictions.indices,
            scores=bits.view(np.float32),
            ranked=np.True_,
        )
