"""What predictions are held against: true labels after the filter, and what each label weighs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, Propensity
from xcbench.errors import InputError

NO_PAIRS = np.zeros((0, 2), np.int64)
LARGEST_WEIGHT = 1e100  # so that sums of weights stay finite


@dataclass(frozen=True)
class Truth:
    """The judge's side of an evaluation, made once and used for every run on the same test points."""

    positives: sp.csr_array  # [n, L]; what is stored is true, filtered pairs are gone, rows are sorted
    filter: npt.NDArray[np.int64]  # [m, 2] pairs (point, label), sorted and unique
    inverse_propensity: npt.NDArray[np.float64] | None = None  # [L]
    label_frequency: npt.NDArray[np.int64] | None = None  # [L], in the training set

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
        """Any label matrix: an entry is true where it is > 0, so soft targets are fine."""
        points, labels = Y.shape
        if points == 0:
            raise InputError("there are no test points to evaluate on")
        for name, per_label in (("inverse propensity", inverse_propensity), ("label frequency", label_frequency)):
            if per_label is not None and per_label.shape != (labels,):
                raise InputError(f"expected one {name} for each of {labels} labels, got shape {per_label.shape}")
        pairs = np.unique(np.asarray(filter_pairs, np.int64).reshape(-1, 2), axis=0)
        if len(pairs) and (pairs.min() < 0 or (pairs.max(axis=0) >= Y.shape).any()):
            raise InputError(f"a filter pair lies outside of {points} points x {labels} labels")
        return cls(
            _without(_positive_part(Y), pairs),
            pairs,
            None if inverse_propensity is None else np.asarray(inverse_propensity, np.float64),
            None if label_frequency is None else np.asarray(label_frequency, np.int64),
        )

    def __len__(self) -> int:
        return int(self.positives.shape[0])

    @property
    def label_count(self) -> int:
        return int(self.positives.shape[1])

    @cached_property
    def true_count(self) -> npt.NDArray[np.int64]:
        """How many true labels each point has."""
        return np.diff(self.positives.indptr).astype(np.int64)

    @property
    def most_filtered(self) -> int:
        """How many places filtered predictions can take from one point at most."""
        return int(np.bincount(self.filter[:, 0]).max(initial=0))

    @property
    def label_weights(self) -> npt.NDArray[np.float64]:
        """The inverse propensities, by those who cannot do without."""
        if self.inverse_propensity is None:
            raise InputError("propensity-scored metrics need the label frequencies of a training set")
        return self.inverse_propensity

    @cached_property
    def ideal_gains(self) -> npt.NDArray[np.float64]:
        """The inverse propensities of each point's true labels, largest first: what an ideal prediction collects."""
        heaviest_first = np.argsort(-self.label_weights, kind="stable")
        rank = np.empty(self.label_count, np.int64)
        rank[heaviest_first] = np.arange(self.label_count)
        # One sort of (point, rank of label) pairs, packed into integers, sorts every row at once.
        packed = np.repeat(np.arange(len(self)), self.true_count) * self.label_count + rank[self.positives.indices]
        packed.sort()
        return np.asarray(self.label_weights[heaviest_first[packed % self.label_count]])


def inverse_propensity(
    label_frequency: npt.NDArray[np.integer], training_points: int, constants: Propensity
) -> npt.NDArray[np.float64]:
    """1 + C (n_l + B)^-A with C = (ln N - 1)(B + 1)^A, after Jain et al. 2016.

    Below N = 3 the formula's C is negative and its propensities exceed 1; there C is 0 and all labels weigh the same.
    """
    if constants.B <= 0 and not label_frequency.all():
        raise InputError(
            f"the propensity constant B must exceed 0 where labels have no training point, got {constants.B}"
        )
    with np.errstate(all="ignore"):
        C = max(0.0, np.log(max(training_points, 1)) - 1) * np.float64(constants.B + 1) ** constants.A
        weights = np.asarray(1 + C * (label_frequency + constants.B) ** -constants.A, np.float64)
    if not (weights < LARGEST_WEIGHT).all():  # nor is nan
        raise InputError(f"propensity constants A = {constants.A:g}, B = {constants.B:g} give weights beyond numbers")
    return weights


def _positive_part(Y: sp.csr_array) -> sp.csr_array:
    Y = sp.csr_array(Y)
    if Y.has_canonical_format and (Y.data > 0).all():
        return Y
    Y = Y.copy()
    Y.sum_duplicates()
    Y.data = (Y.data > 0).astype(np.float32)
    Y.eliminate_zeros()
    return Y


def _without(Y: sp.csr_array, pairs: npt.NDArray[np.int64]) -> sp.csr_array:
    """Y with the listed entries gone; pairs are sorted and unique."""
    if not len(pairs):
        return Y
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    entries, unwanted = rows * Y.shape[1] + Y.indices, pairs[:, 0] * Y.shape[1] + pairs[:, 1]
    nearest = np.minimum(np.searchsorted(unwanted, entries), len(unwanted) - 1)
    kept = unwanted[nearest] != entries
    indptr = np.concatenate(([0], np.cumsum(kept)))[Y.indptr]
    return sp.csr_array((Y.data[kept], Y.indices[kept], indptr), shape=Y.shape)
