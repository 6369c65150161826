"""What Table 1 of a paper says of a dataset, and the shape of its tail."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import Dataset
from xcbench.errors import InputError
from xcbench.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW_POINTS = 5
"""A label with fewer training points than this is of the tail."""


@dataclass(frozen=True)
class Statistics:
    """Counts, averages and shares (0 to 1) of one dataset. Points and frequencies are those of training."""

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
    """Tokens are distinct features of a row; None where labels have no text."""
    train_points_without_features: int
    test_points_without_features: int
    train_points_without_labels: int
    test_points_without_labels: int
    labels_without_text: int | None
    labels_without_training_points: int
    train_filter_pairs: int
    test_filter_pairs: int
    median_points_per_label: float
    most_points_of_a_label: int
    share_of_labels_with_few_points: float
    share_of_positives_in_top_percent: float
    gini: float
    """0 where all labels are equally frequent, near 1 where a few have all the points."""

    def to_dict(self) -> dict[str, Any]:
        """One flat JSON object."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        width = max(len(what) for rows in _blocks(self).values() for what, _ in rows)
        lines = [self.name]
        for title, rows in _blocks(self).items():
            lines += ["", title, *(f"  {what:<{width}}  {value:>12}" for what, value in rows)]
        return "\n".join(lines)


def statistics(dataset: Dataset) -> Statistics:
    """Count everything."""
    train, test, Z = dataset.train, dataset.test, dataset.Z
    frequency = dataset.label_frequency
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
        tokens_per_label=None if Z is None else _mean_row_length(Z),
        train_points_without_features=_empty_rows(train.X),
        test_points_without_features=_empty_rows(test.X),
        train_points_without_labels=_empty_rows(train.Y),
        test_points_without_labels=_empty_rows(test.Y),
        labels_without_text=None if Z is None else _empty_rows(Z),
        labels_without_training_points=int((frequency == 0).sum()),
        train_filter_pairs=len(train.filter),
        test_filter_pairs=len(test.filter),
        median_points_per_label=float(np.median(frequency)) if len(frequency) else 0.0,
        most_points_of_a_label=int(frequency.max(initial=0)),
        share_of_labels_with_few_points=_mean(frequency < FEW_POINTS),
        share_of_positives_in_top_percent=_top_share(frequency, 0.01),
        gini=gini(frequency),
    )


def gini(counts: npt.NDArray[np.integer]) -> float:
    """The Gini coefficient of some counts: half of their mean absolute difference, over their mean."""
    total, n = int(counts.sum()), len(counts)
    if total == 0:
        return 0.0
    ranked = np.sort(counts).astype(np.float64)
    return float(2 * (np.arange(1, n + 1) @ ranked) / (n * total) - (n + 1) / n)


def draw_frequency_curve(dataset: Dataset, path: Path) -> None:
    """Draw how many training points each label has, most frequent first, on two logarithmic axes."""
    kinds = ("png", "pdf", "svg")
    if path.suffix[1:] not in kinds:
        raise InputError(f"a picture's name ends in {', '.join('.' + kind for kind in kinds)}; got {str(path)!r}")
    figure = _frequency_curve(dataset)
    with atomic_file(path) as part:
        figure.savefig(part, format=path.suffix[1:], dpi=160)


def _frequency_curve(dataset: Dataset) -> Figure:
    from matplotlib.figure import Figure

    frequency = np.sort(dataset.label_frequency)[::-1]
    seen = frequency[frequency > 0]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.loglog(np.arange(1, len(seen) + 1), seen, color="black", linewidth=1.6)
    tail_start = int((frequency >= FEW_POINTS).sum()) + 1
    tail = len(frequency) - tail_start + 1
    if seen.size and 0 < tail < len(frequency):
        axes.axvspan(tail_start, len(frequency), color="0.9", linewidth=0)
        axes.text(
            0.03,
            0.05,
            f"shaded: {tail:,} of {len(frequency):,} labels ({tail / len(frequency):.0%})\n"
            f"have fewer than {FEW_POINTS} training points",
            transform=axes.transAxes,
            backgroundcolor="white",
        )
    axes.set_xlim(1, max(2, len(frequency)))
    axes.set_ylim(0.8, None)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("label, most frequent first")
    axes.set_ylabel("training points")
    axes.set_title(f"{dataset.name}: label frequency", loc="left")
    axes.grid(which="major", color="0.85", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _blocks(found: Statistics) -> dict[str, list[tuple[str, str]]]:
    """What `Statistics` prints: titled blocks of named figures."""
    no_text = "no text"
    return {
        "Size": [
            ("train points N", f"{found.train_points:,}"),
            ("test points", f"{found.test_points:,}"),
            ("labels L", f"{found.labels:,}"),
            ("vocabulary V", f"{found.features:,}"),
            ("labels per train point", f"{found.labels_per_point:.2f}"),
            ("labels per test point", f"{found.labels_per_test_point:.2f}"),
            ("points per label", f"{found.points_per_label:.2f}"),
            ("tokens per point", f"{found.tokens_per_point:.2f}"),
            ("tokens per label", no_text if found.tokens_per_label is None else f"{found.tokens_per_label:.2f}"),
        ],
        "Tail (train points of a label)": [
            ("median", f"{found.median_points_per_label:g}"),
            ("most", f"{found.most_points_of_a_label:,}"),
            (f"labels with fewer than {FEW_POINTS}", f"{found.share_of_labels_with_few_points:.1%}"),
            ("positives in the top 1% of labels", f"{found.share_of_positives_in_top_percent:.1%}"),
            ("Gini coefficient", f"{found.gini:.3f}"),
        ],
        "Missing": [
            ("train points without features", f"{found.train_points_without_features:,}"),
            ("test points without features", f"{found.test_points_without_features:,}"),
            ("train points without labels", f"{found.train_points_without_labels:,}"),
            ("test points without labels", f"{found.test_points_without_labels:,}"),
            ("labels without text", no_text if found.labels_without_text is None else f"{found.labels_without_text:,}"),
            ("labels without training points", f"{found.labels_without_training_points:,}"),
        ],
        "Filter": [
            ("train pairs", f"{found.train_filter_pairs:,}"),
            ("test pairs", f"{found.test_filter_pairs:,}"),
        ],
    }


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _mean_row_length(matrix: sp.csr_array) -> float:
    return _mean(np.diff(matrix.indptr))


def _empty_rows(matrix: sp.csr_array) -> int:
    return int((np.diff(matrix.indptr) == 0).sum())


def _top_share(frequency: npt.NDArray[np.integer], share: float) -> float:
    """How much of all positives the most frequent labels have, at least one label."""
    top = max(1, int(len(frequency) * share))
    return float(np.sort(frequency)[::-1][:top].sum() / max(1, frequency.sum()))
