"""The verb `evaluate`: the metrics of a prediction file."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from xcbench.cli.console import columns
from xcbench.cli.options import thresholds_of
from xcbench.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from xcbench.data import TopK
    from xcbench.evaluation import Evaluation, Metric, Truth
    from xcbench.runner.store import Record


def evaluate(
    *,
    predictions: Path | None = None,
    run: str | None = None,
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
    threshold: str | None = None,
    store: Path | None = None,
) -> None:
    """Score predictions for the test points of a dataset, or of any label file, or of a stored run.

    Parameters
    ----------
    run
        A stored run instead of a file, by id or name (latest, METHOD@DATASET, what --name gave).
    threshold
        Score decisions instead of rankings: a label is predicted where its score reaches this number; auto: what
        `xcbench threshold` chose for the run.
    store
        With --run: the folder of run records; by default in XCBENCH_HOME.
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

    requested = parse_metrics(DEFAULT_METRICS if metrics is None else metrics.split(","))
    places = places_needed(requested)
    if threshold is not None:
        if metrics is not None or bins is not None:
            raise InputError("--metrics and --bins are of rankings, --threshold makes decisions: give one of the two")
        places = None

    record = None
    if run is not None:
        if any(option is not None for option in (predictions, dataset, truth)):
            raise InputError("a run has its own predictions and data: give --run alone")
        record, target = _of_run(run, store)
    elif predictions is None:
        raise InputError("say what to score: --predictions FILE, or --run RUN")
    elif truth is None:
        if any(option is not None for option in (train_labels, filter_, propensity_a, propensity_b)):
            raise InputError("--train-labels, --filter and --propensity-a, -b go with --truth; a dataset has its own")
        predicted, target = _on_dataset(predictions, dataset, places)
    elif dataset is not None:
        raise InputError("give either --dataset or --truth")
    else:
        constants = (propensity_a, propensity_b)
        predicted, target = _on_files(predictions, truth, train_labels, filter_, constants, places)

    if threshold is not None:
        if record is not None:
            predicted = record.predictions()
        _print_decisions(predicted, target, threshold, record, as_json=json_)
        return

    if metrics is None and target.inverse_propensity is None:
        requested = tuple(metric for metric in requested if not metric.family.needs_propensities)

    if bins is None:
        label_bins = None
    else:
        label_bins = _label_bins(target, bins, bins_by)

    if record is not None:
        evaluation = record.evaluate(target, [str(metric) for metric in requested])
    else:
        evaluation = evaluate(predicted, target, requested)
        _note_missing_places(requested, predicted.k)
    if json_:
        print(_as_json(evaluation, label_bins, bins or 0))
        return

    print(_metric_table(evaluation))
    if label_bins is not None:
        print(f"\n{_bin_table(evaluation, label_bins, bins or 0)}")
        print(f"\nbins: equal by {bins_by}, from the rarest labels up; each column adds up to its metric")


def _of_run(run: str, store: Path | None) -> "tuple[Record, Truth]":
    from xcbench.cli.console import show_log
    from xcbench.evaluation import Truth
    from xcbench.report.comparison import dataset_of
    from xcbench.runner.store import load_record

    show_log()
    record = load_record(run, store)
    return record, Truth.of(dataset_of(record))


def _print_decisions(
    predictions: "TopK",
    target: "Truth",
    threshold: str,
    record: "Record | None",
    *,
    as_json: bool,
) -> None:
    """Print the figures of the labels that reach a threshold."""
    from xcbench.evaluation import evaluate_decisions

    values = evaluate_decisions(predictions, target, thresholds_of(threshold, record))
    if as_json:
        print(json.dumps(values))
    else:
        print(columns(("at the threshold", "%"), [(name, f"{value:.2f}") for name, value in values.items()], " r"))


def _on_dataset(predictions: Path, dataset: str | None, places: int | None) -> "tuple[TopK, Truth]":
    from xcbench.data import TopK, load_dataset
    from xcbench.evaluation import Truth

    if dataset is None:
        raise InputError("name the data that the predictions are for: --dataset, or --truth for files of your own")

    target = Truth.of(load_dataset(dataset))
    if places is not None:
        places += target.max_filtered
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
    from xcbench.evaluation.plain_files import read_plain_files

    propensity = propensity_of(*constants)
    if propensity and train_labels is None:
        raise InputError("propensity constants need --train-labels, whose labels they weigh")
    return read_plain_files(predictions, truth, train_labels, filter_, propensity, places)


def _note_missing_places(metrics: "Sequence[Metric]", places: int) -> None:
    too_short = [str(metric) for metric in metrics if metric.k is not None and metric.k > places]
    if too_short:
        print(f"note: there are {places} places, fewer than {', '.join(too_short)} look at", file=sys.stderr)


def _label_bins(target: "Truth", count: int, equal: Literal["volume", "labels"]) -> "npt.NDArray[np.int64]":
    from xcbench.evaluation import frequency_bins

    if target.label_frequency is None:
        raise InputError("--bins need --train-labels, which say how frequent a label is")
    return frequency_bins(target.label_frequency, count, equal)


def _shares(evaluation: "Evaluation", bins: "npt.NDArray[np.int64]", count: int) -> dict[str, list[float]]:
    """What each bin contributes to each metric that is a sum over hits."""
    from xcbench.evaluation import contributions

    shares = {}
    for metric in evaluation.metrics:
        if metric.family.is_sum_over_hits:
            parts = contributions(evaluation, metric, bins, count)
            shares[str(metric)] = [part.value for part in parts]
    return shares


def _as_json(evaluation: "Evaluation", bins: "npt.NDArray[np.int64] | None", count: int) -> str:
    values = evaluation.values()
    if bins is not None:
        for name, shares in _shares(evaluation, bins, count).items():
            for number, share in enumerate(shares, start=1):
                values[f"{name}[{number}/{count}]"] = share
    return json.dumps(values)


def _metric_table(evaluation: "Evaluation") -> str:
    rows = []
    for name, interval in evaluation.intervals().items():
        rows.append((name, f"{interval.value:.2f}", f"{interval.low:.2f} to {interval.high:.2f}"))
    table = columns(("metric", "%", "95% interval"), rows, " rr")
    return f"{table}\n\nintervals: bootstrap over test points (for coverage: over labels)"


def _bin_table(evaluation: "Evaluation", bins: "npt.NDArray[np.int64]", count: int) -> str:
    import numpy as np

    shares = _shares(evaluation, bins, count)
    labels = np.bincount(bins, minlength=count)
    pairs = np.bincount(bins, evaluation.truth.label_frequency, minlength=count)

    rows = []
    for number in range(count):
        contributed = [f"{of_metric[number]:.2f}" for of_metric in shares.values()]
        rows.append((f"{number + 1}", f"{labels[number]:,}", f"{pairs[number]:,.0f}", *contributed))
    return columns(("bin", "labels", "training pairs", *shares), rows, "r" * (3 + len(shares)))
