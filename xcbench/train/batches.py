"""Training points and the batches that are cut from them by compiled loops: no Python runs per point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from numba import njit
from torch import Tensor

from xcbench.data import Split
from xcbench.data.dataset import pairs_of_rows
from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import SparseRows
from xcbench.kernels.random import word_at
from xcbench.nn.device_arrays import on_device, pin
from xcbench.nn.losses import Shortlists


@dataclass(frozen=True)
class Candidates:
    """Candidate labels of each point: the members of some groups of labels.

    Groups are clusters (DECAF), clusters grown along a label graph (ECLARE), or single labels. A label that is in
    several groups of a point is its candidate once.

    Parameters
    ----------
    groups
        The groups of each point, [N, g] of int32; -1 where a point has fewer than g.
    members
        The labels of each group, [groups, L].
    with_positives
        Whether a point's true labels are added to its candidates.
    random
        How many random labels are added to them. They differ between steps.
    """

    groups: Ints
    members: SparseRows
    with_positives: bool = False
    random: int = 0

    def __post_init__(self) -> None:
        if self.groups.ndim != 2 or self.groups.dtype != np.int32:
            raise ValueError(f"groups are an int32 array [N, g], got {self.groups.dtype} {self.groups.shape}")
        if self.groups.size and not -1 <= self.groups.min() <= self.groups.max() < len(self.members):
            raise ValueError(f"group numbers are -1 (none) to {len(self.members) - 1}")

    @classmethod
    def of_labels(cls, labels: Ints, label_count: int, with_positives: bool = False, random: int = 0) -> Candidates:
        """Return candidates that are given label by label.

        Parameters
        ----------
        labels
            The candidates of each point, [N, k] of int32, -1 where a point has fewer than k: as in `TopK.indices`.
        label_count
            L, the number of all labels.
        with_positives, random
            As above.
        """
        single = SparseRows(
            indptr=np.arange(label_count + 1),
            indices=np.arange(label_count, dtype=np.int32),
            data=np.ones(label_count, np.float32),
            width=label_count,
        )
        return cls(labels, single, with_positives, random)


@dataclass(frozen=True)
class Batch:
    """What a module's loss is given."""

    rows: Longs  # the row numbers of the batch's points within the training points
    X: SparseRows | Tensor
    targets: SparseRows
    shortlists: Shortlists | None


class Points:
    """Training points.

    Parameters
    ----------
    X
        Features, one row per point: sparse, or dense and constant.
    targets
        One row per point and one column per label. Values may be real numbers; nan means that the pair is ignored.
    candidates
        The labels against which each point is ranked; None for all labels.
    """

    def __init__(
        self,
        X: sp.csr_array | Floats | Tensor,
        targets: sp.csr_array,
        candidates: Candidates | None = None,
    ) -> None:
        self.X = SparseRows.of(X) if sp.issparse(X) else torch.as_tensor(X)
        self.targets = SparseRows.of(targets)
        self.candidates = candidates
        self._X_on_device: Tensor | None = None

        sizes = {len(self.X), len(self.targets)}
        if candidates is not None:
            sizes.add(len(candidates.groups))
        if len(sizes) != 1:
            raise ValueError(f"features, targets and candidates must have one row per point, got {sorted(sizes)} rows")

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.targets)

    def cut(self, rows: Longs, key: int = 0, device: torch.device | str = "cpu") -> Batch:
        """Return the batch of some points.

        Parameters
        ----------
        rows
            The row numbers of the points.
        key
            The seed of random candidates.
        device
            Where dense features are. Everything else stays in main memory.
        """
        return self.prepare(rows, key).finish(torch.device(device))

    def prepare(self, rows: Longs, key: int = 0) -> PreparedBatch:
        """Return the batch of some points without its dense features: what can be done in another thread."""
        X = None
        if isinstance(self.X, SparseRows):
            X = self.X.take(rows)

        targets = self.targets.take(rows)
        shortlists = None
        if self.candidates is not None:
            shortlists = cut_shortlists(rows, self.candidates, targets, key)
        return PreparedBatch(self, rows, X, targets, shortlists)

    def dense_features(self, rows: Longs, device: torch.device) -> Tensor:
        """Return the dense features of some points on a device. All points' features move there at the first call."""
        if isinstance(self.X, SparseRows):
            raise TypeError("these points have sparse features")
        if self._X_on_device is None or self._X_on_device.device != device:
            self._X_on_device = self.X.to(device)
        return self._X_on_device[on_device(rows, device)]


@dataclass(frozen=True)
class PreparedBatch:
    """A batch that is cut, but whose dense features are not gathered yet."""

    points: Points
    rows: Longs
    X: SparseRows | None  # None where features are dense
    targets: SparseRows
    shortlists: Shortlists | None

    def finish(self, device: torch.device) -> Batch:
        """Return the batch, with dense features on a device."""
        X: SparseRows | Tensor
        if self.X is None:
            X = self.points.dense_features(self.rows, device)
        else:
            X = self.X
        return Batch(self.rows, X, self.targets, self.shortlists)

    def pin(self) -> None:
        """Copy the arrays that a step reads to page-locked memory."""
        tables = []
        if self.X is None:
            pin(self.rows)
        else:
            tables.append(self.X)
        if self.shortlists is None:
            tables.append(self.targets)
        else:
            pin(self.shortlists.labels)
            tables.append(self.shortlists.entries)

        for table in tables:
            pin(table.indptr)
            pin(table.indices)
            pin(table.data)


def cut_shortlists(rows: Longs, candidates: Candidates, targets: SparseRows, key: int = 0) -> Shortlists:
    """Return the shortlists of a batch.

    Parameters
    ----------
    rows
        The batch's points, as rows of `candidates.groups`.
    candidates
        The groups of labels of each point.
    targets
        One row per point of the batch.
    key
        The seed of random candidates.
    """
    labels, indptr, positions, values = _cut_shortlists(
        rows,
        candidates.groups,
        candidates.members.indptr,
        candidates.members.indices,
        candidates.members.width,
        targets.indptr,
        targets.indices,
        targets.data,
        candidates.with_positives,
        candidates.random,
        np.uint64(key),
    )
    return Shortlists(labels, SparseRows(indptr, positions, values, len(labels)))


def learnable(split: Split) -> Split:
    """Return a split without the points that have no feature or no label: there is nothing to learn from them."""
    has_features = np.diff(split.X.indptr) > 0
    has_labels = np.diff(split.Y.indptr) > 0
    rows = np.flatnonzero(has_features & has_labels)
    if len(rows) == len(split):
        return split

    ignored = pairs_of_rows(split.ignored, rows, len(split))
    return Split(split.X[rows], split.Y[rows], ignored=ignored)


def targets_of(split: Split) -> sp.csr_array:
    """Return Y, with nan at the ignored pairs, so that these have no loss."""
    if not len(split.ignored):
        return split.Y

    rows, labels = split.ignored.T
    nans = np.full(len(rows), np.nan, np.float32)
    marks = sp.csr_array((nans, (rows, labels)), shape=split.Y.shape)
    # No ignored pair is in Y, so the sum changes no target.
    return sp.csr_array(split.Y + marks)


@njit(cache=True, nogil=True)
def _cut_shortlists(
    rows: Longs,
    groups: Ints,
    member_indptr: Longs,
    members: Ints,
    label_count: int,
    y_indptr: Longs,
    y_labels: Ints,
    y_values: Floats,
    with_positives: bool,
    random: int,
    key: np.uint64,
) -> tuple[Longs, Longs, Ints, Floats]:
    """Return the union of all candidates, and CSR arrays with each point's: positions in the union, and targets."""
    max_entries = 0
    for i, row in enumerate(rows):
        max_entries += random + y_indptr[i + 1] - y_indptr[i]
        for group in groups[row]:
            if group >= 0:
                max_entries += member_indptr[group + 1] - member_indptr[group]

    indptr = np.zeros(len(rows) + 1, np.int64)
    labels = np.empty(max_entries, np.int32)
    targets = np.empty(max_entries, np.float32)
    # By label: the last point that has it as a candidate, the last point that has it as a target, and that target.
    candidate_of = np.full(label_count, -1, np.int32)
    target_of = np.full(label_count, -1, np.int32)
    target_value = np.empty(label_count, np.float32)
    is_used = np.zeros(label_count, np.bool_)

    end = 0
    for i, row in enumerate(rows):
        for e in range(y_indptr[i], y_indptr[i + 1]):
            target_of[y_labels[e]] = i
            target_value[y_labels[e]] = y_values[e]

        if with_positives:
            end = _append_new(y_labels[y_indptr[i] : y_indptr[i + 1]], i, candidate_of, labels, end)
        for group in groups[row]:
            if group >= 0:
                end = _append_new(
                    members[member_indptr[group] : member_indptr[group + 1]], i, candidate_of, labels, end
                )
        for draw in range(random):
            word = word_at(word_at(key, row), draw) >> np.uint64(32)
            drawn = np.int32((word * np.uint64(label_count)) >> np.uint64(32))
            if candidate_of[drawn] != i:
                candidate_of[drawn] = i
                labels[end] = drawn
                end += 1

        end = _write_targets(indptr[i], end, labels, targets, target_of, target_value, i, is_used)
        indptr[i + 1] = end

    union = np.flatnonzero(is_used)
    position = target_of  # reuses the memory
    for u, label in enumerate(union):
        position[label] = u
    for e in range(end):
        labels[e] = position[labels[e]]
    return union, indptr, labels[:end], targets[:end]


@njit(inline="always")
def _write_targets(
    start: int,
    end: int,
    labels: Ints,
    targets: Floats,
    target_of: Ints,
    target_value: Floats,
    i: int,
    is_used: npt.NDArray[np.bool_],
) -> int:
    """Write the targets of point i's candidates, and remove those whose target is nan. Returns the new end."""
    new_end = start
    for e in range(start, end):
        target = target_value[labels[e]] if target_of[labels[e]] == i else np.float32(0)
        counts = not np.isnan(target)
        is_used[labels[e]] |= counts
        labels[new_end] = labels[e]
        targets[new_end] = target
        new_end += np.int64(counts)
    return new_end


@njit(inline="always")
def _append_new(new_labels: Ints, i: int, candidate_of: Ints, labels: Ints, end: int) -> int:
    """Append labels to the candidates of point i, as far as they are not among them yet. Returns the new end.

    Every label is written, but `end` moves on only for new ones. Whether a label is new is as good as random, and a
    branch on it would often be mispredicted.
    """
    for label in new_labels:
        labels[end] = label
        end += np.int64(candidate_of[label] != i)
        candidate_of[label] = i
    return end
