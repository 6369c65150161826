"""What a notebook starts from: runs by readable names, who differs from whom, and predictions side by side."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from xcbench.data import Dataset
from xcbench.errors import InputError
from xcbench.evaluation import Truth, holm
from xcbench.files import atomic_folder, write_json
from xcbench.report.columns import column
from xcbench.report.scores import RESAMPLES, ScoreTable
from xcbench.runner.store import Record, Store

if TYPE_CHECKING:
    import pandas as pd


def name_of(record: Record) -> str:
    """A run in a few words: method, ablations, augmentations, reranker and whatever was set by hand."""
    parts = [record.method, *record.ablations, *record.augment]
    parts += [record.rerank] if record.rerank else []
    parts += [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in record.overrides.items()
    ]
    parts += [f"{record.ensemble} members"] if record.ensemble > 1 else []
    return " + ".join(parts)


def runs_on(store: Store, dataset: str) -> dict[str, list[Record]]:
    """The runs of a store on one dataset, by name; runs that differ by seed only stand together."""
    found: dict[str, list[Record]] = {}
    for record in sorted(store.records(), key=lambda record: (name_of(record), record.seed)):
        if record.dataset == dataset:
            found.setdefault(name_of(record), []).append(record)
    return found


def most_varied(runs: Mapping[str, Sequence[Record]]) -> str:
    """The method with most variations among what `runs_on` found, and with a plain run to hold them against."""
    count = Counter(records[0].method for records in runs.values())
    return max((name for name in count if name in runs), key=count.__getitem__)


def differences(runs: Mapping[str, Sequence[Record]], data: Dataset, metric: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Row minus column in percentage points, and the p-value of each pair: paired bootstrap, Holm over all pairs."""
    import pandas as pd

    names = list(runs)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    # No p-value is below 2 / resamples. Times all these pairs, the least must still be able to decide something.
    judge = ScoreTable(data, runs, [column(metric)], resamples=max(RESAMPLES, 200 * len(pairs)))
    found = [judge.contrast(metric, {a: 1.0, b: -1.0}) for a, b in pairs]
    gap = pd.DataFrame(0.0, names, names)
    p_value = pd.DataFrame(1.0, names, names)
    for (a, b), result, p in zip(pairs, found, holm([result.p_value for result in found]), strict=True):
        gap.loc[a, b], gap.loc[b, a] = result.difference, -result.difference
        p_value.loc[a, b] = p_value.loc[b, a] = p
    return gap, p_value


def side_by_side(runs: Mapping[str, Record], data: Dataset, point: int, k: int = 5, width: int = 46) -> str:
    """A test point and what each run predicts for it; `+` marks true labels, `.` pairs that do not count."""
    if data.label_titles is None or data.test.titles is None:
        raise InputError(f"dataset {data.name!r} has no titles to show")
    truth = Truth.of(data)
    Y = truth.positives
    true = set(Y.indices[Y.indptr[point] : Y.indptr[point + 1]].tolist())
    ignored = set(truth.filter[truth.filter[:, 0] == point, 1].tolist())
    columns = [f"{name:<{width}}" for name in runs]
    lines = [f"point {point}: {data.test.titles[point]}", "  ".join(columns), "  ".join("-" * width for _ in runs)]
    tops = [record.predictions().indices[point, :k] for record in runs.values()]
    for place in range(k):
        cells = []
        for top in tops:
            label = int(top[place]) if place < len(top) else -1
            mark = "+" if label in true else "." if label in ignored else " "
            title = "" if label < 0 else data.label_titles[label]
            cells.append(f"{mark} {title[: width - 2]:<{width - 2}}")
        lines.append("  ".join(cells))
    found = set(np.concatenate(tops).tolist())
    missed = sorted(true - found)
    lines += [f"not found: {data.label_titles[label]}" for label in missed[:k]]
    lines += [f"not found: {len(missed) - k} more"] if len(missed) > k else []
    return "\n".join(line.rstrip() for line in lines)


def keep_summary(record: Record, store: Store, depth: int = 20) -> None:
    """Copy a run into another store without its model, its predictions cut to the first places, scores to 3 digits."""
    with atomic_folder(store.path(record.id)) as part:
        kept = record.predictions().cut(depth)
        # Rounded towards 0, scores stay in order, and a file of them shrinks by half.
        scores = (kept.scores.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        with (part / "predictions.npz").open("wb") as stream:
            np.savez_compressed(stream, indices=kept.indices, scores=scores, ranked=np.True_)
        (part / "log.txt").write_text(record.log(), "utf-8")
        write_json(part / "record.json", record.to_json())
