"""Predictions and truth from plain files, to score data that was never imported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xcbench.data import Propensity, TopK
from xcbench.data.checks import check_plausible
from xcbench.data.readers.packed import read_packed_matrix
from xcbench.data.sparse_kernels import MAX_ID
from xcbench.data.sparse_text import read_matrix, read_pairs, read_points
from xcbench.errors import InputError
from xcbench.evaluation.arrays import IntArray
from xcbench.evaluation.truth import NO_PAIRS, Truth, inverse_propensity


@dataclass(frozen=True)
class LabelFile:
    """A label matrix that was read from a file."""

    path: Path
    matrix: sp.csr_array
    declared: int | None
    """How many labels the file says there are; None if it does not say."""


def read_plain_files(
    predictions: Path,
    truth: Path,
    train_labels: Path | None = None,
    filter_pairs: Path | None = None,
    constants: Propensity | None = None,
    places: int | None = None,
) -> tuple[TopK, Truth]:
    """Read predictions and the truth to compare them with.

    Where no file declares how many labels there are, the largest label id in any file decides.

    Parameters
    ----------
    predictions
        An npz that `TopK.load` reads.
    truth
        The true labels, in any form that `read_labels` reads.
    train_labels
        The training labels, likewise. Without them there are neither propensities nor label frequencies.
    filter_pairs
        Lines `point label`, which count neither as truth nor as predictions.
    constants
        The constants of the propensity model.
    places
        How many places of each ranking to read, apart from filtered ones; None reads all.
    """
    files = [read_labels(truth)]
    if train_labels is not None:
        files.append(read_labels(train_labels))
    declared = _declared_labels(files)

    Y = files[0].matrix
    points = int(Y.shape[0])
    pairs = _read_filter(filter_pairs, points, declared)
    if places is not None:
        places += int(np.bincount(pairs[:, 0]).max(initial=0))
    shape = None if declared is None else (points, declared)
    predicted = TopK.load(predictions, shape, places)

    labels = _count_labels(files, predictions, predicted, filter_pairs, pairs, declared)
    Y = sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(points, labels))
    if train_labels is None:
        return predicted, Truth.of_matrix(Y, pairs)

    Y_train = files[1].matrix
    frequency = np.bincount(Y_train.indices[Y_train.data > 0], minlength=labels)
    weights = inverse_propensity(frequency, int(Y_train.shape[0]), constants or Propensity())
    return predicted, Truth.of_matrix(Y, pairs, weights, frequency)


def read_labels(path: Path) -> LabelFile:
    """Read a label matrix and the number of labels that it declares, if it does.

    Parameters
    ----------
    path
        A scipy `.npz`; text with lines `label:value ...`, with or without a header `points labels`; or points with
        their labels, as in the XC repository's combined files (header `points features labels`).
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}")

    if path.suffix == ".npz":
        matrix = read_packed_matrix(path)
        return LabelFile(path, matrix, int(matrix.shape[1]))

    with path.open("rb") as file:
        first_line = file.readline(200)
    if b":" not in first_line and len(first_line.split()) == 3:
        labels = read_points(path).labels
        assert labels is not None
        return LabelFile(path, labels, int(labels.shape[1]))

    parsed = read_matrix(path)
    declared = None if parsed.header is None else int(parsed.features.shape[1])
    return LabelFile(path, parsed.features, declared)


def _read_filter(path: Path | None, points: int, declared: int | None) -> IntArray:
    if path is None:
        return NO_PAIRS
    return read_pairs(path, points, declared or MAX_ID)


def _count_labels(
    files: list[LabelFile],
    predictions: Path,
    predicted: TopK,
    filter_pairs: Path | None,
    pairs: IntArray,
    declared: int | None,
) -> int:
    """The declared number of labels, or else the smallest that holds every label id; raises if it is implausible."""
    needed = {str(file.path): int(file.matrix.shape[1]) for file in files}
    needed[str(predictions)] = int(predicted.indices.max(initial=0)) + 1
    needed[str(filter_pairs)] = int(pairs[:, 1].max(initial=0)) + 1

    largest = max(needed, key=needed.__getitem__)
    labels = needed[largest] if declared is None else declared
    entries = sum(file.matrix.nnz for file in files) + predicted.indices.size + len(pairs)
    check_plausible(labels, entries, "labels", largest)
    return labels


def _declared_labels(files: list[LabelFile]) -> int | None:
    """The number of labels that the files declare; None if no file does."""
    counts = {file.declared for file in files if file.declared is not None}
    if not counts:
        return None
    if len(counts) > 1:
        raise InputError(f"truth and training labels declare different numbers of labels: {sorted(counts)}")

    declared = counts.pop()
    used = max(file.matrix.shape[1] for file in files)
    if used > declared:
        raise InputError(f"label {used - 1} is mentioned, but only {declared} labels are declared")
    return declared
