"""Predictions and truth from plain files, for those who score data that was never imported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xcbench.data import Propensity, TopK
from xcbench.data.checks import check_plausible
from xcbench.data.readers.packed import read_packed_matrix
from xcbench.data.sparse_kernels import MAX_ID
from xcbench.data.sparse_text import read_matrix, read_pairs, read_points
from xcbench.errors import InputError
from xcbench.evaluation.truth import NO_PAIRS, Truth, inverse_propensity


def read_foreign(
    predictions: Path,
    truth: Path,
    train_labels: Path | None = None,
    filter_pairs: Path | None = None,
    constants: Propensity | None = None,
    places: int | None = None,
) -> tuple[TopK, Truth]:
    """Predictions (cut to so many places) and what to hold them against; label files as `read_labels` takes them.

    Where no file declares how many labels there are, the largest id that anybody mentions decides.
    """
    paths = [path for path in (truth, train_labels) if path is not None]
    files = [read_labels(path) for path in paths]
    declared = _declared_labels(files)
    Y = files[0][0]
    points = int(Y.shape[0])
    pairs = NO_PAIRS if filter_pairs is None else read_pairs(filter_pairs, points, declared or MAX_ID)
    if places is not None:
        places += int(np.bincount(pairs[:, 0]).max(initial=0))
    predicted = TopK.load(predictions, None if declared is None else (points, declared), places)
    mentioned = {str(path): int(matrix.shape[1]) for path, (matrix, _) in zip(paths, files, strict=True)}
    mentioned[str(predictions)] = int(predicted.indices.max(initial=0)) + 1
    mentioned[str(filter_pairs)] = int(pairs[:, 1].max(initial=0)) + 1
    labels = max(mentioned.values()) if declared is None else declared
    entries = sum(matrix.nnz for matrix, _ in files) + predicted.indices.size + len(pairs)
    check_plausible(labels, entries, "labels", max(mentioned, key=mentioned.__getitem__))
    frequency = weights = None
    if train_labels is not None:
        Y_train = files[1][0]
        frequency = np.bincount(Y_train.indices[Y_train.data > 0], minlength=labels)
        weights = inverse_propensity(frequency, int(Y_train.shape[0]), constants or Propensity())
    return predicted, Truth.of_matrix(_widened(Y, labels), pairs, weights, frequency)


def read_labels(path: Path) -> tuple[sp.csr_array, int | None]:
    """A label matrix and the number of labels it declares, if it does.

    A scipy `.npz`, text with lines `label:value ...` after a header `points labels`, or points with their labels, as
    in the XC repository's combined files (header `points features labels`).
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if path.suffix == ".npz":
        matrix = read_packed_matrix(path)
        return matrix, int(matrix.shape[1])
    with path.open("rb") as file:
        first_line = file.readline(200)
    if b":" not in first_line and len(first_line.split()) == 3:
        labels = read_points(path).labels
        assert labels is not None
        return labels, int(labels.shape[1])
    parsed = read_matrix(path)
    return parsed.features, None if parsed.header is None else int(parsed.features.shape[1])


def _declared_labels(files: list[tuple[sp.csr_array, int | None]]) -> int | None:
    declared = {count for _, count in files if count is not None}
    if len(declared) > 1:
        raise InputError(f"truth and training labels declare different numbers of labels: {sorted(declared)}")
    count = next(iter(declared), None)
    if count is not None and (found := max(matrix.shape[1] for matrix, _ in files)) > count:
        raise InputError(f"label {found - 1} is mentioned, but only {count} labels are declared")
    return count


def _widened(Y: sp.csr_array, labels: int) -> sp.csr_array:
    return sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], labels))
