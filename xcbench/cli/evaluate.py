"""The verb `evaluate`: what a prediction file is worth."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from xcbench.cli.console import columns
from xcbench.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from xcbench.data import TopK
    from xcbench.evaluation import Evaluation, Truth


def evaluate(
    *,
    predictions: Path,
    dataset: str | None = None,
    metrics: str | None = None,
    bins: int | None = None,
    bins_by: Literal["volume", "labels"] = "volume",
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
    truth: Path | None = None,
    train_labels: Path | None = None,
    filter_: Annotated[Path | None, Parameter(name="--filter")] = None,
    propensity_a: float | None = None,
    propensity_b: float | None = None,
) -> None:
    """Score predictions for the test points of a dataset, or of any label file.

    Parameters
    ----------
    predictions
        An npz: a csr of scores (scipy.sparse.save_npz), or arrays `indices` and `scores` of [points, k].
    dataset
        A name that `xcbench list datasets` shows, or a path.
    metrics
        Names such as P@1,nDCG@5,PSP@3,PSnDCG@5,R@10,PSR@10,MRR,C@5,Cpred@20, with any k.
    bins
        Show what labels contribute in so many bins, from the rarest to the most frequent.
    bins_by
        Bins of equal volume (training pairs), or of equally many labels.
    json_
        Print the metrics as one flat object, in percent, unrounded.
    truth
        Instead of a dataset: the true labels, as npz, sparse text or combined text.
    train_labels
        With --truth: the training labels, on which propensity-scored metrics and bins rest.
    filter_
        With --truth: pairs `point label` that count neither as truth nor as predictions.
    propensity_a
        With --train-labels: the constant A of the propensity model.
    propensity_b
        With --train-labels: the constant B of the propensity model.
    """
    from xcbench.evaluation import DEFAULT_METRICS, evaluate, parse_metrics, places_needed

    wanted = parse_metrics(DEFAULT_METRICS if metrics is None else metrics.split(","))
    places = places_needed(wanted)
    if truth is None:
        if any(option is not None for option in (train_labels, filter_, propensity_a, propensity_b)):
            raise InputError("--train-labels, --filter and --propensity-a, -b go with --truth; a dataset has its own")
        predicted, target = _on_dataset(predictions, dataset, places)
    elif dataset is not None:
        raise InputError("give either --dataset or --truth")
    else:
        predicted, target = _on_files(predictions, truth, train_labels, filter_, (propensity_a, propensity_b), places)
    if metrics is None and target.inverse_propensity is None:
        wanted = tuple(metric for metric in wanted if not metric.needs_propensity)
    label_bins = None if bins is None else _label_bins(target, bins, bins_by)
    evaluation = evaluate(predicted, target, [str(metric) for metric in wanted])
    shares = {} if label_bins is None else _shares(evaluation, label_bins, bins or 0)
    if too_short := [str(metric) for metric in wanted if (metric.k or 0) > predicted.k]:
        print(f"note: there are {predicted.k} places, fewer than {', '.join(too_short)} look at", file=sys.stderr)
    if json_:
        flat = {f"{name}[{place}/{bins}]": v for name, values in shares.items() for place, v in enumerate(values, 1)}
        print(json.dumps(evaluation.values() | flat))
        return
    print(_metric_table(evaluation))
    if label_bins is not None:
        print(f"\n{_bin_table(target, label_bins, bins or 0, shares)}")
        print(f"\nbins: equal by {bins_by}, from the rarest labels up; each column adds up to its metric")


def _on_dataset(predictions: Path, dataset: str | None, places: int | None) -> "tuple[TopK, Truth]":
    from xcbench.data import TopK, load_dataset
    from xcbench.evaluation import Truth

    if dataset is None:
        raise InputError("name the data that the predictions are for: --dataset, or --truth for files of your own")
    target = Truth.of(load_dataset(dataset))
    places = None if places is None else places + target.most_filtered
    return TopK.load(predictions, (len(target), target.label_count), places), target


def _on_files(
    predictions: Path,
    truth: Path,
    train_labels: Path | None,
    filter_: Path | None,
    constants: tuple[float | None, float | None],
    places: int | None,
) -> "tuple[TopK, Truth]":
    from xcbench.data.importing import propensity_of
    from xcbench.evaluation.plain_files import read_foreign

    propensity = propensity_of(*constants)
    if propensity and train_labels is None:
        raise InputError("propensity constants need --train-labels, whose labels they weigh")
    return read_foreign(predictions, truth, train_labels, filter_, propensity, places)


def _label_bins(target: "Truth", count: int, equal: Literal["volume", "labels"]) -> "npt.NDArray[np.int64]":
    from xcbench.evaluation import frequency_bins

    if target.label_frequency is None:
        raise InputError("--bins need --train-labels, which say how frequent a label is")
    return frequency_bins(target.label_frequency, count, equal)


def _shares(evaluation: "Evaluation", bins: "npt.NDArray[np.int64]", count: int) -> dict[str, list[float]]:
    """What each bin contributes to each metric that is a sum over hits."""
    from xcbench.evaluation import contributions

    sums = [str(metric) for metric in evaluation.metrics if metric.gains]
    return {name: [part.value for part in contributions(evaluation, name, bins, count)] for name in sums}


def _metric_table(evaluation: "Evaluation") -> str:
    intervals = evaluation.intervals().items()
    rows = [(name, f"{found.value:.2f}", f"{found.low:.2f} to {found.high:.2f}") for name, found in intervals]
    table = columns(("metric", "%", "95% interval"), rows, " rr")
    return f"{table}\n\nintervals: bootstrap over test points (for coverage: over labels)"


def _bin_table(target: "Truth", bins: "npt.NDArray[np.int64]", count: int, shares: dict[str, list[float]]) -> str:
    import numpy as np

    pairs = np.bincount(bins, target.label_frequency, minlength=count)
    rows = [
        (f"{number + 1}", f"{labels:,}", f"{pairs[number]:,.0f}", *(f"{part[number]:.2f}" for part in shares.values()))
        for number, labels in enumerate(np.bincount(bins, minlength=count))
    ]
    return columns(("bin", "labels", "training pairs", *shares), rows, "r" * (3 + len(shares)))
