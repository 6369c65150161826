"""What predictions are compared with: the true labels after filtering, and the weight of each label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, Propensity
from xcbench.errors import InputError
from xcbench.evaluation.arrays import FloatArray, IntArray

NO_PAIRS = np.zeros((0, 2), np.int64)
LARGEST_WEIGHT = 1e100  # so that sums of weights stay finite


@dataclass(frozen=True)
class Truth:
    """The true labels of test points. Made once, it serves every run on the same points.

    `Truth.of` takes a dataset, `Truth.of_matrix` any label matrix; both check what they are given.
    """

    positives: sp.csr_array  # [n, L]; what is stored is true, filtered pairs are gone, rows are sorted
    filter: IntArray  # [m, 2] pairs (point, label), sorted and unique
    inverse_propensity: FloatArray | None = None  # [L]
    label_frequency: IntArray | None = None  # [L], in the training set

    @classmethod
    def of(cls, dataset: Dataset) -> Truth:
        """The test split of a dataset, with its filter, propensities and label frequencies."""
        frequency = dataset.label_frequency
        weights = inverse_propensity(frequency, len(dataset.train), dataset.propensity)
        return cls.of_matrix(dataset.test.Y, dataset.test.filter, weights, frequency)

    @classmethod
    def of_matrix(
        cls,
        Y: sp.csr_array,
        filter_pairs: npt.NDArray[np.integer] = NO_PAIRS,
        inverse_propensity: npt.NDArray[np.floating] | None = None,
        label_frequency: npt.NDArray[np.integer] | None = None,
    ) -> Truth:
        """The truth in any label matrix.

        Parameters
        ----------
        Y
            [n, L] An entry is true where it is > 0, so soft targets are fine.
        filter_pairs
            [m, 2] Pairs (point, label) that count neither as truth nor as predictions.
        inverse_propensity
            [L] The weights of the labels. Only propensity-scored metrics need them.
        label_frequency
            [L] The number of training points of each label. Only frequency bins need it.
        """
        points, labels = Y.shape
        if points == 0:
            raise InputError("there are no test points to evaluate on")

        for name, per_label in (("inverse propensity", inverse_propensity), ("label frequency", label_frequency)):
            if per_label is not None and per_label.shape != (labels,):
                raise InputError(f"expected one {name} for each of {labels} labels, got shape {per_label.shape}")

        pairs = np.unique(np.asarray(filter_pairs, np.int64).reshape(-1, 2), axis=0)
        if len(pairs) and (pairs.min() < 0 or (pairs.max(axis=0) >= Y.shape).any()):
            raise InputError(f"a filter pair lies outside of {points} points x {labels} labels")

        weights = None if inverse_propensity is None else np.asarray(inverse_propensity, np.float64)
        frequency = None if label_frequency is None else np.asarray(label_frequency, np.int64)
        positives = without_pairs(_positive_part(Y), pairs)
        return cls(positives, pairs, weights, frequency)

    def __len__(self) -> int:
        return int(self.positives.shape[0])

    @property
    def label_count(self) -> int:
        """The number of labels, L."""
        return int(self.positives.shape[1])

    @cached_property
    def true_count(self) -> IntArray:
        """The number of true labels per point, [n]."""
        return np.diff(self.positives.indptr).astype(np.int64)

    @property
    def max_filtered(self) -> int:
        """The largest number of filtered labels that one point has."""
        return int(np.bincount(self.filter[:, 0]).max(initial=0))

    @property
    def label_weights(self) -> FloatArray:
        """The inverse propensities, [L]; raises an `InputError` where they are not known."""
        if self.inverse_propensity is None:
            raise InputError("propensity-scored metrics need the label frequencies of a training set")
        return self.inverse_propensity

    @cached_property
    def ideal_gains(self) -> FloatArray:
        """The inverse propensities of each point's true labels, largest first: what an ideal prediction collects."""
        heaviest_first = np.argsort(-self.label_weights, kind="stable")
        rank = np.empty(self.label_count, np.int64)
        rank[heaviest_first] = np.arange(self.label_count)

        # One sort of (point, rank of label) pairs, packed into integers, sorts every row at once.
        point = np.repeat(np.arange(len(self)), self.true_count)
        packed = point * self.label_count + rank[self.positives.indices]
        packed.sort()

        label = heaviest_first[packed % self.label_count]
        return np.asarray(self.label_weights[label])


def inverse_propensity(
    label_frequency: npt.NDArray[np.integer],
    training_points: int,
    constants: Propensity,
) -> FloatArray:
    """The weight of each label: 1 + C (n_l + B)^-A with C = (ln N - 1)(B + 1)^A, after Jain et al. 2016.

    Below N = 3 the formula's C is negative and its propensities exceed 1; there C is 0 and all labels weigh the same.

    Parameters
    ----------
    label_frequency
        [L] n_l, the number of training points that have label l.
    training_points
        N, the number of training points.
    constants
        A and B, which belong to the dataset.
    """
    A = constants.A
    B = constants.B
    if B <= 0 and not label_frequency.all():
        raise InputError(f"the propensity constant B must exceed 0 where labels have no training point, got {B}")

    with np.errstate(all="ignore"):
        C = max(0.0, np.log(max(training_points, 1)) - 1) * np.float64(B + 1) ** A
        weights = np.asarray(1 + C * (label_frequency + B) ** -A, np.float64)

    if not (weights < LARGEST_WEIGHT).all():  # nan is not smaller either
        raise InputError(f"propensity constants A = {A:g}, B = {B:g} give weights beyond numbers")
    return weights


def _positive_part(Y: sp.csr_array) -> sp.csr_array:
    """Y with 1 where it is > 0; the same object where nothing changes."""
    Y = sp.csr_array(Y)
    if Y.has_canonical_format and (Y.data > 0).all():
        return Y

    Y = Y.copy()
    Y.sum_duplicates()
    Y.data = (Y.data > 0).astype(np.float32)
    Y.eliminate_zeros()
    return Y


def without_pairs(Y: sp.csr_array, pairs: IntArray) -> sp.csr_array:
    """Y without the entries at `pairs`, which are sorted and unique."""
    if not len(pairs):
        return Y

    labels = Y.shape[1]
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    entries = rows * labels + Y.indices
    removed = pairs[:, 0] * labels + pairs[:, 1]

    nearest = np.minimum(np.searchsorted(removed, entries), len(removed) - 1)
    keep = removed[nearest] != entries
    indptr = np.concatenate(([0], np.cumsum(keep)))[Y.indptr]
    return sp.csr_array((Y.data[keep], Y.indices[keep], indptr), shape=Y.shape)
