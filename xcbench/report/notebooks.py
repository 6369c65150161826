"""Helpers for notebooks: runs by readable names, differences of all pairs, and predictions side by side."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from xcbench.data import Dataset, TopK
from xcbench.errors import InputError
from xcbench.evaluation import Truth, holm
from xcbench.report.columns import column
from xcbench.report.scores import RESAMPLES, ScoreTable
from xcbench.report.variants import name_of
from xcbench.runner.store import Record, Store

if TYPE_CHECKING:
    import pandas as pd


def runs_on(store: Store, dataset: str) -> dict[str, list[Record]]:
    """Return the runs of a store on one dataset by name; runs that differ by seed only share a name.

    Parameters
    ----------
    store
        Where the runs are.
    dataset
        The name of the dataset.
    """
    records = [record for record in store.records() if record.dataset == dataset]
    result: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: (name_of(record), record.seed)):
        result.setdefault(name_of(record), []).append(record)
    return result


def most_varied(runs: Mapping[str, Sequence[Record]]) -> str:
    """Return the method with the most variations, among those that have a plain run to compare them with.

    Parameters
    ----------
    runs
        Runs by name, as `runs_on` returns them.
    """
    variations = Counter(records[0].method for records in runs.values())
    with_plain_run = [method for method in variations if method in runs]
    return max(with_plain_run, key=lambda method: variations[method])


def differences(
    runs: Mapping[str, Sequence[Record]],
    data: Dataset,
    metric: str,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return row minus column in percentage points, and the p-value of each pair.

    The test is a paired bootstrap, Holm-corrected over all pairs.

    Parameters
    ----------
    runs
        Runs by name, as `runs_on` returns them.
    data
        The dataset of the runs.
    metric
        The name of a metric.
    """
    import pandas as pd

    names = list(runs)
    pairs = list(itertools.combinations(names, 2))
    # No p-value is below 2 / resamples. Times all these pairs, the least must still be able to decide something.
    resamples = max(RESAMPLES, 200 * len(pairs))
    scores = ScoreTable(data, runs, [column(metric)], resamples)

    results = [scores.contrast(metric, {a: 1.0, b: -1.0}) for a, b in pairs]
    corrected = holm([result.p_value for result in results])

    gap = pd.DataFrame(0.0, names, names)
    p_values = pd.DataFrame(1.0, names, names)
    for (a, b), result, p_value in zip(pairs, results, corrected, strict=True):
        gap.loc[a, b] = result.difference
        gap.loc[b, a] = -result.difference
        p_values.loc[a, b] = p_value
        p_values.loc[b, a] = p_value
    return gap, p_values


def side_by_side(
    runs: Mapping[str, Record],
    data: Dataset,
    point: int,
    k: int = 5,
    width: int = 46,
) -> str:
    """Return a test point and what each run predicts for it, as text.

    `+` marks true labels, `.` pairs that do not count.

    Parameters
    ----------
    runs
        One run per column, by the name to print above it. Each must be stored with at least k predictions.
    data
        The dataset of the runs; it needs titles.
    point
        The number of the test point.
    k
        How many predictions to show.
    width
        How many characters each column has.
    """
    if data.label_titles is None or data.test.titles is None:
        raise InputError(f"dataset {data.name!r} has no titles to show")
    rankings = [_first_predictions(record, data, k).indices[point] for record in runs.values()]

    truth = Truth.of(data)
    start, stop = truth.positives.indptr[point : point + 2]
    true = set(truth.positives.indices[start:stop].tolist())
    ignored = set(truth.filter[truth.filter[:, 0] == point, 1].tolist())

    lines = [f"point {point}: {data.test.titles[point]}"]
    lines.append("  ".join(f"{name:<{width}}" for name in runs))
    lines.append("  ".join("-" * width for _ in runs))
    for place in range(k):
        labels = [_label_at(ranking, place) for ranking in rankings]
        cells = [_marked_title(data.label_titles, label, true, ignored) for label in labels]
        lines.append("  ".join(f"{cell[:width]:<{width}}" for cell in cells))

    predicted = set(np.concatenate(rankings).tolist())
    missed = sorted(true - predicted)
    lines += [f"not found: {data.label_titles[label]}" for label in missed[:k]]
    if len(missed) > k:
        lines.append(f"not found: {len(missed) - k} more")
    return "\n".join(line.rstrip() for line in lines)


def _first_predictions(record: Record, data: Dataset, k: int) -> TopK:
    predictions = record.predictions()
    if predictions.k < min(k, data.label_count):
        raise InputError(f"run {record.id} keeps {predictions.k} predictions per point, not {k}")
    return predictions.cut(k)


def _label_at(ranking: Sequence[int], place: int) -> int:
    """Return the label at a place, -1 if there is none."""
    if place >= len(ranking):
        return -1
    return int(ranking[place])


def _marked_title(
    titles: Sequence[str],
    label: int,
    true: set[int],
    ignored: set[int],
) -> str:
    if label < 0:
        return ""
    if label in true:
        return f"+ {titles[label]}"
    if label in ignored:
        return f". {titles[label]}"
    return f"  {titles[label]}"
