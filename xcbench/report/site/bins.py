"""Which labels a run's accuracy comes from, as data for a picture of two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xcbench.evaluation import Truth, frequency_bins
from xcbench.report.frequency import bin_figures, bin_names
from xcbench.report.scores import DatasetRuns, answered_metrics
from xcbench.report.variants import Variant

METRICS = ("P@5", "PSP@5")
COUNT = 5


def bins_data(dataset_runs: DatasetRuns, variants: Sequence[Variant]) -> dict[str, Any]:
    """Return what labels of each frequency add to two metrics, by variant.

    Parameters
    ----------
    dataset_runs
        The dataset of the variants.
    variants
        The variants; those that keep too few places are left out.
    """
    data = dataset_runs.data
    frequency = data.label_frequency
    bins = frequency_bins(frequency, COUNT)
    truth = Truth.of(data)
    runs = {}
    for variant in variants:
        if answered_metrics(variant.records, METRICS, data.label_count) == list(METRICS):
            runs[variant.name] = variant.records

    figures: dict[str, dict[str, list[list[float]]]] = {name: {} for name in runs}
    for metric in METRICS:
        for name, found in bin_figures(runs, truth, metric, bins, COUNT).items():
            triples = np.stack([found.values, found.low, found.high], axis=1)
            figures[name][metric] = triples.tolist()
    return {
        "names": bin_names(frequency, bins, COUNT),
        "labels": np.bincount(bins, minlength=COUNT).tolist(),
        "metrics": list(METRICS),
        "figures": figures,
    }
