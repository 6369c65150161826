"""The figures of a paper's table of datasets, and the shape of a dataset's tail."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import Dataset
from xcbench.data.quality import filtered_true_pairs, points_without_truth
from xcbench.errors import InputError
from xcbench.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW_POINTS = 5
"""A label with fewer training points than this belongs to the tail."""
_PICTURES = (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class Statistics:
    """Counts, averages and shares (0 to 1) of one dataset; `str` gives a table for people.

    Unless a name says otherwise, points and label frequencies are those of training.
    """

    name: str
    train_points: int
    test_points: int
    labels: int
    features: int
    labels_per_point: float
    labels_per_test_point: float
    points_per_label: float
    tokens_per_point: float
    tokens_per_label: float | None
    """Tokens are the distinct features of a row. None where labels have no text."""
    train_points_without_features: int
    test_points_without_features: int
    train_points_without_labels: int
    test_points_without_labels: int
    labels_without_text: int | None
    labels_without_training_points: int
    train_filter_pairs: int
    test_filter_pairs: int
    true_test_pairs_filtered: int
    test_points_without_truth: int
    """Points without a true label once filtered pairs are gone; they count as zeros in every mean."""
    median_points_per_label: float
    most_points_of_a_label: int
    share_of_labels_with_few_points: float
    share_of_positives_in_top_percent: float
    gini: float
    """0 where all labels are equally frequent, near 1 where a few have all the points."""

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as one flat JSON object."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        blocks = _blocks(self)
        width = 0
        for rows in blocks.values():
            width = max(width, *(len(name) for name, _ in rows))

        lines = [self.name]
        for title, rows in blocks.items():
            lines += ["", title]
            lines += [f"  {name:<{width}}  {figure:>12}" for name, figure in rows]
        return "\n".join(lines)


def statistics(dataset: Dataset) -> Statistics:
    """Compute the figures of a dataset.

    Parameters
    ----------
    dataset
        The dataset, which is only read.
    """
    train = dataset.train
    test = dataset.test
    frequency = dataset.label_frequency

    tokens_per_label = None
    labels_without_text = None
    if dataset.Z is not None:
        tokens_per_label = _mean_row_length(dataset.Z)
        labels_without_text = _empty_rows(dataset.Z)

    return Statistics(
        name=dataset.name,
        train_points=len(train),
        test_points=len(test),
        labels=dataset.label_count,
        features=dataset.feature_count,
        labels_per_point=_mean_row_length(train.Y),
        labels_per_test_point=_mean_row_length(test.Y),
        points_per_label=_mean(frequency),
        tokens_per_point=_mean_row_length(train.X),
        tokens_per_label=tokens_per_label,
        train_points_without_features=_empty_rows(train.X),
        test_points_without_features=_empty_rows(test.X),
        train_points_without_labels=_empty_rows(train.Y),
        test_points_without_labels=_empty_rows(test.Y),
        labels_without_text=labels_without_text,
        labels_without_training_points=int((frequency == 0).sum()),
        train_filter_pairs=len(train.filter),
        test_filter_pairs=len(test.filter),
        true_test_pairs_filtered=filtered_true_pairs(test),
        test_points_without_truth=points_without_truth(test),
        median_points_per_label=_median(frequency),
        most_points_of_a_label=int(frequency.max(initial=0)),
        share_of_labels_with_few_points=_mean(frequency < FEW_POINTS),
        share_of_positives_in_top_percent=_top_share(frequency, 0.01),
        gini=gini(frequency),
    )


def gini(counts: npt.NDArray[np.integer]) -> float:
    """Return the Gini coefficient of some counts: half of their mean absolute difference, over their mean."""
    n = len(counts)
    total = int(counts.sum())
    if total == 0:
        return 0.0

    ascending = np.sort(counts).astype(np.float64)
    ranks = np.arange(1, n + 1)
    return float(2 * (ranks @ ascending) / (n * total) - (n + 1) / n)


def draw_frequency_curve(dataset: Dataset, path: Path) -> None:
    """Draw the training points per label, most frequent first, on two logarithmic axes.

    Parameters
    ----------
    dataset
        The dataset to draw.
    path
        The picture to write; its name ends in .png, .pdf or .svg.
    """
    if path.suffix not in _PICTURES:
        raise InputError(f"a picture's name ends in {', '.join(_PICTURES)}; got {str(path)!r}")

    figure = _frequency_curve(dataset)
    with atomic_file(path) as part:
        figure.savefig(part, format=path.suffix.removeprefix("."), dpi=160)


def _frequency_curve(dataset: Dataset) -> Figure:
    from matplotlib.figure import Figure

    frequency = np.sort(dataset.label_frequency)[::-1]
    seen = frequency[frequency > 0]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    ranks = np.arange(1, len(seen) + 1)
    axes.loglog(ranks, seen, color="black", linewidth=1.6)
    if len(seen):
        _shade_tail(axes, frequency)

    axes.set_xlim(1, max(2, len(frequency)))
    axes.set_ylim(0.8, None)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("label, most frequent first")
    axes.set_ylabel("training points")
    axes.set_title(f"{dataset.name}: label frequency", loc="left")
    axes.grid(which="major", color="0.85", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _shade_tail(axes: Axes, frequency: npt.NDArray[np.integer]) -> None:
    """Shade the labels with few training points, unless all labels or none are such."""
    labels = len(frequency)
    head = int((frequency >= FEW_POINTS).sum())
    tail = labels - head
    if not 0 < tail < labels:
        return

    axes.axvspan(head + 1, labels, color="0.9", linewidth=0)
    axes.text(
        0.03,
        0.05,
        f"shaded: {tail:,} of {labels:,} labels ({tail / labels:.0%})\nhave fewer than {FEW_POINTS} training points",
        transform=axes.transAxes,
        backgroundcolor="white",
    )


def _blocks(figures: Statistics) -> dict[str, list[tuple[str, str]]]:
    """Return what `Statistics` prints: titled blocks of named figures."""
    tokens_per_label = "no text"
    labels_without_text = "no text"
    if figures.tokens_per_label is not None:
        tokens_per_label = f"{figures.tokens_per_label:.2f}"
    if figures.labels_without_text is not None:
        labels_without_text = f"{figures.labels_without_text:,}"

    return {
        "Size": [
            ("train points N", f"{figures.train_points:,}"),
            ("test points", f"{figures.test_points:,}"),
            ("labels L", f"{figures.labels:,}"),
            ("vocabulary V", f"{figures.features:,}"),
            ("labels per train point", f"{figures.labels_per_point:.2f}"),
            ("labels per test point", f"{figures.labels_per_test_point:.2f}"),
            ("points per label", f"{figures.points_per_label:.2f}"),
            ("tokens per point", f"{figures.tokens_per_point:.2f}"),
            ("tokens per label", tokens_per_label),
        ],
        "Tail (train points of a label)": [
            ("median", f"{figures.median_points_per_label:g}"),
            ("most", f"{figures.most_points_of_a_label:,}"),
            (f"labels with fewer than {FEW_POINTS}", f"{figures.share_of_labels_with_few_points:.1%}"),
            ("positives in the top 1% of labels", f"{figures.share_of_positives_in_top_percent:.1%}"),
            ("Gini coefficient", f"{figures.gini:.3f}"),
        ],
        "Missing": [
            ("train points without features", f"{figures.train_points_without_features:,}"),
            ("test points without features", f"{figures.test_points_without_features:,}"),
            ("train points without labels", f"{figures.train_points_without_labels:,}"),
            ("test points without labels", f"{figures.test_points_without_labels:,}"),
            ("labels without text", labels_without_text),
            ("labels without training points", f"{figures.labels_without_training_points:,}"),
        ],
        "Filter": [
            ("train pairs", f"{figures.train_filter_pairs:,}"),
            ("test pairs", f"{figures.test_filter_pairs:,}"),
            ("of these true", f"{figures.true_test_pairs_filtered:,}"),
            ("test points without truth (count as 0)", f"{figures.test_points_without_truth:,}"),
        ],
    }


def _mean(values: npt.NDArray[Any]) -> float:
    if len(values) == 0:
        return 0.0
    return float(values.mean())


def _median(values: npt.NDArray[Any]) -> float:
    if len(values) == 0:
        return 0.0
    return float(np.median(values))


def _mean_row_length(matrix: sp.csr_array) -> float:
    return _mean(np.diff(matrix.indptr))


def _empty_rows(matrix: sp.csr_array) -> int:
    return int((np.diff(matrix.indptr) == 0).sum())


def _top_share(frequency: npt.NDArray[np.integer], share: float) -> float:
    """Return the share of all positives that a share of the labels has, the most frequent ones."""
    top = max(1, int(len(frequency) * share))
    descending = np.sort(frequency)[::-1]
    positives = descending[:top].sum()
    return float(positives / max(1, frequency.sum()))
