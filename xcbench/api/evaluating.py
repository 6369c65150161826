"""`evaluate`: figures of predictions in whatever form a program has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xcbench.api.inputs import LabelName, as_label_lists, check_same_length, indicator
from xcbench.api.runs import Run
from xcbench.data import Dataset, TopK, load_dataset
from xcbench.errors import InputError
from xcbench.evaluation import DEFAULT_METRICS, Thresholds, Truth, evaluate_decisions, parse_metrics
from xcbench.evaluation import evaluate as evaluate_topk


def evaluate(
    predictions: Run | TopK | sp.sparray | str | Path | Sequence[Sequence[Any]],
    truth: Dataset | str | sp.sparray | Sequence[Sequence[LabelName]] | None = None,
    *,
    metrics: Sequence[str] | None = None,
    threshold: float | str | Thresholds | None = None,
) -> dict[str, float]:
    """Score predictions for test points.

    Parameters
    ----------
    predictions
        A run, a `TopK`, a sparse matrix of scores, an npz file of either, or a list per point: labels from the best
        down, or pairs (label, score) as `predict` returns them.
    truth
        The dataset whose test points they are, by name or itself; or the true labels, as a matrix or a list per point.
        A run has its own.
    metrics
        Names such as `P@1` or `ndcg@5`; by default what a run records. Without a dataset, metrics that need label
        frequencies are left out.
    threshold
        Evaluate decisions instead of rankings: labels whose scores reach the threshold. A number, or, for a run,
        `auto`: what `xcbench threshold` chose.

    Returns
    -------
    dict
        Figures by name, in percent.
    """
    ranked, target = _ranked(predictions, truth)
    if threshold is not None:
        if metrics is not None:
            raise InputError("metrics are of rankings, a threshold makes decisions: give one of the two")
        return evaluate_decisions(ranked, target, _thresholds(threshold, predictions))

    if isinstance(metrics, str):
        raise InputError(f"metrics is a list of names, got one text; write [{metrics!r}]")
    chosen = parse_metrics(DEFAULT_METRICS if metrics is None else metrics)
    if metrics is None and target.inverse_propensity is None:
        chosen = tuple(metric for metric in chosen if not metric.family.needs_propensities)
    if isinstance(predictions, Run):
        return predictions.record.evaluate(target, [str(metric) for metric in chosen]).values()
    return evaluate_topk(ranked, target, chosen).values()


def _ranked(predictions: Any, truth: Any) -> tuple[TopK, Truth]:
    """Return predictions and truth by the numbers of labels."""
    if isinstance(predictions, Run):
        if truth is not None:
            raise InputError("a run is evaluated on its own dataset; leave the truth out")
        return predictions.record.predictions(), Truth.of(predictions.dataset)
    if truth is None:
        raise InputError("say what the predictions are compared with: a dataset, or the true labels")
    if _is_lists(predictions) and _is_lists(truth):
        return _by_name(predictions, truth)
    if _is_lists(predictions):
        raise InputError("predictions as lists need the true labels as lists, too")

    target = _truth(truth)
    return _as_topk(predictions, target), target


def _is_lists(value: Any) -> bool:
    return not isinstance(value, str | Path | TopK | Dataset) and not sp.issparse(value)


def _truth(truth: Any) -> Truth:
    if isinstance(truth, Dataset):
        return Truth.of(truth)
    if isinstance(truth, str | Path):
        return Truth.of(load_dataset(truth))
    if not sp.issparse(truth):
        raise InputError(f"the truth of such predictions is a dataset or a matrix, got {type(truth).__name__}")
    matrix: Any = truth
    return Truth.of_matrix(sp.csr_array(matrix))


def _as_topk(predictions: Any, target: Truth) -> TopK:
    shape = (len(target), target.label_count)
    if isinstance(predictions, TopK):
        return predictions
    if isinstance(predictions, str | Path):
        return TopK.load(predictions, shape)
    if predictions.shape != shape:
        raise InputError(f"expected a {shape[0]} x {shape[1]} matrix of scores, got {predictions.shape}")
    return TopK.from_csr(sp.csr_array(predictions))


def _by_name(predictions: Any, truth: Any) -> tuple[TopK, Truth]:
    """Number the labels of lists."""
    true = as_label_lists(truth, "truth")
    labels = []
    scores = []
    for row, answer in enumerate(predictions):
        pairs = [_pair(item, row, place) for place, item in enumerate(answer)]
        labels.append([label for label, _ in pairs])
        scores.append([score for _, score in pairs])
    labels = as_label_lists(labels, "predictions")
    check_same_length(len(labels), len(true))
    _check_scores(scores)

    distinct = dict.fromkeys(label for each in (*true, *labels) for label in each)
    index = {label: number for number, label in enumerate(distinct)}
    widest = max(map(len, labels), default=0)
    indices = np.full((len(labels), widest), -1, np.int32)
    ranked = np.full((len(labels), widest), -np.inf)
    for row, answer in enumerate(labels):
        indices[row, : len(answer)] = [index[label] for label in answer]
        ranked[row, : len(answer)] = scores[row]
    return TopK.of(indices, ranked), Truth.of_matrix(indicator(true, index))


def _pair(item: Any, row: int, place: int) -> tuple[Any, float]:
    """Return label and score; a label without a score has its place in its stead."""
    if not isinstance(item, tuple):
        return item, -float(place)
    if len(item) != 2:
        raise InputError(f"predictions[{row}][{place}] has {len(item)} parts; expected (label, score)")
    return item[0], item[1]


def _check_scores(scores: Sequence[Sequence[Any]]) -> None:
    for row, each in enumerate(scores):
        for place, score in enumerate(each):
            if isinstance(score, bool) or not isinstance(score, int | float | np.number):
                raise InputError(f"predictions[{row}][{place}] has the score {score!r}; expected a number")


def _thresholds(threshold: Any, predictions: Any) -> Thresholds:
    if isinstance(threshold, Thresholds):
        return threshold
    if threshold == "auto":
        if not isinstance(predictions, Run):
            raise InputError("threshold 'auto' is what was chosen for a run; give a number")
        return predictions.thresholds()
    return Thresholds.everywhere(threshold)
